/**
 * `make bench-flows`: what it costs that tasks wait for each other, against as many plain ones in the same run: chains of ten against
 * batches of ten, a request each, and a chord (a group and the step that joins it) against batches of 500. BENCH_TASKS says how many tasks
 * (default 10 000), BENCH_ROUNDS how many rounds (5); the rounds alternate, and half of one goes before them, so that compilers have ended.
 * Time runs from the first request to the last end, while one producer and one worker run. Prints each aim as `aim …: met` or
 * `aim …: missed`; a missed one is exit 1.
 */
import { cpus } from 'node:os';
import { join } from 'node:path';
import { findRoot } from '../../../deploy/local-stack/stack.ts';
import { startProcess } from '../../../scripts/fleet.ts';
import type { ServiceProcess } from '../../../scripts/fleet.ts';
import {
  createDatabaseBeside,
  deleteTopology,
  dropDatabaseBeside,
  prepareDatabase,
  withDatabase,
} from '../../../scripts/provision.ts';
import { toError } from '../../../shared/errors/to-error.ts';
import type { Database } from '../../../shared/postgres/pool.ts';
import { run } from '../../../shared/postgres/statement.ts';
import { systemClock } from '../../../shared/time/clock.ts';
import { aim } from '../aim.ts';
import { benchEnvironment } from '../environment.ts';
import { accept, percentile } from '../rounds.ts';
import { createSender } from '../sender.ts';
import { countOpen } from './flows.sql.ts';

const ROUNDS = Number(process.env['BENCH_ROUNDS'] ?? 5);
const TASKS = Number(process.env['BENCH_TASKS'] ?? 10_000);
const AIMS = { chain: 1.3, chord: 1.2 };
const LENGTH = 10;
const PREFIX = 'warren-bench-flows';
const DATABASE = 'warren_bench_flows';
/** As many tasks are on their way at once as in batches of 500 from four senders. */
const SENDERS = 200;
const WITHIN_MS = 300_000;
const INPUT = { text: 'x'.repeat(186) };
const STEP = { type: 'bench.noop', input: INPUT };

const TEN = { tasks: Array.from({ length: LENGTH }, () => STEP) };
const CHAIN = {
  name: 'chain',
  steps: Object.fromEntries(
    Array.from({ length: LENGTH }, (_each, index) => [
      `s${index}`,
      index === 0 ? STEP : { ...STEP, after: [`s${index - 1}`] },
    ]),
  ),
};

type Kind = 'plain' | 'tens' | 'chain' | 'chord';

async function main(): Promise<boolean> {
  const root = findRoot();
  const serverUrl = process.env['DATABASE_URL'] ?? '';
  const amqpUrl = process.env['AMQP_URL'] ?? '';
  if (serverUrl === '' || amqpUrl === '') throw new Error('no servers named; run `make bench-flows`');
  const today = new Date().toISOString().slice(0, 10);
  console.log(`${today}, Node ${process.version}, ${cpus().length} cores, ${cpus()[0]?.model ?? ''}`);
  console.log(
    `${TASKS} no-op tasks of 200 bytes, plain, in chains of ${LENGTH} and in one chord, medians of ${ROUNDS} rounds`,
  );
  await deleteTopology(amqpUrl, PREFIX, ['default']);
  const databaseUrl = await createDatabaseBeside(serverUrl, DATABASE);
  await prepareDatabase(databaseUrl, PREFIX);
  const fleet: ServiceProcess[] = [];
  try {
    for (const service of ['producer', 'worker'] as const) {
      const logDir = join(root, '.warren', 'bench');
      fleet.push(
        await startProcess({
          root,
          service,
          name: `${PREFIX}-${service}`,
          logDir,
          env: benchEnvironment({ root, amqpUrl, databaseUrl, prefix: PREFIX }),
        }),
      );
    }
    const url = fleet[0]?.url ?? '';
    return await withDatabase(databaseUrl, async (db) => await measureAll(url, db));
  } finally {
    await Promise.all(fleet.map(async (each) => await each.stop()));
    await deleteTopology(amqpUrl, PREFIX, ['default']);
    await dropDatabaseBeside(serverUrl, DATABASE);
  }
}

async function measureAll(url: string, db: Database): Promise<boolean> {
  const kinds: readonly Kind[] = ['plain', 'tens', 'chain', 'chord'];
  for (const kind of kinds) await measure(url, db, kind, TASKS / 2); // what compiles does so before it counts
  const seconds: Record<Kind, number[]> = { plain: [], tens: [], chain: [], chord: [] };
  for (let round = 1; round <= ROUNDS; round += 1) {
    for (const kind of round % 2 === 1 ? kinds : kinds.toReversed())
      seconds[kind].push(await measure(url, db, kind, TASKS));
    console.log(`  round ${round}: ${kinds.map((kind) => `${kind} ${seconds[kind].at(-1)?.toFixed(2)} s`).join('  ')}`);
  }
  const median = (kind: Kind): number => percentile(seconds[kind], 0.5);
  return [
    aim(
      `chains of ${LENGTH} at most ${AIMS.chain} times batches of ${LENGTH} plain tasks`,
      median('chain') / median('tens'),
      (value) => value <= AIMS.chain,
    ),
    aim(
      `a chord of ${TASKS} at most ${AIMS.chord} times as many plain tasks`,
      median('chord') / median('plain'),
      (value) => value <= AIMS.chord,
    ),
  ].every(Boolean);
}

/** Seconds from the first request to the last end. */
async function measure(url: string, db: Database, kind: Kind, tasks: number): Promise<number> {
  const beganMs = systemClock.monotonicMs();
  if (kind === 'plain') await accept(url, tasks);
  else {
    const requests = kind === 'chord' ? 1 : tasks / LENGTH;
    const [path, body] =
      kind === 'tens' ? ['/v1/tasks/batch', TEN] : ['/v1/flows', kind === 'chain' ? CHAIN : chordOf(tasks)];
    const send = createSender(url, SENDERS);
    let sent = 0;
    await Promise.all(
      Array.from({ length: SENDERS }, async () => {
        while (sent < requests) {
          sent += 1;
          const status = await send(path, body);
          if (status >= 300) throw new Error(`a request was answered ${status}`);
        }
      }),
    );
    send.close();
  }
  for (;;) {
    const [counts] = await run(db, countOpen);
    const nowMs = systemClock.monotonicMs();
    if (counts?.open === 0) return (nowMs - beganMs) / 1_000;
    if (nowMs - beganMs > WITHIN_MS) throw new Error(`${counts?.open ?? '?'} tasks did not end in time`);
    await systemClock.sleep(50);
  }
}

function chordOf(tasks: number): object {
  return {
    name: 'chord',
    steps: {
      many: { type: 'bench.noop', inputs: Array.from({ length: tasks - 1 }, () => INPUT) },
      joined: { ...STEP, after: ['many'] },
    },
  };
}

try {
  process.exitCode = (await main()) ? 0 : 1;
} catch (thrown) {
  console.error(`bench failed: ${toError(thrown).message}`);
  process.exitCode = 1;
}
