/** Retention as tests run it: with spans of their own, over tasks that are as old as they say. */
import { expect } from '@jest/globals';
import { makePartition, readState } from '../../services/producer/partitions.ts';
import type { Partition } from '../../services/producer/retention-plan.ts';
import type { RetentionRules } from '../../services/producer/retention-rules.ts';
import { createRetention } from '../../services/producer/retention.ts';
import type { RetentionOptions } from '../../services/producer/retention.ts';
import { createMetrics } from '../../shared/observability/metrics.ts';
import type { Metrics } from '../../shared/observability/metrics.ts';
import { Database } from '../../shared/postgres/pool.ts';
import { idAtLeast, newId } from '../../shared/tasks/ids.ts';
import { systemClock } from '../../shared/time/clock.ts';
import { partDeps, rows } from './core.ts';
import { eventually } from './eventually.ts';

/** A day in milliseconds. */
export const DAY = 86_400_000;

/** Rules: 30 days for what ended well or was cancelled, 90 days for what is dead, in spans of five days. */
export function someRules(rules: Partial<RetentionRules> = {}): RetentionRules {
  return {
    tasks: [
      { type: '', state: 'succeeded', keptMs: 30 * DAY },
      { type: '', state: 'cancelled', keptMs: 30 * DAY },
      { type: '', state: 'expired', keptMs: 30 * DAY },
      { type: '', state: 'dead', keptMs: 90 * DAY },
    ],
    ripeMs: 30 * DAY,
    shortestMs: 30 * DAY,
    spanMs: 5 * DAY,
    lettersMs: 90 * DAY,
    replaysMs: 90 * DAY,
    flowsMs: 90 * DAY,
    occurrencesMs: 30 * DAY,
    ...rules,
  };
}

/** A running retention. */
export interface TestRetention extends AsyncDisposable {
  readonly metrics: Metrics;
}

/** How sessions of retention are named in Postgres. */
export const RETENTION_SESSIONS = 'warren-test-retention';

/** Starts one. */
export async function openRetention(
  db: Database,
  rules: Partial<RetentionRules> = {},
  options: Partial<RetentionOptions> = {},
): Promise<TestRetention> {
  const own = new Database(db.deps, { ...db.options, applicationName: RETENTION_SESSIONS });
  await own.connectOrThrow();
  const metrics = createMetrics({ service: 'test', version: '', withProcess: false });
  const deps = { ...partDeps, db: own, metrics };
  const loop = createRetention(deps, someRules(rules), { intervalMs: 5, ...options });
  await loop.start();
  return {
    metrics,
    async [Symbol.asyncDispose]() {
      await loop.stop(systemClock.monotonicMs() + 10_000);
      await own.stop(systemClock.monotonicMs() + 2_000);
    },
  };
}

/** Makes a partition for the days from so many to so many days ago. */
export async function partitionOfDays(db: Database, fromDaysAgo: number, toDaysAgo: number): Promise<void> {
  const now = midnight();
  const range = { lowerMs: now - fromDaysAgo * DAY, upperMs: now - toDaysAgo * DAY };
  expect(await makePartition(db, range, 0)).toBe(true);
}

/** The instant so many days before the last midnight, in milliseconds since 1970. */
export function daysAgo(days: number): number {
  return midnight() - days * DAY;
}

function midnight(): number {
  return Math.floor(systemClock.now().getTime() / DAY) * DAY;
}

/** An id that was made then. */
export function idOf(atMs: number): string {
  return idAtLeast(new Date(atMs)).slice(0, 13) + newId().slice(13);
}

/** Ended tasks that were accepted then and ended a second later, counted in the books. Returns their ids. */
export async function addEnded(
  db: Database,
  count: number,
  atMs: number,
  { state = 'succeeded', type = 'test.old', endedMs = atMs + 1_000 } = {},
): Promise<string[]> {
  const ids = Array.from({ length: count }, () => idOf(atMs)).toSorted();
  await db.query({
    text: `with made as (
             insert into tasks (id, state, accepted_at, finished_at, max_attempts, priority, type, queue, input)
             select id, $2::task_state, to_timestamp($3::float8 / 1000), to_timestamp($4::float8 / 1000), 3, 4, $5, 'default', '{}'
               from unnest($1::uuid[]) id
             returning id, type)
           insert into ledger_entries as l (hour, type, entry, backend, tasks)
           select task_hour(id), type, e, pg_backend_pid(), count(*)
             from made cross join unnest(array['accepted', $2::text]) e group by 1, 2, 3 order by 1, 2, 3
           on conflict (hour, type, entry, backend) do update set tasks = l.tasks + excluded.tasks`,
    values: [`{${ids.join(',')}}`, state, atMs, endedMs, type],
  });
  return ids;
}

/** A letter of each of these tasks, closed so many days ago, or open. */
export async function addLetters(db: Database, taskIds: readonly string[], closedDaysAgo?: number): Promise<void> {
  await db.query({
    text: `insert into dead_letters (id, kind, task_id, reason, state, attempt, closed_at)
           select uuid_v7(), 'task', id, 'timeout', case when $2::float8 is null then 'open' else 'discarded' end, 0,
                  clock_timestamp() - $2::float8 * interval '1 d'
             from unnest($1::uuid[]) id`,
    values: [`{${taskIds.join(',')}}`, closedDaysAgo ?? null],
  });
}

/** The partitions there are, but for the default one. */
export async function partitions(db: Database): Promise<readonly Partition[]> {
  return (await readState(db)).partitions;
}

/** The table that holds a task. */
export async function tableOf(db: Database, id: string): Promise<string | undefined> {
  const [row] = await rows<{ name: string }>(
    db,
    'select tableoid::regclass::text as name from tasks where id = $1',
    id,
  );
  return row?.name;
}

/** Expects that every task that was accepted is there, or counted as retired, to the last one. */
export async function expectAllAccounted(db: Database): Promise<void> {
  const [books] = await rows<{ accepted: number; retired: number; there: number }>(
    db,
    `select coalesce(sum(tasks) filter (where entry = 'accepted'), 0)::int4 as accepted,
            coalesce(sum(tasks) filter (where entry = 'retired'), 0)::int4 as retired,
            (select count(*) from tasks)::int4 as there
       from ledger_entries`,
  );
  expect(books).toEqual({ ...books, retired: (books?.accepted ?? 0) - (books?.there ?? 0) });
}

/** Waits until a round has begun and ended without anything to retire. */
export async function settled(db: Database, gone: readonly string[]): Promise<void> {
  await eventually(
    async () => {
      const names = (await partitions(db)).map(({ name }) => name);
      expect(names.filter((name) => gone.includes(name))).toEqual([]);
      expect(await rows(db, 'select name from retired_partitions')).toEqual([]);
      expect(await rows(db, 'select target from task_retirements')).toEqual([]);
    },
    { withinMs: 60_000 },
  );
}
