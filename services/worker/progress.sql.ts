/** The statement that stores how far running tasks are. */
import { sql, statement } from '../../shared/postgres/statement.ts';

/** Stores the last word of each task; one of an older attempt than the stored one is dropped. Locks in id order. */
export const storeProgress = statement<
  [
    ids: readonly string[],
    attempts: readonly number[],
    fractions: readonly number[],
    steps: readonly (string | null)[],
    messages: readonly (string | null)[],
  ]
>()({
  name: 'store_progress',
  text: sql`
    insert into progress (task_id, attempt, fraction, step, message)
    select * from unnest($1::uuid[], $2::int4[], $3::float8[], $4::text[], $5::text[])
           as p (id, attempt, fraction, step, message)
     order by id
    on conflict (task_id) do update
       set attempt = excluded.attempt, fraction = excluded.fraction, step = excluded.step,
           message = excluded.message, updated_at = clock_timestamp()
     where progress.attempt <= excluded.attempt
    returning task_id`,
  columns: { task_id: 'uuid' },
});
