/** Servers that the user named. They are asked, never changed, except that a database of our own is made where we may. */
import { silentLogger } from '../../shared/observability/silent-log.ts';
import { toError, codeOf } from '../../shared/errors/to-error.ts';
import { Database } from '../../shared/postgres/pool.ts';
import { systemClock } from '../../shared/time/clock.ts';
import { StackFailure } from './failure.ts';
import { greetBroker } from './greeting.ts';
import type { Greeting } from './greeting.ts';
import type { ServerControl } from './server.ts';

const ANSWER_WITHIN_MS = 5_000;
const DUPLICATE_DATABASE = '42P04';
const INSUFFICIENT_PRIVILEGE = '42501';

/** The verbs of a server that is the user's own: each throws. */
export const notOurs: ServerControl = {
  source: 'named',
  pid: undefined,
  start: refuse,
  stop: refuse,
  kill: refuse,
};

/** Greets the broker that the user named in `variable`. Throws a StackFailure when the URL is wrong or nobody answers. */
export async function greetNamedBroker(url: string, variable: string = 'AMQP_URL'): Promise<Greeting> {
  const { host } = parseUrl(url, variable, ['amqp:', 'amqps:']);
  const greeting = await greetBroker(url, ANSWER_WITHIN_MS);
  if (greeting === undefined) throw new StackFailure(`${variable}: no AMQP broker answers at ${host}`);
  return greeting;
}

/** Makes sure that the database `name` exists on the server of `url`, and returns its URL. Throws a StackFailure. */
export async function ensureDatabase(url: string, name: string): Promise<string> {
  const { host } = parseUrl(url, 'DATABASE_URL', ['postgres:', 'postgresql:']);
  const own = new URL(url);
  own.pathname = `/${name}`;
  if (await answers(own.href)) return own.href;
  try {
    await ask(url, `create database ${name} template template0 encoding 'UTF8'`);
  } catch (thrown) {
    const code = sqlStateOf(thrown);
    if (code === INSUFFICIENT_PRIVILEGE) {
      const user = decodeURIComponent(own.username);
      throw new StackFailure(
        `DATABASE_URL: ${user} may not create a database on ${host}. As a superuser there, either\n` +
          `    alter role ${JSON.stringify(user)} createdb;\n` +
          `    create database ${name} owner ${JSON.stringify(user)};`,
      );
    }
    if (code !== DUPLICATE_DATABASE)
      throw new StackFailure(`DATABASE_URL: ${host}: ${causeMessage(thrown)}`, undefined, thrown);
  }
  return own.href;
}

/** The version of the Postgres server behind `url`, such as `15.13`. */
export async function databaseVersion(url: string): Promise<string> {
  const rows = await ask(url, `select split_part(current_setting('server_version'), ' ', 1) as version`);
  return (rows as readonly { readonly version: string }[])[0]?.version ?? 'unknown';
}

/** True when the database of `url` lets us in and answers. */
export async function answers(url: string): Promise<boolean> {
  return await ask(url, 'select 1').then(
    () => true,
    () => false,
  );
}

async function ask(url: string, text: string): Promise<readonly unknown[]> {
  const database = new Database(
    { clock: systemClock, log: silentLogger, random: () => 0 },
    {
      url,
      applicationName: 'warren local stack',
      max: 1,
      connectTimeoutMs: ANSWER_WITHIN_MS,
      statementTimeoutMs: 60_000,
      lockTimeoutMs: 0,
      idleTimeoutMs: 1_000,
      schema: 'public',
    },
  );
  try {
    await database.start();
    const { rows } = await database.query({ text });
    return rows;
  } finally {
    await database.stop(systemClock.monotonicMs() + 1_000);
  }
}

function parseUrl(url: string, variable: string, protocols: readonly string[]): URL {
  const parsed = URL.canParse(url) ? new URL(url) : undefined;
  if (parsed === undefined || !protocols.includes(parsed.protocol)) {
    throw new StackFailure(`${variable} is not an URL of the form ${protocols[0] ?? ''}//user:password@host:port`);
  }
  return parsed;
}

function sqlStateOf(thrown: unknown): string | undefined {
  const code = codeOf(thrown);
  return code === 'database-unavailable' ? codeOf(toError(thrown).cause) : code;
}

function causeMessage(thrown: unknown): string {
  const error = toError(thrown);
  return error.cause === undefined ? error.message : toError(error.cause).message;
}

async function refuse(): Promise<never> {
  throw new StackFailure('this server was named by the user: it is not ours to start or stop');
}
