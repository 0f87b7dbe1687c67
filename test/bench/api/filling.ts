/** Fills a database with tasks as years of use would have, and says what they are found by. */
import { randomUUID } from 'node:crypto';
import type { Database } from '../../../shared/postgres/pool.ts';
import { run } from '../../../shared/postgres/statement.ts';
import { systemClock } from '../../../shared/time/clock.ts';
import { makePartition } from '../../../services/producer/partitions.ts';
import { addLease, addTasks, sampleIds } from './api.sql.ts';

const ROWS_PER_STATEMENT = 50_000;
const DAY_MS = 86_400_000;
const DAYS = 30;
const SPAN_DAYS = 5;

/** Queries of `GET /v1/tasks`: common and rare values, alone and together, the newest and the oldest. */
export const QUERIES = [
  '',
  'limit=200',
  'state=succeeded',
  'state=pending',
  'state=running',
  'state=scheduled',
  'state=retrying',
  'state=dead',
  'state=cancelled',
  'state=expired',
  'state=running&state=retrying&state=dead',
  'type=bench.0',
  'type=bench.7',
  'type=bench.rare',
  'type=bench.nothing',
  'queue=reports',
  'tag=common',
  'tag=some',
  'tag=rare',
  'tag=nothing',
  'businessKey=order-4242',
  'externalId=message-4245',
  'state=dead&type=bench.7',
  'state=expired&type=bench.7',
  'state=succeeded&tag=some',
  'state=cancelled&tag=rare',
] as const;

/** The same over a time in the past. */
export function queriesOver(after: Date, before: Date): readonly string[] {
  const range = `acceptedAfter=${after.toISOString()}&acceptedBefore=${before.toISOString()}`;
  return [range, `state=cancelled&${range}`, `type=bench.7&tag=common&${range}`, `state=dead&${range}`];
}

/** Adds `rows` tasks in the partitions that retention would have made, as vacuumed as they would be after a while. */
export async function fillTasks(db: Database, rows: number): Promise<void> {
  const end = Math.floor(systemClock.now().getTime() / DAY_MS) * DAY_MS;
  for (let days = DAYS; days > 0; days -= SPAN_DAYS) {
    await makePartition(db, { lowerMs: end - days * DAY_MS, upperMs: end - (days - SPAN_DAYS) * DAY_MS }, 0);
  }
  const worker = randomUUID();
  await run(db, addLease, worker);
  for (let from = 0; from < rows; from += ROWS_PER_STATEMENT) {
    await run(db, addTasks, from, Math.min(rows, from + ROWS_PER_STATEMENT), rows, worker);
  }
  const connection = await db.checkOut();
  try {
    for (const text of [
      'set statement_timeout = 0',
      'vacuum (analyze, freeze) tasks',
      'vacuum (analyze, freeze) dead_letters',
      'vacuum (analyze) due',
      'vacuum (analyze) claims',
      'checkpoint',
    ]) {
      await connection.query({ text, withinMs: 0 });
    }
  } finally {
    connection.release(true);
  }
}

/** Ids from all over `rows` tasks, in no order. */
export async function findIds(db: Database, rows: number, count: number): Promise<readonly string[]> {
  const percent = Math.min(100, (count / rows) * 150);
  return (await run(db, sampleIds, percent, count)).map(({ id }) => id);
}
