/** The statements that find letters by a filter. Their conditions are made by `conditionOf`; `l` is the letter, `f` its facts. */
import { sql, statement } from '../../shared/postgres/statement.ts';
import type { Sql } from '../../shared/postgres/statement.ts';
import { summaryColumns, SUMMARY_COLUMNS } from './summary.sql.ts';

/** Where the facts are not looked at, Postgres drops the join. */
const letters = sql`dead_letters l left join letter_facts f on f.letter_id = l.id`;

/** The newest ids of letters that fit. */
export const idsThatFit = (condition: Sql, below: Sql, limit: Sql): Sql => sql`
    select l.id from ${letters} where ${condition} and l.id < ${below}::uuid order by l.id desc limit ${limit}::int4`;

/** How many letters fit. */
export const countThatFit = (condition: Sql): Sql => sql`
    select count(*)::int8 as count from ${letters} where ${condition}`;

/** The newest letters, whether they fit or not. The condition is one that an index walked by id serves. */
export const idsToLookAt = (condition: Sql, below: Sql, limit: Sql): Sql => sql`
    select l.id from dead_letters l where ${condition} and l.id < ${below}::uuid order by l.id desc limit ${limit}::int4`;

/** Some letters, in no order, by their facts alone: where there are fewer than the limit, these are all. Indexes: gin. */
export const idsByFacts = (condition: Sql, limit: Sql): Sql => sql`
    select f.letter_id as id from letter_facts f where ${condition} limit ${limit}::int4`;

/** Those of `ids` that fit, newest first: a look-up in the primary keys per id. */
export const idsOfThese = (condition: Sql, ids: Sql): Sql => sql`
    select l.id
      from unnest(${ids}::uuid[]) as wanted (id)
      join dead_letters l on l.id = wanted.id
      left join letter_facts f on f.letter_id = l.id
     where ${condition}
     order by l.id desc`;

/** Letters as lists show them, newest first. Indexes: primary keys. */
export const readSummaries = statement<[ids: readonly string[]]>()({
  name: 'read_summaries',
  text: sql`
    select ${summaryColumns}
      from unnest($1::uuid[]) as wanted (id)
      join dead_letters l on l.id = wanted.id
      left join letter_facts f on f.letter_id = l.id
     order by l.id desc`,
  columns: SUMMARY_COLUMNS,
});
