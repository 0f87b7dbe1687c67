/** The statement that shows what stands beside tasks, and how old it is. */
import { sql, statement } from '../../shared/postgres/statement.ts';

/** Tables that grow beside the tasks: rows as Postgres last counted them, bytes, and the oldest by what their age is told. */
export const readTables = statement<[]>()({
  name: 'read_retention_tables',
  text: sql`
    select u.name, greatest(c.reltuples, 0)::float8 as rows, pg_total_relation_size(c.oid)::float8 as bytes, u.oldest_at
      from (
        values ('dead_letters', (select min(closed_at) from dead_letters where closed_at is not null)),
               ('failure_group_hours', (select to_timestamp(min(hour) * 3600.0) from failure_group_hours)),
               ('replays', (select min(finished_at) from replays where finished_at is not null)),
               ('message_ids', (select min(accepted_at) from message_ids)),
               ('idempotency_keys', (select min(accepted_at) from idempotency_keys)),
               ('unique_keys', null),
               ('attempts', null), ('origins', null), ('letter_facts', null), ('mended_inputs', null),
               ('replay_items', null), ('failure_groups', null), ('ledger_entries', null),
               ('audit', (select min(at) from audit))
      ) as u (name, oldest_at)
      join pg_class c on c.oid = to_regclass(u.name)
     order by u.name`,
  columns: { name: 'text?', rows: 'float8?', bytes: 'float8?', oldest_at: 'timestamptz?' },
});
