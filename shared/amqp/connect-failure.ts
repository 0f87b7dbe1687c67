/** Says in one line why a connection could not be made. */
import { codeOf, toError } from '../errors/to-error.ts';
import { WarrenError } from '../errors/warren-error.ts';
import { tlsFailure, tlsSettingsOf } from '../tls/tls-failure.ts';
import type { BrokerAddress } from './address.ts';

/**
 * Turns what amqplib threw while connecting into `broker-refused-login` (user, password, vhost) or
 * `broker-unavailable` (everything else), naming the server but never the password.
 */
export function connectFailure(thrown: unknown, address: BrokerAddress): WarrenError {
  const error = toError(thrown);
  const text = error.message;
  const facts = { server: address.shown };
  if (/ACCESS[_-]REFUSED/.test(text)) {
    const isVhost = /vhost/.test(text);
    const reason = isVhost ? 'the user may not use this virtual host' : 'the user or the password is wrong';
    return new WarrenError('broker-refused-login', { ...facts, user: address.username, reason });
  }
  if (/NOT[_-]ALLOWED|vhost .*not found|Expected ConnectionOpenOk; got <ConnectionClose/.test(text)) {
    // amqplib keeps the broker's words to itself here; at this step it refuses nothing but the virtual host.
    const reason = 'there is no such virtual host, or the user may not use it';
    return new WarrenError('broker-refused-login', { ...facts, user: address.username, reason });
  }
  return new WarrenError(
    'broker-unavailable',
    { ...facts, reason: tlsFailure(error, tlsSettingsOf('amqp')) ?? reasonOf(text, codeOf(error), address) },
    error,
  );
}

const NO_TLS = 'the server does not speak TLS there; use amqp:// or its TLS port';
const HUNG_UP = 'the server closed the connection during the handshake';

const REASONS: ReadonlyMap<string, string> = new Map([
  ['ECONNREFUSED', 'nothing listens at this address'],
  ['ENOTFOUND', 'the host name cannot be resolved'],
  ['EAI_AGAIN', 'the host name cannot be resolved'],
  ['EPROTO', NO_TLS],
  ['ERR_SSL_WRONG_VERSION_NUMBER', NO_TLS],
  ['ECONNRESET', HUNG_UP],
  ['EPIPE', HUNG_UP],
]);

function reasonOf(text: string, code: string | undefined, address: BrokerAddress): string {
  const known = code === undefined ? undefined : REASONS.get(code);
  if (known !== undefined) return known;
  if (text === 'connect ETIMEDOUT') return 'no answer in time; is it the right port?';
  // What amqplib says on bytes that are no AMQP frame: an HTTP port, a TLS port spoken to in plain text, a foreign server.
  if (/invalid frame|frame (size|type|end)|exceeds|framing|Unknown frame/i.test(text)) {
    return `the server does not speak AMQP 0-9-1 there${address.protocol === 'amqp' ? '; is it a TLS or an HTTP port?' : ''}`;
  }
  if (/Socket closed abruptly/.test(text)) {
    return `the server hung up during the handshake${address.protocol === 'amqp' ? '; is it a TLS port?' : ''}`;
  }
  return text.split('\n', 1)[0]?.slice(0, 300) ?? 'unknown';
}
