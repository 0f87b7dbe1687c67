/**
 * Cases R1 and R4: services that cannot reach what they need, in each way, and tasks that fail with what they were given, say so in log
 * lines, on standard error, at /readyz, /metrics and in `warren doctor`, and nowhere does a secret or an input stand, in no spelling.
 */
import { execFile } from 'node:child_process';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from '@jest/globals';
import type { ServiceName } from '../../scripts/fleet.ts';
import { AMQP_URL } from '../support/broker.ts';
import { eventually } from '../support/eventually.ts';
import { openFleet } from '../support/fleet.ts';
import type { Fleet } from '../support/fleet.ts';
import { ServiceProcess } from '../support/service-process.ts';
import { ROOT } from '../support/source-files.ts';

/** With what has to be written in percent signs, and what a shell or a regular expression would trip over. */
const SECRET = 'Zq7/p@ss:w+rd%$&';
const TOKEN = 'tok-8fQ2xZq7Lm0Rt5Vb';
const LINK_SECRET = 'link-4Kd9Zq7Xw2Nc8Hs6Gf1Pj3Ty5Bv0Ma';
const INPUT = 'card-4929-0000-1111-2222';

/** A secret as it may be spelt: as it is, in percent signs, in base64 alone or behind a user's name. */
function spellings(secret: string): readonly string[] {
  const base64 = (text: string): string => Buffer.from(text).toString('base64').replace(/=+$/, '');
  const plain = [secret, encodeURIComponent(secret), encodeURI(secret), JSON.stringify(secret).slice(1, -1)];
  return [...new Set([...plain, base64(secret), base64(`guest:${secret}`), base64(`\0guest\0${secret}`)])];
}

function found(text: string): readonly string[] {
  return [SECRET, TOKEN, LINK_SECRET, INPUT].flatMap(spellings).filter((spelling) => text.includes(spelling));
}

const password = encodeURIComponent(SECRET);
const hostOf = (url: string): string => new URL(url).host;

/** What a service is told, by what is wrong with it. */
const FAULTS = {
  'a password that RabbitMQ refuses': { AMQP_URL: `amqp://guest:${password}@${hostOf(AMQP_URL)}` },
  'a virtual host that there is not': { AMQP_URL: `amqp://guest:${password}@${hostOf(AMQP_URL)}/nowhere` },
  'a broker without a name': { AMQP_URL: `amqp://guest:${password}@broker.invalid:5672` },
  'a broker where nobody listens': { AMQP_URL: `amqp://guest:${password}@127.0.0.1:1` },
  'TLS to a port without it': { AMQP_URL: `amqps://guest:${password}@${hostOf(AMQP_URL)}` },
  'an address of a broker that is none': { AMQP_URL: `amqp://guest:${password}@127.0.0.1:port` },
  'a database without a name': { DATABASE_URL: `postgres://warren:${password}@database.invalid:5432/warren` },
  'a database where nobody listens': { DATABASE_URL: `postgres://warren:${password}@127.0.0.1:1/warren` },
  'a user whom Postgres does not know': { DATABASE_URL: `postgres://nobody:${password}@127.0.0.1:5432/warren` },
  'an address of a database that is none': { DATABASE_URL: `postgres://warren:${password}@127.0.0.1:port/warren` },
  'tokens that are none': { WARREN_TOKENS: `[{"name":"a","role":"king","token":"${TOKEN}"}]` },
  'tokens that are no JSON': { WARREN_TOKENS: `[{"name":"a","role":"viewer","token":"${TOKEN}"` },
} satisfies Record<string, Record<string, string>>;

/** Everything that a process says, from within and when it is asked. */
async function outputsOf(process: ServiceProcess): Promise<string> {
  const asked = process.logged('service started').length === 0 ? [] : ['/readyz', '/livez', '/metrics', '/v1/tasks'];
  const answers = await Promise.all(
    asked.map(async (path) => {
      const headers = { authorization: `Bearer ${SECRET}` };
      const answer = await fetch(`${process.url}${path}`, { headers, signal: AbortSignal.timeout(5_000) });
      return `${JSON.stringify([...answer.headers])}${await answer.text()}`;
    }),
  );
  return [...process.lines.map((line) => JSON.stringify(line)), process.stray, ...answers].join('\n');
}

let fleet: Fleet;
beforeAll(async () => {
  fleet = await openFleet({ deadLetterHandlers: 1, env: { WARREN_LOG_LEVEL: 'debug' } });
});
afterAll(async () => await fleet[Symbol.asyncDispose]());

test('what a secret could be spelt like is found', () => {
  expect(found(`amqp://guest:${password}@host`)).toContain(password);
  expect(found(Buffer.from(`guest:${SECRET}`).toString('base64'))).not.toEqual([]);
  expect(found(JSON.stringify({ token: TOKEN }))).toEqual([TOKEN]);
  expect(found('nothing of it')).toEqual([]);
});

const SERVICES: readonly ServiceName[] = ['producer', 'worker', 'dead-letter-handler'];

test.each(
  Object.entries(FAULTS).map(([name, fault], index) => ({ name, fault, service: SERVICES[index % 3] as ServiceName })),
)('a $service with $name says what is wrong, and no secret', async ({ fault, service }) => {
  const env = {
    ...fleet.environment(['well-behaved']),
    WARREN_LOG_LEVEL: 'debug',
    WARREN_FILES_LINK_SECRET: LINK_SECRET,
    WARREN_TOKENS: `[{"name":"ops","role":"admin","token":"${TOKEN}"}]`,
    ...fault,
  };
  const process = new ServiceProcess(service, service, env);
  try {
    // It complains: in a line of a warning or an error, or, where it does not even start, beside the log.
    await eventually(() => {
      const complaints = process.lines.filter(({ level }) => level === 'warn' || level === 'error');
      const isWaiting = process.logged('waiting for postgres').length > 0;
      expect(complaints.length > 0 || isWaiting || process.exitCode !== undefined).toBe(true);
    });
    const said = await outputsOf(process);
    expect(said.length).toBeGreaterThan(50);
    expect({ said: found(said).length > 0 ? said : '', found: found(said) }).toEqual({ said: '', found: [] });
  } finally {
    await process.kill();
  }
  const doctor = await run(['doctor'], env);
  expect(found(doctor)).toEqual([]);
  expect(doctor).not.toBe('');
});

test('the input of a task stands in no line of a log and in no metric, whether the task succeeds, fails or dies', async () => {
  const input = { tenant: INPUT };
  await fleet.submit({ input }, { input: { ...input, failures: 1 } }, { input: { ...input, failures: 9 } });
  await fleet.ended();
  await eventually(async () => expect(await fleet.deadLetters()).toHaveLength(1));
  for (const process of [fleet.producer(), fleet.worker(0), fleet.deadLetterHandler()]) {
    const lines = process.lines.map((line) => JSON.stringify(line)).join('\n');
    const metrics = await (await fetch(`${process.url}/metrics`)).text();
    expect(lines.length).toBeGreaterThan(500);
    expect(found(lines + metrics + process.stray)).toEqual([]);
  }
  expect(fleet.worker(0).logged('task dead')).toHaveLength(1);
});

/** What the command line says with this environment, whatever its exit code. */
async function run(args: readonly string[], env: Readonly<Record<string, string>>): Promise<string> {
  return await new Promise((resolve) => {
    const options = { env: { PATH: '/usr/bin:/bin', ...env }, cwd: ROOT, timeout: 60_000 };
    execFile(process.execPath, [join(ROOT, 'dist/cli/main.js'), ...args], options, (_error, stdout, stderr) =>
      resolve(`${stdout}${stderr}`),
    );
  });
}
