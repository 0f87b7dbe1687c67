/** Who logs in to RabbitMQ and Postgres where the URL does not say: as it is, without the encoding that a URL needs. */
import { flag, secretText } from './format.ts';

const AS_IT_IS = 'up to 1000 characters without line breaks, not percent-encoded';
const ONE_LINE = /^[^\0\r\n]{0,1000}$/;

/** Beside `amqp.urls`. */
export const BROKER_ACCESS = {
  user: secretText(
    'User of RabbitMQ, where amqp.urls name none. Given together with amqp.password.',
    ONE_LINE,
    AS_IT_IS,
  ),
  password: secretText('Password of amqp.user.', ONE_LINE, AS_IT_IS),
  declareTopology: flag(
    'Declares exchanges and queues that are missing. false: only looks for them, for a user without the right to declare; then `warren topology apply` declares.',
    true,
  ),
} as const;

/** Beside `postgres.url`. */
export const DATABASE_ACCESS = {
  user: secretText('User of Postgres, where postgres.url names none.', ONE_LINE, AS_IT_IS),
  password: secretText('Password of Postgres, where postgres.url has none.', ONE_LINE, AS_IT_IS),
} as const;

interface Access {
  readonly user: string;
  readonly password: string;
}

/** The URL with what it left out, percent-encoded. It must be one that the schema takes. */
export function withAccess(url: string, { user, password }: Access): string {
  if (user === '' && password === '') return url;
  const parsed = new URL(url);
  // The setters of URL leave a % as it is, which would then be read as an escape.
  if (user !== '') parsed.username = encodeURIComponent(user);
  if (password !== '') parsed.password = encodeURIComponent(password);
  return parsed.href;
}

/** What is said twice or by half, one line each; never a secret. */
export function accessFaults(
  amqp: Access & { readonly urls: readonly string[] },
  postgres: Access & { readonly url: string },
): readonly string[] {
  const faults: string[] = [];
  if ((amqp.user === '') !== (amqp.password === '')) faults.push('amqp.user and amqp.password must be given together');
  const named = amqp.urls.some((url) => new URL(url).username !== '' || new URL(url).password !== '');
  if (amqp.user !== '' && named) faults.push('amqp.user is given, so amqp.urls must not name a user');
  const { username, password } = new URL(postgres.url);
  if (postgres.user !== '' && username !== '')
    faults.push('postgres.user is given, so postgres.url must not name a user');
  if (postgres.password !== '' && password !== '') {
    faults.push('postgres.password is given, so postgres.url must not hold one');
  }
  return faults;
}
