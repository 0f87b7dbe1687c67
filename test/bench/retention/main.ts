/**
 * `make bench-retention`: accepting and processing no-op tasks beside many finished ones, kept in the partitions that retention
 * makes, against a database without any; the rounds alternate. BENCH_ROWS says how many (default 10 000 000). Prints each aim as
 * `aim …: met` or `aim …: missed`; a missed one is exit 1.
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
import { makePartition } from '../../../services/producer/partitions.ts';
import { toError } from '../../../shared/errors/to-error.ts';
import { run } from '../../../shared/postgres/statement.ts';
import { idAtLeast } from '../../../shared/tasks/ids.ts';
import { systemClock } from '../../../shared/time/clock.ts';
import { aim } from '../aim.ts';
import type { BenchSite } from '../environment.ts';
import { benchEnvironment } from '../environment.ts';
import { accept, percentile } from '../rounds.ts';
import { addFinished, countEndedFrom, processingSpanFrom } from './retention.sql.ts';

const ROWS = Number(process.env['BENCH_ROWS'] ?? 10_000_000);
const ROUNDS = Number(process.env['BENCH_ROUNDS'] ?? 3);
const TASKS = Number(process.env['BENCH_TASKS'] ?? 50_000);
const LEAST_SHARE = 0.9;
const DAY_MS = 86_400_000;
const DAYS = 30;
const SPAN_DAYS = 5;
const ROWS_PER_STATEMENT = 50_000;
const WITHIN_MS = 300_000;
const SITES = { none: 'warren-bench-none', many: 'warren-bench-many' } as const;
type SiteName = keyof typeof SITES;

interface Figures {
  readonly acceptedPerSecond: number;
  readonly processedPerSecond: number;
}

async function main(): Promise<boolean> {
  const root = findRoot();
  const serverUrl = process.env['DATABASE_URL'] ?? '';
  const amqpUrl = process.env['AMQP_URL'] ?? '';
  if (serverUrl === '' || amqpUrl === '') throw new Error('no servers named; run `make bench-retention`');
  const today = new Date().toISOString().slice(0, 10);
  console.log(`${today}, Node ${process.version}, ${cpus().length} cores, ${cpus()[0]?.model ?? ''}`);
  console.log(`${TASKS} no-op tasks of 200 bytes beside ${ROWS} finished ones, medians of ${ROUNDS} rounds`);
  const databases = new Map<SiteName, string>();
  const names = Object.keys(SITES) as SiteName[];
  try {
    for (const name of names) {
      const url = await createDatabaseBeside(serverUrl, databaseOf(name));
      databases.set(name, url);
      await prepareDatabase(url, SITES[name]);
      await fill(url, name === 'many' ? ROWS : 0);
    }
    const figures: Record<SiteName, Figures[]> = { none: [], many: [] };
    for (let round = 1; round <= ROUNDS; round += 1) {
      for (const name of round % 2 === 1 ? names : names.toReversed()) {
        const measured = await measure({ root, amqpUrl, databaseUrl: databases.get(name) ?? '', prefix: SITES[name] });
        figures[name].push(measured);
        console.log(
          `  round ${round}, ${name}: accepted ${measured.acceptedPerSecond.toFixed(0)}/s  ` +
            `processed ${measured.processedPerSecond.toFixed(0)}/s`,
        );
      }
    }
    return judge(figures);
  } finally {
    for (const name of databases.keys()) {
      await deleteTopology(amqpUrl, SITES[name], ['default']);
      await dropDatabaseBeside(serverUrl, databaseOf(name));
    }
  }
}

function judge(figures: Readonly<Record<SiteName, readonly Figures[]>>): boolean {
  const share = (read: (each: Figures) => number): number => {
    const [many, none] = [figures.many, figures.none].map((all) =>
      percentile(
        all.map((each) => read(each)),
        0.5,
      ),
    );
    return (many ?? Number.NaN) / (none ?? Number.NaN);
  };
  return [
    aim(
      `accepting beside ${ROWS} finished tasks at least ${LEAST_SHARE} of beside none`,
      share(({ acceptedPerSecond }) => acceptedPerSecond),
      (value) => value >= LEAST_SHARE,
    ),
    aim(
      `processing beside ${ROWS} finished tasks at least ${LEAST_SHARE} of beside none`,
      share(({ processedPerSecond }) => processedPerSecond),
      (value) => value >= LEAST_SHARE,
    ),
  ].every(Boolean);
}

function databaseOf(name: SiteName): string {
  return SITES[name].replaceAll('-', '_');
}

/** The partitions of the last days, as retention would have made them, and the same number of tasks in each. */
async function fill(url: string, rows: number): Promise<void> {
  const beganMs = systemClock.monotonicMs();
  await withDatabase(url, async (db) => {
    const end = Math.floor(systemClock.now().getTime() / DAY_MS) * DAY_MS;
    for (let days = DAYS; days > 0; days -= SPAN_DAYS) {
      const range = { lowerMs: end - days * DAY_MS, upperMs: end - (days - SPAN_DAYS) * DAY_MS };
      await makePartition(db, range, 0);
      const wanted = Math.floor((rows * SPAN_DAYS) / DAYS);
      for (let at = 0; at < wanted; at += ROWS_PER_STATEMENT) {
        const count = Math.min(ROWS_PER_STATEMENT, wanted - at);
        const instant = (done: number): Date =>
          new Date(range.lowerMs + ((range.upperMs - range.lowerMs) * done) / wanted);
        await run(db, addFinished, instant(at), instant(at + count), count);
      }
    }
    // As autovacuum would have left them long ago; it must not do so while a round is measured.
    const connection = await db.checkOut();
    try {
      for (const text of ['set statement_timeout = 0', 'vacuum (analyze, freeze) tasks', 'checkpoint']) {
        await connection.query({ text, withinMs: 0 });
      }
    } finally {
      connection.release(true);
    }
  });
  if (rows > 0) console.log(`  filled in ${((systemClock.monotonicMs() - beganMs) / 1_000).toFixed(0)} s`);
}

/** One round: accepting with no worker there, then processing. */
async function measure(site: BenchSite): Promise<Figures> {
  const fleet: ServiceProcess[] = [];
  const start = async (service: ServiceProcess['service']): Promise<ServiceProcess> => {
    const started = await startProcess({
      root: site.root,
      service,
      name: `${site.prefix}-${service}`,
      logDir: join(site.root, '.warren', 'bench'),
      env: benchEnvironment(site),
    });
    fleet.push(started);
    return started;
  };
  try {
    const producer = await start('producer');
    // The types are announced by a worker; and what compiles does so before it counts.
    const first = await start('worker');
    await accept(producer.url, TASKS / 10);
    await untilEnded(site.databaseUrl, idAtLeast(new Date(systemClock.now().getTime() - WITHIN_MS)));
    await first.stop();
    const from = idAtLeast(systemClock.now());
    const acceptedPerSecond = await accept(producer.url, TASKS);
    await start('worker');
    await untilEnded(site.databaseUrl, from);
    const [span] = await withDatabase(site.databaseUrl, async (db) => await run(db, processingSpanFrom, from));
    return { acceptedPerSecond, processedPerSecond: (span?.tasks ?? 0) / (span?.seconds ?? Number.NaN) };
  } finally {
    await Promise.all(fleet.map(async (each) => await each.stop()));
  }
}

async function untilEnded(databaseUrl: string, from: string): Promise<void> {
  await withDatabase(databaseUrl, async (db) => {
    const untilMs = systemClock.monotonicMs() + WITHIN_MS;
    for (;;) {
      const [counts] = await run(db, countEndedFrom, from);
      if (counts !== undefined && counts.tasks > 0 && counts.ended === counts.tasks) return;
      if (systemClock.monotonicMs() > untilMs) throw new Error(`${counts?.ended} of ${counts?.tasks} ended in time`);
      await systemClock.sleep(500);
    }
  });
}

try {
  process.exitCode = (await main()) ? 0 : 1;
} catch (thrown) {
  console.error(`bench failed: ${toError(thrown).message}`);
  process.exitCode = 1;
}
