/**
 * The demo: a fleet of its own (producer, two workers, dead-letter-handler, as separate processes) runs the sample workload;
 * then one dead letter is understood, mended and replayed, coupons are given by flows and settled by a schedule, and after a bad night 2 000 letters are mended. Exit 0 only if the books balance
 * and every replay succeeded.
 */
import { randomBytes } from 'node:crypto';
import { copyFile, mkdir, rm, writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { claimClone, findRoot } from '../deploy/local-stack/stack.ts';
import { OUTPUT_DIRECTORY, dataDirectory } from '../examples/tasks/files.ts';
import { PARKED_QUEUE, createWorkload, startReceiver } from '../examples/workload.ts';
import type { Receiver, Workload } from '../examples/workload.ts';
import { toError } from '../shared/errors/to-error.ts';
import type { Database } from '../shared/postgres/pool.ts';
import { run } from '../shared/postgres/statement.ts';
import { systemClock } from '../shared/time/clock.ts';
import { call } from './call.ts';
import { COUPON_TASKS, USERS, playCoupons } from './coupons.ts';
import { countStates, summarizeTypes } from './demo.sql.ts';
import { startProcess } from './fleet.ts';
import type { ServiceProcess } from './fleet.ts';
import { MORNING_TASKS, playMorning } from './morning.ts';
import { ProgressLine } from './progress-line.ts';
import { SETTLEMENT_TASKS, playSettlement } from './settlement.ts';
import {
  createDatabaseBeside,
  deleteTopology,
  dropDatabaseBeside,
  prepareDatabase,
  withDatabase,
} from './provision.ts';

const DATABASE = 'warren_demo';
const QUEUES = ['default', PARKED_QUEUE];
const WITHIN_MS = 240_000;

interface Site {
  readonly root: string;
  readonly amqpUrl: string;
  readonly serverUrl: string;
  readonly databaseUrl: string;
  readonly prefix: string;
  /** This run's own folder below the samples' directory. */
  readonly folder: string;
}

interface Fleet {
  readonly processes: readonly ServiceProcess[];
  readonly producerUrl: string;
  readonly deadLettersUrl: string;
}

const say = (line = ''): void => console.log(line);

async function main(): Promise<boolean> {
  const root = findRoot();
  await using _lock = await claimClone(root, 'demo');
  const amqpUrl = need('AMQP_URL');
  const serverUrl = need('DATABASE_URL');
  const prefix = `${process.env['WARREN_PREFIX'] ?? 'warren'}-demo`;
  say('making a database and a topology for this demo alone');
  await deleteTopology(amqpUrl, prefix, QUEUES); // what a demo that was killed left
  const databaseUrl = await createDatabaseBeside(serverUrl, DATABASE);
  await prepareDatabase(databaseUrl, prefix);
  const site: Site = {
    root,
    amqpUrl,
    serverUrl,
    databaseUrl,
    prefix,
    folder: `demo-${randomBytes(4).toString('hex')}`,
  };
  const receiver = await startReceiver();
  const processes: ServiceProcess[] = [];
  try {
    say('starting producer, two workers and dead-letter-handler');
    const fleet = await startFleet(site, receiver.host, processes);
    return await withDatabase(databaseUrl, async (db) => await show(site, fleet, receiver, db));
  } finally {
    say('stopping the fleet');
    await Promise.all(processes.map(async (started) => await started.stop()));
    await receiver.close();
    await deleteTopology(amqpUrl, prefix, QUEUES);
    await dropDatabaseBeside(serverUrl, DATABASE);
    await rm(join(OUTPUT_DIRECTORY, site.folder), { recursive: true, force: true });
    await rm(join(OUTPUT_DIRECTORY, 'inbox', site.folder), { recursive: true, force: true });
  }
}

async function startFleet(site: Site, receiverHost: string, processes: ServiceProcess[]): Promise<Fleet> {
  const env = {
    AMQP_URL: site.amqpUrl,
    DATABASE_URL: site.databaseUrl,
    WARREN_PREFIX: site.prefix,
    WARREN_TASKS: join(site.root, 'dist', 'examples', 'tasks', 'samples.js'),
    WARREN_QUEUES: 'default:8',
    WARREN_PRODUCER_DECLARED_QUEUES: PARKED_QUEUE,
    WARREN_HTTP_REQUEST_ALLOW_HOSTS: receiverHost,
    WARREN_HTTP_PRODUCER_PORT: '0',
    WARREN_HTTP_DEAD_LETTER_HANDLER_PORT: '0',
    WARREN_HTTP_WORKER_PORT: '0',
  };
  const start = async (service: ServiceProcess['service'], name: string): Promise<ServiceProcess> => {
    const logDir = join(site.root, '.warren', 'demo');
    const started = await startProcess({ root: site.root, service, name, logDir, env });
    processes.push(started);
    say(`  ${name.padEnd(20)} pid ${started.pid}  ${started.url}  log ${started.logFile}`);
    return started;
  };
  const producer = await start('producer', 'producer');
  const handler = await start('dead-letter-handler', 'dead-letter-handler');
  await Promise.all([start('worker', 'worker-1'), start('worker', 'worker-2')]);
  return { processes, producerUrl: producer.url, deadLettersUrl: handler.url };
}

async function show(site: Site, fleet: Fleet, receiver: Receiver, db: Database): Promise<boolean> {
  const poison = `inbox/${site.folder}/poison.png`;
  await mkdir(dirname(join(OUTPUT_DIRECTORY, poison)), { recursive: true, mode: 0o700 });
  await writeFile(join(OUTPUT_DIRECTORY, poison), 'this is no picture');
  const workload = createWorkload({ folder: site.folder, poison, receiverUrl: receiver.url, now: systemClock.now() });
  const refusals = await submit(fleet, workload);
  const waited = await waitForEnd(db, workload.tasks.length);
  await printSummary(db);
  const before = await balance(db, workload.tasks.length);
  const replayed = await mendAndReplay(fleet, workload, join(OUTPUT_DIRECTORY, poison));
  const given = await playCoupons({ ...fleet, root: site.root, receiverUrl: receiver.url, folder: site.folder, say });
  const settled = await playSettlement({ ...fleet, root: site.root, folder: site.folder, say }, USERS);
  const mended = await playMorning({ ...fleet, receiver, folder: site.folder, say });
  const after = await balance(db, workload.tasks.length + COUPON_TASKS + SETTLEMENT_TASKS + MORNING_TASKS);
  say();
  say(
    `the reports and thumbnails were written to ${join(OUTPUT_DIRECTORY, site.folder)} and are removed with the demo`,
  );
  return refusals && waited && before && replayed && given && settled && mended && after;
}

/** Submits all in batches, cancels the one to be cancelled, and sees the wrong ones refused. */
async function submit(fleet: Fleet, workload: Workload): Promise<boolean> {
  const { tasks, refused, cancelledKey } = workload;
  say();
  say(`submitting ${tasks.length} tasks over HTTP`);
  const batch = await call(fleet.producerUrl, 'POST', '/v1/tasks/batch', { tasks });
  if (batch.status >= 300) throw new Error(`the batch was answered ${batch.status}: ${JSON.stringify(batch.body)}`);
  let isRight = true;
  for (const { task, field } of refused) {
    const { status, body } = await call(fleet.producerUrl, 'POST', '/v1/tasks', task);
    const named = JSON.stringify(body).includes(field);
    isRight &&= status >= 400 && status < 500 && named;
    say(`  refused as it should be: ${status} ${String(body['title'])} (${field})`);
  }
  const found = await call(fleet.producerUrl, 'GET', `/v1/tasks?businessKey=${encodeURIComponent(cancelledKey)}`);
  const [waiting] = found.body['items'] as { readonly id: string }[];
  const cancelled = await call(fleet.producerUrl, 'POST', `/v1/tasks/${waiting?.id}/cancel`, {});
  say(`  cancelled a task that waits for an hour: ${cancelled.status}`);
  return isRight && cancelled.status < 300;
}

async function waitForEnd(db: Database, expected: number): Promise<boolean> {
  const line = new ProgressLine(process.stdout, systemClock);
  const untilMs = systemClock.monotonicMs() + WITHIN_MS;
  for (;;) {
    const counts = await statesOf(db);
    const ended = endedOf(counts);
    line.show(ended / expected, [...counts].map(([state, tasks]) => `${tasks} ${state}`).join(', '));
    if (ended === expected || systemClock.monotonicMs() > untilMs) {
      line.end();
      if (ended !== expected) say(`not all tasks ended within ${WITHIN_MS / 1_000} s; see the logs of the services`);
      return ended === expected;
    }
    await systemClock.sleep(200);
  }
}

async function printSummary(db: Database): Promise<void> {
  const ms = (value: number | null): string =>
    value === null ? '-' : value < 10 ? value.toFixed(1) : value.toFixed(0);
  const rows = [
    ['type', 'accepted', 'succeeded', 'retried', 'dead', 'other', 'wait p50', 'p95', 'run p50', 'p95 ms'],
    ...(await run(db, summarizeTypes)).map((row) => [
      row.type,
      ...[row.accepted, row.succeeded, row.retried, row.dead, row.ended_otherwise].map(String),
      ...[row.wait_p50, row.wait_p95, row.run_p50, row.run_p95].map(ms),
    ]),
  ];
  const widths = rows[0]?.map((_cell, column) => Math.max(...rows.map((row) => row[column]?.length ?? 0))) ?? [];
  say();
  for (const row of rows) {
    say(
      row
        .map((cell, column) => (column === 0 ? cell.padEnd(widths[0] ?? 0) : cell.padStart(widths[column] ?? 0)))
        .join('  '),
    );
  }
}

/** The books: accepted = succeeded + dead + cancelled + expired. */
async function balance(db: Database, expected: number): Promise<boolean> {
  const counts = await statesOf(db);
  const accepted = [...counts.values()].reduce((sum, tasks) => sum + tasks, 0);
  const terms = ['succeeded', 'dead', 'cancelled', 'expired'].map((state) => `${counts.get(state) ?? 0} ${state}`);
  const isBalanced = accepted === expected && endedOf(counts) === accepted;
  say();
  say(`the books: ${accepted} accepted = ${terms.join(' + ')}: ${isBalanced ? 'they balance' : 'THEY DO NOT BALANCE'}`);
  return isBalanced;
}

/** Shows a dead letter, removes its cause, replays it, and sees it succeed. */
async function mendAndReplay(fleet: Fleet, workload: Workload, poisonFile: string): Promise<boolean> {
  const found = await call(fleet.producerUrl, 'GET', `/v1/tasks?businessKey=${encodeURIComponent(workload.poisonKey)}`);
  const [task] = found.body['items'] as { readonly id: string }[];
  const letters = await call(fleet.deadLettersUrl, 'GET', `/v1/dead-letters?taskId=${task?.id}`);
  const [letter] = letters.body['items'] as { readonly id: string }[];
  if (task === undefined || letter === undefined) throw new Error('the poison picture left no dead letter');
  const { body } = await call(fleet.deadLettersUrl, 'GET', `/v1/dead-letters/${letter.id}`);
  say();
  say(`a dead letter: ${letter.id}`);
  say(`  reason  ${String(body['reason'])}`);
  say(`  error   ${renderError(body)}`);
  say('  cause   the picture is no picture: put a good one in its place');
  await copyFile(join(dataDirectory(), 'gimp.png'), poisonFile);
  const replay = await call(fleet.deadLettersUrl, 'POST', `/v1/dead-letters/${letter.id}/replay`, {
    reason: 'the picture was replaced',
  });
  say(`  replay  ${replay.status}`);
  const untilMs = systemClock.monotonicMs() + 30_000;
  for (;;) {
    const { body: now } = await call(fleet.producerUrl, 'GET', `/v1/tasks/${task.id}`);
    if (now['state'] === 'succeeded') {
      say(`  result  ${JSON.stringify(now['result'])}, attempt ${String(now['attempt'])}`);
      return true;
    }
    if (systemClock.monotonicMs() > untilMs || (now['state'] === 'dead' && Number(now['attempt']) > 3)) {
      say(`  the replay did not succeed: the task is ${String(now['state'])}`);
      return false;
    }
    await systemClock.sleep(100);
  }
}

function renderError(letter: Readonly<Record<string, unknown>>): string {
  const error = letter['error'] as { readonly type?: string; readonly message?: string } | undefined;
  return `${error?.type ?? ''}: ${error?.message ?? ''}`;
}

async function statesOf(db: Database): Promise<Map<string, number>> {
  return new Map((await run(db, countStates)).map(({ state, tasks }) => [state, tasks]));
}

function endedOf(counts: ReadonlyMap<string, number>): number {
  return ['succeeded', 'dead', 'cancelled', 'expired'].reduce((sum, state) => sum + (counts.get(state) ?? 0), 0);
}

function need(variable: string): string {
  const value = process.env[variable];
  if (value === undefined || value === '') throw new Error(`${variable} is not set; run \`make demo\``);
  return value;
}

const startedMs = systemClock.monotonicMs();
try {
  const isWell = await main();
  say(isWell ? `demo passed in ${((systemClock.monotonicMs() - startedMs) / 1_000).toFixed(1)} s` : 'demo FAILED');
  process.exitCode = isWell ? 0 : 1;
} catch (thrown) {
  console.error(`demo failed: ${toError(thrown).message}`);
  process.exitCode = 1;
}
