/** How long lists of many dead letters take, by what they are asked for. */
import { findLetters } from '../../../services/dead-letter-handler/finder.ts';
import { parseLetterFilter } from '../../../services/dead-letter-handler/letter-filter.ts';
import type { Database } from '../../../shared/postgres/pool.ts';
import { systemClock } from '../../../shared/time/clock.ts';

/** How long one filter took. */
export interface ListingFigure {
  readonly filter: string;
  /** Milliseconds of the slowest of the rounds: a page of 50. */
  readonly ms: number;
  /** Letters on the page. */
  readonly letters: number;
  readonly isPartial: boolean;
  /** True where an index serves it, so that the aim of 300 ms is for it. */
  readonly isIndexed: boolean;
}

/** A group of `fillLetters`. */
export const GROUP = '00000000-0000-4000-8000-000000000007';
const ROUNDS = 3;

/** Filters that an index serves: common and rare values, the newest and the oldest. */
export const INDEXED = [
  '',
  'reason:attempts_exhausted',
  'reason:timeout',
  'reason:worker_lost',
  'type:bench.7',
  'type:bench.rare',
  'type:bench.1,bench.rare',
  `group:${GROUP}`,
  'tag:common',
  'tag:some',
  'tag:rare',
  'age:<30m',
  'age:>15d',
  'age:>29d',
  'age:1d..2d',
  'reason:timeout type:bench.7 tag:some age:>10d',
  'error:"order 999999"',
  'input.user.id:4242',
] as const;

/** Filters that only looking can answer. */
export const LOOKED_AT = [
  'type:bench.r*',
  'type:nothing*',
  'attempts:>5',
  'error:ab',
  'input.rows:>999990',
  '-reason:timeout,attempts_exhausted,worker_lost',
  'code:NOTHING',
] as const;

/** Fills letters that died over the last thirty days, evenly, into tables that have none; then measures. */
export async function measureListing(db: Database, letters = 1_000_000): Promise<readonly ListingFigure[]> {
  await fillLetters(db, letters);
  const figures: ListingFigure[] = [];
  for (const filter of INDEXED) figures.push(await measure(db, filter, true));
  for (const filter of LOOKED_AT) figures.push(await measure(db, filter, false));
  return figures;
}

/** The figures as lines of text. */
export function renderListing(figures: readonly ListingFigure[]): string {
  return figures
    .map(({ filter, ms, letters, isPartial }) => {
      const shown = filter === '' ? 'no filter' : filter;
      return `${shown.padEnd(50)} ${ms.toFixed(0).padStart(6)} ms  ${letters} letters${isPartial ? ', partial' : ''}\n`;
    })
    .join('');
}

async function measure(db: Database, text: string, isIndexed: boolean): Promise<ListingFigure> {
  const filter = parseLetterFilter(text);
  let ms = 0;
  let page = { letters: 0, isPartial: false };
  for (let round = 0; round < ROUNDS; round += 1) {
    const start = systemClock.monotonicMs();
    const { items, isPartial } = await findLetters(db, { filter, limit: 50 });
    ms = Math.max(ms, systemClock.monotonicMs() - start);
    page = { letters: items.length, isPartial };
  }
  return { filter: text, ms, isIndexed, ...page };
}

/**
 * Writes `letters` letters with their facts. Indexes are made afterwards, as they were: into a gin index a million rows go many
 * times faster at once.
 */
export async function fillLetters(db: Database, letters: number): Promise<void> {
  const connection = await db.checkOut();
  const send = async (text: string, ...values: unknown[]): Promise<readonly unknown[]> =>
    (await connection.query({ text, values, withinMs: 0 })).rows;
  try {
    await send('set statement_timeout = 0');
    const dropped = (await send(
      `select i.indexname as name, i.indexdef as definition from pg_indexes i
        where i.schemaname = current_schema() and i.tablename in ('dead_letters', 'letter_facts')
          and i.indexdef not like 'CREATE UNIQUE%'`,
    )) as readonly { readonly name: string; readonly definition: string }[];
    for (const { name } of dropped) await send(`drop index ${name}`);
    await send(INSERT_LETTERS, letters);
    await send(INSERT_FACTS);
    for (const { definition } of dropped) await send(definition);
    await send('vacuum analyze dead_letters');
    await send('vacuum analyze letter_facts');
  } finally {
    connection.release(true);
  }
}

/** The newest last: letter n died n thirty-days-over-letters ago. */
const INSERT_LETTERS = `
  insert into dead_letters (id, kind, task_id, state, reason, type, queue, attempt, died_at, recorded_at, error_type, error_code,
                            error_message, error_stack, group_id, code_version, closed_at)
  select (lpad(to_hex((extract(epoch from at) * 1000)::bigint), 12, '0') || '7' || lpad(to_hex(n % 4096), 3, '0') || '8000'
          || lpad(to_hex(n), 12, '0'))::uuid,
         'task', gen_random_uuid(), case when n % 20 = 0 then 'discarded' else 'open' end,
         case when n % 100000 = 1 then 'worker_lost' when n % 10 < 2 then 'timeout' else 'attempts_exhausted' end,
         case when n % 100000 = 1 then 'bench.rare' else 'bench.' || n % 40 end,
         'default', 1 + n % 5, at, at, 'DiskFull', 'ENOSPC', 'no space for order ' || n, repeat('at place (file.ts:1:1) ', 10),
         ('00000000-0000-4000-8000-' || lpad(to_hex(n % 200), 12, '0'))::uuid, '1.' || n % 7 || '.0',
         case when n % 20 = 0 then at end
    from generate_series(1, $1::int4) n,
         lateral (select now() - ($1::int4 - n) * (interval '30 days' / $1::int4) as at) died`;

const INSERT_FACTS = `
  insert into letter_facts (letter_id, tags, error_text, input)
  select l.id,
         case when n % 100000 = 1 then array['common', 'rare'] when n % 100 = 3 then array['common', 'some']
              when n % 2 = 1 then array['common'] end,
         l.error_type || ': ' || l.error_message,
         jsonb_build_object('user', jsonb_build_object('id', n % 100000), 'rows', n)
    from dead_letters l,
         lateral (select ('x' || lpad(right(l.id::text, 12), 16, '0'))::bit(64)::bigint as n) numbered`;
