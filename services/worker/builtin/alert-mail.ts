/** Alerts by e-mail. */
import type { EmailChannel } from '../../../shared/config/alert-channels.ts';
import { isLoopback } from '../../../shared/config/load.ts';
import { describeAlert } from '../../../shared/dead-letters/alert.ts';
import type { Alert } from '../../../shared/dead-letters/alert.ts';
import { codeOf } from '../../../shared/errors/to-error.ts';
import { NonRetryable } from '../../../shared/tasks/handler-errors.ts';
import { withoutSecrets } from './alert-secrets.ts';

/** What bounds a delivery. */
export interface MailBounds {
  readonly signal: AbortSignal;
  /** Milliseconds for each step: connecting, the greeting, an answer. */
  readonly withinMs: number;
}

const SUBMISSION_PORT = 587;
const TLS_PORT = 465;

/**
 * Sends an alert. Its Message-ID is made from the alert and the channel, so that mail programs show what was sent twice once.
 * Throws NonRetryable where the server refuses for good (5xx), else a plain error; none of them holds the password.
 */
export async function deliverByMail(
  channel: EmailChannel,
  alert: Alert,
  { signal, withinMs }: MailBounds,
): Promise<void> {
  const { createTransport } = await import('nodemailer'); // a worker that sends no mail does not pay for it
  const { title, facts } = describeAlert(alert);
  const url = new URL(channel.url);
  const isTls = url.protocol === 'smtps:';
  const host = url.hostname.replace(/^\[(.*)\]$/, '$1');
  const transport = createTransport({
    host,
    port: url.port === '' ? (isTls ? TLS_PORT : SUBMISSION_PORT) : Number(url.port),
    secure: isTls,
    // On this machine TLS would only fail over a certificate that nobody trusts.
    ignoreTLS: isLoopback(host),
    // A password must not be said in the clear, whatever a server, or who stands in between, offers.
    requireTLS: !isTls && url.username !== '' && !isLoopback(host),
    ...(url.username === ''
      ? {}
      : { auth: { user: decodeURIComponent(url.username), pass: decodeURIComponent(url.password) } }),
    connectionTimeout: withinMs,
    greetingTimeout: withinMs,
    socketTimeout: withinMs,
    dnsTimeout: withinMs,
    disableFileAccess: true,
    disableUrlAccess: true,
    logger: false,
  });
  const width = Math.max(...facts.map(([name]) => name.length));
  try {
    await transport.sendMail({
      from: channel.from,
      to: [...channel.to],
      subject: title,
      messageId: `<${alert.id}.${channel.name}@warren.invalid>`,
      headers: { 'auto-submitted': 'auto-generated' }, // RFC 3834: no out-of-office answers, please
      text: `${title}\n\n${facts.map(([name, value]) => `${name.padEnd(width)}  ${value}`).join('\n')}\n`,
      signal,
    });
  } catch (thrown) {
    signal.throwIfAborted();
    throw failureOf(thrown, channel);
  } finally {
    transport.close();
  }
}

/** What the library throws holds the conversation, and so may hold the password. */
function failureOf(thrown: unknown, channel: EmailChannel): Error {
  const { responseCode, response } = thrown as { responseCode?: unknown; response?: unknown };
  const said = typeof response === 'string' ? response : (codeOf(thrown) ?? 'no answer');
  const message = `channel ${channel.name}: not sent: ${withoutSecrets(said, channel)}`;
  return typeof responseCode === 'number' && responseCode >= 500 ? new NonRetryable(message) : new Error(message);
}
