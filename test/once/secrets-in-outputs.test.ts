/**
 * Cases R1 and R4: no secret and no input stands in what processes write and answer, on whatever way they fail: not plain, not as in a URL, not
 * in base64.
 */
import { execFile } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from '@jest/globals';
import { readEnvironment } from '../../shared/config/environment.ts';
import { AMQP_URL } from '../support/broker.ts';
import { openEmptyDatabase } from '../support/database.ts';
import { eventually } from '../support/eventually.ts';
import { openFleet } from '../support/fleet.ts';
import type { Fleet } from '../support/fleet.ts';
import type { ServiceProcess } from '../support/service-process.ts';
import { ROOT } from '../support/source-files.ts';

/** Each where a configuration has one; with what a URL must encode. */
const SECRET = {
  broker: 'brOker+s3cret/@ä',
  postgres: 'pOstgres+s3cret/@ä',
  token: 'tOken-of-an-operator+/s3cret',
  webhook: `whsec_${Buffer.alloc(32, 'wEbhook').toString('base64')}`,
  link: 'lInk-s3cret-of-thirty-two-characters',
  handler: 'hAndler+s3cret/x',
  otlp: 'oTlp-s3cret+of-a-header',
} as const;
const TOKENS = JSON.stringify([{ name: 'ann', role: 'admin', token: SECRET.token }]);
const SETTINGS = {
  WARREN_TOKENS: TOKENS,
  WARREN_WEBHOOKS_SECRETS: SECRET.webhook,
  WARREN_FILES_LINK_SECRET: SECRET.link,
  WARREN_LOG_LEVEL: 'debug',
};

/** All that a secret may look like. In base64 also what stands behind a user's name and a colon. */
function formsOf(secret: string): readonly string[] {
  const encoded = encodeURIComponent(secret);
  const texts = [secret, encoded, encodeURI(secret), JSON.stringify(secret).slice(1, -1)];
  // Wherever it begins in the bytes: its middle looks the same in one of three ways.
  const base64 = [0, 1, 2].map((before) =>
    Buffer.concat([Buffer.alloc(before), Buffer.from(secret)])
      .toString('base64')
      .slice(before === 0 ? 0 : 4, -4),
  );
  const base64url = base64.map((text) => text.replaceAll('+', '-').replaceAll('/', '_'));
  return [...new Set([...texts, ...base64, ...base64url])].filter((text) => text.length >= 8);
}

const FORMS = Object.entries(SECRET).flatMap(([name, secret]) => formsOf(secret).map((form) => [name, form] as const));
const leaksIn = (text: string): readonly string[] =>
  FORMS.filter(([, form]) => text.includes(form)).map(([name, form]) => {
    const at = text.indexOf(form);
    return `${name}: …${text.slice(Math.max(0, at - 150), at + 60)}`;
  });

const urlWith = (url: string, change: (url: URL) => void): string => {
  const made = new URL(url);
  change(made);
  return made.href;
};

/** Somebody whose password is the secret; a server that trusts loopback does not ask for it. */
const USER = `secretive_${randomUUID().replaceAll('-', '')}`;
let fleet: Fleet;
beforeAll(async () => {
  fleet = await openFleet({ workers: 0, producers: 0, tasks: ['leaky'], env: SETTINGS });
  const { database } = fleet.database;
  await database.query({
    text: `do $$ begin execute format('create role ${USER} login password %L in role %I', '${SECRET.postgres}', current_user); end $$`,
  });
});
afterAll(async () => {
  await fleet[Symbol.asyncDispose]();
  await using other = await openEmptyDatabase();
  await other.database.query({ text: `drop role ${USER}` });
});

/** The database under that password. */
const postgresUrl = (change: (url: URL) => void = () => undefined): string =>
  urlWith(fleet.database.url, (url) => {
    url.username = USER;
    url.password = SECRET.postgres;
    change(url);
  });
const outputOf = (process: ServiceProcess): string =>
  `${process.lines.map((line) => JSON.stringify(line)).join('\n')}\n${process.stray}`;

test('the test finds each form, were it there', () => {
  for (const secret of Object.values(SECRET)) {
    const basic = Buffer.from(`user:${secret}`).toString('base64');
    for (const text of [secret, encodeURIComponent(secret), basic, Buffer.from(secret).toString('base64url')]) {
      expect(leaksIn(`before ${text} after`).length).toBeGreaterThan(0);
    }
  }
});

const SERVICES = ['producer', 'worker', 'dead-letter-handler'] as const;
interface Path {
  readonly env: () => Readonly<Record<string, string>>;
  /** What it logs on that way. */
  readonly says: RegExp;
}
const PATHS: Readonly<Record<string, Path>> = {
  'a login that the broker refuses': {
    env: () => ({ AMQP_URL: urlWith(AMQP_URL, (url) => Object.assign(url, { password: SECRET.broker })) }),
    says: /broker-refused-login/,
  },
  'a virtual host that is not there': {
    env: () => ({ AMQP_URL: urlWith(AMQP_URL, (url) => Object.assign(url, { pathname: '/not-there' })) }),
    says: /broker-refused-login/,
  },
  'a broker where nobody listens': {
    env: () => ({ AMQP_URL: `amqp://app:${encodeURIComponent(SECRET.broker)}@127.0.0.1:1` }),
    says: /127\.0\.0\.1:1/,
  },
  'an address of a broker that is none': {
    env: () => ({ AMQP_URL: `amqp://app:${encodeURIComponent(SECRET.broker)}@127.0.0.1:port` }),
    says: /amqp\.urls/,
  },
  'an address of a database that is none': {
    env: () => ({ DATABASE_URL: `postgres://app:${encodeURIComponent(SECRET.postgres)}@127.0.0.1:port/warren` }),
    says: /postgres\.url/,
  },
  'tokens that are none': {
    env: () => ({ WARREN_TOKENS: TOKENS.replace('admin', 'king') }),
    says: /http\.tokens/,
  },
  'tokens that are no JSON': { env: () => ({ WARREN_TOKENS: TOKENS.slice(0, -1) }), says: /http\.tokens/ },
  'a broker whose name is not known': {
    env: () => ({ AMQP_URL: `amqp://app:${encodeURIComponent(SECRET.broker)}@broker.invalid:5672` }),
    says: /broker\.invalid/,
  },
  'a broker that speaks no TLS': {
    env: () => ({
      AMQP_URL: urlWith(AMQP_URL, (url) => Object.assign(url, { password: SECRET.broker })).replace('amqp:', 'amqps:'),
    }),
    says: /TLS/,
  },
  'a database whose name is not known': {
    env: () => ({ DATABASE_URL: postgresUrl((url) => Object.assign(url, { hostname: 'postgres.invalid' })) }),
    says: /postgres\.invalid|ENOTFOUND|EAI_AGAIN/,
  },
  'a database that is not there': {
    env: () => ({ DATABASE_URL: postgresUrl((url) => Object.assign(url, { pathname: '/not_there' })) }),
    says: /not_there/,
  },
  'a database that speaks no TLS': {
    env: () => ({ DATABASE_URL: postgresUrl((url) => url.searchParams.set('sslmode', 'require')) }),
    says: /SSL/,
  },
  'an endpoint for traces that is not there': {
    env: () => ({
      OTEL_EXPORTER_OTLP_ENDPOINT: `http://app:${encodeURIComponent(SECRET.otlp)}@127.0.0.1:1`,
      OTEL_EXPORTER_OTLP_HEADERS: `authorization=Bearer ${SECRET.otlp}`,
    }),
    says: /traces are exported/,
  },
};

test.each(Object.keys(PATHS))('on the way of %s', async (name) => {
  const path = PATHS[name] as Path;
  for (const service of SERVICES) {
    const process = fleet.start(service, path.env());
    process.isKilled = true; // how it ends is not what this is about
    await eventually(() => expect(outputOf(process)).toMatch(path.says), { withinMs: 30_000 });
    await process.kill();
    expect(leaksIn(outputOf(process))).toEqual([]);
  }
});

test('when a handler throws them, connections are lost, and a process crashes by them', async () => {
  const env = { DATABASE_URL: postgresUrl() };
  const producer = await fleet.start('producer', env).ready();
  const worker = await fleet.start('worker', env).ready();
  const handler = await fleet.start('dead-letter-handler', env).ready();
  fleet.expectErrors('unhandled failure');
  const authorization = `Bearer ${SECRET.token}`;
  const submit = async (type: string): Promise<void> => {
    const body = JSON.stringify({ type, input: { secret: SECRET.handler } });
    const headers = { authorization, 'content-type': 'application/json' };
    expect(await fetch(`${producer.url}/v1/tasks`, { method: 'POST', headers, body })).toMatchObject({ status: 202 });
  };
  await submit('leak.throw');
  await worker.next('task dead', { taskType: 'leak.throw' });
  const { database } = fleet.database;
  await database
    .query({
      text: `select pg_terminate_backend(pid) from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()`,
    })
    .catch(() => undefined);
  await eventually(async () => expect((await fetch(`${producer.url}/readyz`)).status).toBe(200));

  const answers: string[] = [];
  for (const { url } of [producer, worker, handler]) {
    for (const asked of [
      '/livez',
      '/readyz',
      '/metrics',
      '/openapi.json',
      '/v1/tasks',
      '/config',
      '/v1/dead-letters',
    ]) {
      for (const bearer of [
        authorization,
        `Bearer ${SECRET.token}x`,
        `Basic ${Buffer.from(`app:${SECRET.token}`).toString('base64')}`,
      ]) {
        const answer = await fetch(`${url}${asked}`, { headers: { authorization: bearer } });
        answers.push(await answer.text());
      }
    }
  }
  await submit('leak.crash');
  await worker.next('unhandled failure');
  await worker.exited;
  await producer.terminate();
  await handler.terminate();
  expect(leaksIn(answers.join('\n'))).toEqual([]);
  expect(leaksIn([producer, worker, handler].map((process) => outputOf(process)).join('\n'))).toEqual([]);
  const { rows } = await database.query({
    text: `select concat_ws(' ', error_type, error_message, error_stack) as said from attempts
           union all select concat_ws(' ', error_message, error_stack) from dead_letters`,
  });
  expect(leaksIn((rows as { said: string }[]).map(({ said }) => said).join('\n'))).toEqual([]);
});

test('in what the command line prints', async () => {
  const env = {
    ...readEnvironment(),
    ...fleet.environment(),
    ...SETTINGS,
    DATABASE_URL: postgresUrl(),
    WARREN_TOKEN: SECRET.token,
  };
  const asked = [
    ['--help'],
    ['config', 'print'],
    ['config', '--help'],
    ['doctor'],
    ['task', 'list', '--url', 'http://127.0.0.1:1'],
  ];
  const said = await Promise.all(
    asked.map(
      async (args) =>
        await new Promise<string>((resolve) => {
          execFile(
            process.execPath,
            [join(ROOT, 'dist/cli/main.js'), ...args],
            { env, timeout: 60_000 },
            (_error, out, err) => resolve(`${out}${err}`),
          );
        }),
    ),
  );
  for (const text of said) expect(text.length).toBeGreaterThan(20);
  expect(leaksIn(said.join('\n'))).toEqual([]);
});
