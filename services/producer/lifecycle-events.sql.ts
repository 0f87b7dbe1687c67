/** The statements behind lifecycle events. */
import { sql, statement } from '../../shared/postgres/statement.ts';

/** Has the table of tasks write down its transitions, or no longer. Locks the table for a moment where that changes; answers what was before. */
export const switchEvents = statement<[isOn: boolean]>()({
  name: 'switch_events',
  text: sql`select switch_lifecycle_events($1::bool) as was_on`,
  columns: { was_on: 'bool?' },
});

/** Takes the oldest rows whose time has come, by moving their `retry_at`. Replicas share the work. Walks the primary key. */
export const takeEvents = statement<[limit: number, retryInMs: number]>()({
  name: 'take_events',
  text: sql`
    update lifecycle_events e
       set retry_at = clock_timestamp() + $2::float8 * interval '1 ms'
     where e.id = any(array(
       select id from lifecycle_events where retry_at <= clock_timestamp() order by id limit $1::int4
          for update skip locked))
    returning e.id, e.at, e.task_ids, e.types, e.queues, e.states, e.attempts, e.traces`,
  columns: {
    id: 'int8',
    at: 'timestamptz',
    task_ids: 'uuid[]',
    types: 'text[]',
    queues: 'text[]',
    states: 'text[]',
    attempts: 'int4[]',
    traces: 'text[]?',
  },
});

/** Forgets rows whose events are all confirmed. */
export const forgetEvents = statement<[ids: readonly string[]]>()({
  name: 'forget_events',
  text: sql`delete from lifecycle_events where id = any($1::int8[]) returning id`,
  columns: { id: 'int8' },
});
