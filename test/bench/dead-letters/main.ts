/**
 * `make bench-dead-letters`: recording, replaying, grouping and listing dead letters, against the aims. Prints each as
 * `aim …: met` or `aim …: missed`; a missed one is exit 1.
 */
import { cpus } from 'node:os';
import { findRoot } from '../../../deploy/local-stack/stack.ts';
import {
  createDatabaseBeside,
  deleteTopology,
  dropDatabaseBeside,
  prepareDatabase,
  withDatabase,
} from '../../../scripts/provision.ts';
import { findGroups } from '../../../services/dead-letter-handler/groups.ts';
import { toError } from '../../../shared/errors/to-error.ts';
import type { Database } from '../../../shared/postgres/pool.ts';
import { run } from '../../../shared/postgres/statement.ts';
import { systemClock } from '../../../shared/time/clock.ts';
import { aim } from '../aim.ts';
import { percentile } from '../rounds.ts';
import { makeGroups } from './dead-letters.sql.ts';
import { measureListing, renderListing } from './listing.ts';
import { measureRecording } from './recording.ts';
import type { DeadLetterSite } from './recording.ts';
import { measureReplay } from './replaying.ts';

const ROUNDS = Number(process.env['BENCH_ROUNDS'] ?? 3);
const RECORDED = Number(process.env['BENCH_RECORDED'] ?? 50_000);
const REPLAYED = Number(process.env['BENCH_REPLAYED'] ?? 100_000);
const LISTED = Number(process.env['BENCH_LISTED'] ?? 1_000_000);
const PREFIX = 'warren-bench';
const DATABASE = 'warren_bench_letters';
const AIMS = { recordedPerSecond: 5_000, replaySeconds: 60, replayGrowthMb: 64, listMs: 300, countMs: 100 };

async function main(): Promise<boolean> {
  console.log(
    `${new Date().toISOString().slice(0, 10)}, Node ${process.version}, ${cpus().length} cores, ${cpus()[0]?.model ?? ''}`,
  );
  return [await benchRecording(), await benchReplay(), await benchMany()].every(Boolean);
}

/** Four letters of five are of tasks whose evidence comes, the others are messages that the front door refused. */
async function benchRecording(): Promise<boolean> {
  const rates: number[] = [];
  for (let round = 1; round <= ROUNDS; round += 1) {
    const { perSecond } = await onNewDatabase(async (site) => await measureRecording(site, RECORDED));
    console.log(`  round ${round}: ${RECORDED} letters recorded and grouped, ${perSecond.toFixed(0)}/s`);
    rates.push(perSecond);
  }
  const aimed = AIMS.recordedPerSecond;
  return aim(`recording at least ${aimed}/s`, percentile(rates, 0.5), (value) => value >= aimed);
}

async function benchReplay(): Promise<boolean> {
  const { seconds, memoryMb } = await onNewDatabase(async (site) => await measureReplay(site, REPLAYED));
  const { before, most } = memoryMb;
  console.log(
    `  replay of ${REPLAYED}: published in ${seconds.toFixed(1)} s, handler ${before.toFixed(0)} MB before, ${most.toFixed(0)} MB at most`,
  );
  return [
    aim(`replay published in under ${AIMS.replaySeconds} s`, seconds, (value) => value < AIMS.replaySeconds),
    aim(
      `the handler grows by less than ${AIMS.replayGrowthMb} MB`,
      most - before,
      (value) => value < AIMS.replayGrowthMb,
    ),
  ].every(Boolean);
}

async function benchMany(): Promise<boolean> {
  return await onNewDatabase(
    async ({ databaseUrl }) =>
      await withDatabase(databaseUrl, async (db) => {
        const figures = await measureListing(db, LISTED);
        console.log(renderListing(figures));
        const slowest = Math.max(...figures.filter(({ isIndexed }) => isIndexed).map(({ ms }) => ms));
        const countMs = await measureCounts(db);
        return [
          aim(`a list by indexed keys in under ${AIMS.listMs} ms`, slowest, (value) => value < AIMS.listMs),
          aim(`counts of all groups in under ${AIMS.countMs} ms`, countMs, (value) => value < AIMS.countMs),
        ].every(Boolean);
      }),
  );
}

/** Milliseconds of the slowest of some looks at the groups. */
async function measureCounts(db: Database): Promise<number> {
  await run(db, makeGroups);
  let slowest = 0;
  for (let look = 0; look < 5; look += 1) {
    const startedMs = systemClock.monotonicMs();
    const groups = await findGroups(db, { states: ['open'], minOpen: 1, below: undefined, limit: 200 });
    slowest = Math.max(slowest, systemClock.monotonicMs() - startedMs);
    const letters = groups.reduce((sum, { openLetters }) => sum + openLetters, 0);
    if (letters < LISTED / 2) throw new Error(`the groups count ${letters} letters`);
  }
  return slowest;
}

async function onNewDatabase<T>(work: (site: DeadLetterSite) => Promise<T>): Promise<T> {
  const serverUrl = process.env['DATABASE_URL'] ?? '';
  const amqpUrl = process.env['AMQP_URL'] ?? '';
  if (serverUrl === '' || amqpUrl === '') throw new Error('no servers named; run `make bench-dead-letters`');
  await deleteTopology(amqpUrl, PREFIX, ['default']);
  const databaseUrl = await createDatabaseBeside(serverUrl, DATABASE);
  await prepareDatabase(databaseUrl, PREFIX);
  try {
    return await work({ root: findRoot(), amqpUrl, databaseUrl, prefix: PREFIX });
  } finally {
    await deleteTopology(amqpUrl, PREFIX, ['default']);
    await dropDatabaseBeside(serverUrl, DATABASE);
  }
}

try {
  process.exitCode = (await main()) ? 0 : 1;
} catch (thrown) {
  console.error(`bench failed: ${toError(thrown).message}`);
  process.exitCode = 1;
}
