/** The measurements of the benchmark, each on a fleet of real processes. */
import { execFile } from 'node:child_process';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { startProcess } from '../../scripts/fleet.ts';
import type { ServiceProcess } from '../../scripts/fleet.ts';
import {
  createDatabaseBeside,
  deleteTopology,
  dropDatabaseBeside,
  prepareDatabase,
  withDatabase,
} from '../../scripts/provision.ts';
import type { Database } from '../../shared/postgres/pool.ts';
import { run } from '../../shared/postgres/statement.ts';
import { systemClock } from '../../shared/time/clock.ts';
import { countEnded, listStarts, measureDisk, processingSpan } from './bench.sql.ts';
import { benchEnvironment } from './environment.ts';
import { cpuMs, residentMb } from './process-figures.ts';
import { createSender } from './sender.ts';

/** Where a round runs. */
export interface Site {
  readonly root: string;
  readonly amqpUrl: string;
  readonly serverUrl: string;
}

/** How many, how long. */
export interface Load {
  /** Tasks of the throughput rounds. */
  readonly tasks: number;
  /** Seconds of the latency round. */
  readonly latencySeconds: number;
}

/** What one round on one broker gave. */
export interface Figures {
  readonly acceptedPerSecond: number;
  readonly processedPerSecond: number;
  readonly startP50Ms: number;
  readonly startP99Ms: number;
  readonly memoryMb: Readonly<Record<string, number>>;
  readonly perTask: {
    /** Microseconds of processor time, to accept it and to run it. */
    readonly producerUs: number;
    readonly workerUs: number;
    /** What a finished task takes on Postgres's disk, indexes and all, and what its life writes to the log of changes (WAL). */
    readonly diskBytes: number;
    readonly walBytes: number;
  };
}

/** Bare consume and ack. */
export interface Ceiling {
  readonly version: string;
  readonly queueType: 'quorum' | 'classic';
  readonly perSecond: number;
}

const PREFIX = 'warren-bench';
const DATABASE = 'warren_bench';
const BATCH = 500;
const SENDERS = 4;
const RATE_PER_SECOND = 200;
/** Seconds at that rate before latency counts: until then compilers run beside the services on the same two cores. */
const WARM_UP_SECONDS = 10;
const TEXT = 'x'.repeat(186); // with its JSON around it: 200 bytes
const WITHIN_MS = 180_000;
const LATENCY_KEY = 'latency-';

/** Consume-and-ack rate of bare amqplib, in a process of its own. */
export async function measureCeiling({ root, amqpUrl }: Site, count: number): Promise<Ceiling> {
  const script = join(root, 'dist', 'test', 'bench', 'ceiling.js');
  const { stdout } = await promisify(execFile)(process.execPath, [script, amqpUrl, PREFIX, String(count)]);
  return JSON.parse(stdout) as Ceiling;
}

/** Accepting, processing, latency and memory, on a new database. */
export async function measureFleet(site: Site, load: Load): Promise<Figures> {
  await deleteTopology(site.amqpUrl, PREFIX, ['default']);
  const databaseUrl = await createDatabaseBeside(site.serverUrl, DATABASE);
  await prepareDatabase(databaseUrl, PREFIX);
  const fleet: ServiceProcess[] = [];
  try {
    return await withDatabase(databaseUrl, async (db) => await measure(site, databaseUrl, load, db, fleet));
  } finally {
    await Promise.all(fleet.map(async (each) => await each.stop()));
    await deleteTopology(site.amqpUrl, PREFIX, ['default']);
    await dropDatabaseBeside(site.serverUrl, DATABASE);
  }
}

async function measure(
  site: Site,
  databaseUrl: string,
  load: Load,
  db: Database,
  fleet: ServiceProcess[],
): Promise<Figures> {
  const start = async (service: ServiceProcess['service'], name: string): Promise<ServiceProcess> => {
    const started = await startProcess({
      root: site.root,
      service,
      name,
      logDir: join(site.root, '.warren', 'bench'),
      env: benchEnvironment({ ...site, databaseUrl, prefix: PREFIX }),
    });
    fleet.push(started);
    return started;
  };
  const producer = await start('producer', 'producer');
  const first = await start('worker', 'worker-0');
  // Latency first: after the throughput rounds Postgres vacuums what they left.
  const latencies = await startLatencies(producer.url, db, load.latencySeconds);
  await first.stop(); // accepting is measured alone

  const [before] = await run(db, measureDisk);
  const accepting = await cpuSpent(producer.pid, async () => await accept(producer.url, load.tasks));
  const acceptedPerSecond = accepting.result;
  const worker = await start('worker', 'worker-1');
  const running = await cpuSpent(worker.pid, async () => await untilEnded(db));
  const [after] = await run(db, measureDisk);
  const perTask = (total: number): number => total / load.tasks;
  const [span] = await run(db, processingSpan);
  const processedPerSecond = (span?.tasks ?? 0) / (span?.seconds ?? Number.NaN);
  const memoryMb = Object.fromEntries(
    await Promise.all([producer, worker].map(async ({ name, pid }) => [name, await residentMb(pid)] as const)),
  );
  return {
    acceptedPerSecond,
    processedPerSecond,
    startP50Ms: percentile(latencies, 0.5),
    startP99Ms: percentile(latencies, 0.99),
    memoryMb,
    perTask: {
      producerUs: perTask(accepting.ms * 1_000),
      workerUs: perTask(running.ms * 1_000),
      diskBytes: perTask((after?.tables ?? Number.NaN) - (before?.tables ?? Number.NaN)),
      walBytes: perTask((after?.wal ?? Number.NaN) - (before?.wal ?? Number.NaN)),
    },
  };
}

async function cpuSpent<T>(pid: number, work: () => Promise<T>): Promise<{ readonly ms: number; readonly result: T }> {
  const before = await cpuMs(pid);
  const result = await work();
  return { ms: (await cpuMs(pid)) - before, result };
}

/** Tasks per second through the HTTP door, in batches. */
export async function accept(producerUrl: string, tasks: number): Promise<number> {
  const batches = Math.ceil(tasks / BATCH);
  const body = { tasks: Array.from({ length: BATCH }, () => ({ type: 'bench.noop', input: { text: TEXT } })) };
  const send = createSender(producerUrl);
  let sent = 0;
  const startedMs = systemClock.monotonicMs();
  await Promise.all(
    Array.from({ length: SENDERS }, async () => {
      while (sent < batches) {
        sent += 1;
        const status = await send('/v1/tasks/batch', body);
        if (status >= 300) throw new Error(`a batch was answered ${status}`);
      }
    }),
  );
  send.close();
  return (batches * BATCH) / ((systemClock.monotonicMs() - startedMs) / 1_000);
}

async function untilEnded(db: Database): Promise<void> {
  const untilMs = systemClock.monotonicMs() + WITHIN_MS;
  for (;;) {
    const [counts] = await run(db, countEnded);
    if (counts !== undefined && counts.ended === counts.tasks) return;
    if (systemClock.monotonicMs() > untilMs) throw new Error(`${counts?.ended} of ${counts?.tasks} ended in time`);
    await systemClock.sleep(250);
  }
}

/** Milliseconds from the moment of sending to the start of the attempt, at a steady rate. */
async function startLatencies(producerUrl: string, db: Database, seconds: number): Promise<number[]> {
  const sentMs = new Map<string, number>();
  const answers: Promise<number>[] = [];
  const send = createSender(producerUrl);
  const beganMs = systemClock.monotonicMs();
  for (let index = 0; index < (WARM_UP_SECONDS + seconds) * RATE_PER_SECOND; index += 1) {
    await systemClock.sleep(beganMs + (index * 1_000) / RATE_PER_SECOND - systemClock.monotonicMs());
    const key = `${LATENCY_KEY}${index}`;
    sentMs.set(key, performance.timeOrigin + performance.now());
    answers.push(send('/v1/tasks', { type: 'bench.noop', input: { text: TEXT }, businessKey: key }));
  }
  const statuses = await Promise.all(answers);
  send.close();
  const refused = statuses.filter((status) => status >= 300);
  if (refused.length > 0) throw new Error(`${refused.length} of ${statuses.length} tasks were answered ${refused[0]}`);
  await untilEnded(db);
  const starts = await run(db, listStarts);
  return starts.flatMap(({ business_key: key, started_ms: startedMs }) => {
    const sent = key === null ? undefined : sentMs.get(key);
    const isWarmUp = Number(key?.slice(LATENCY_KEY.length)) < WARM_UP_SECONDS * RATE_PER_SECOND;
    return sent === undefined || startedMs === null || isWarmUp ? [] : [startedMs - sent];
  });
}

/** The value below which `share` of the sorted values lie. */
export function percentile(values: readonly number[], share: number): number {
  const sorted = values.toSorted((a, b) => a - b);
  return sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * share))] ?? Number.NaN;
}
