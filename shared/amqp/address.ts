/** Reads a broker's URL into what amqplib takes, without its faults: `unescape` reads UTF-8 as Latin-1, and an invalid URL is thrown with the password in it. */
import { WarrenError } from '../errors/warren-error.ts';

/** Where a broker is and who logs in. */
export interface BrokerAddress {
  readonly protocol: 'amqp' | 'amqps';
  readonly hostname: string;
  readonly port: number;
  readonly username: string;
  readonly password: string;
  /** Decoded: `/`, `my/vhost`. */
  readonly vhost: string;
  /** `amqp://host:5672/vhost`, for logs and errors: never a password. */
  readonly shown: string;
}

/**
 * Reads `amqp://user:password@host:5672/vhost` or `amqps://…` (port 5671). User, password and vhost are percent-encoded
 * UTF-8; a missing user means guest, a missing vhost `/`. Throws `config-invalid` without repeating the URL.
 * Source: rabbitmq.com/docs/uri-spec.
 */
export function parseAddress(url: string): BrokerAddress {
  const parsed = URL.canParse(url) ? new URL(url) : undefined;
  const protocol = parsed?.protocol;
  if (parsed === undefined || (protocol !== 'amqp:' && protocol !== 'amqps:') || parsed.hostname === '') {
    throw invalid('must look like amqp://user:password@host:5672/vhost; encode / : @ # ? % in user and password');
  }
  const hostname = parsed.hostname.replaceAll(/^\[|\]$/g, '');
  const isPlain = protocol === 'amqp:';
  const port = parsed.port === '' ? (isPlain ? 5672 : 5671) : Number(parsed.port);
  const isAnonymous = parsed.username === '' && parsed.password === '';
  const vhost = decode(parsed.pathname.slice(1), 'vhost');
  return {
    protocol: isPlain ? 'amqp' : 'amqps',
    hostname,
    port,
    username: isAnonymous ? 'guest' : decode(parsed.username, 'user'),
    password: isAnonymous ? 'guest' : decode(parsed.password, 'password'),
    vhost: vhost === '' ? '/' : vhost,
    shown: `${protocol}//${hostname.includes(':') ? `[${hostname}]` : hostname}:${port}/${encodeURIComponent(vhost)}`,
  };
}

function decode(text: string, part: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    // The URIError holds nothing that helps, and its text may hold the password.
    throw invalid(`the ${part} is not percent-encoded UTF-8`);
  }
}

function invalid(reason: string): WarrenError {
  return new WarrenError('config-invalid', { field: 'amqp url', reason });
}
