/** What the simulation asks of Postgres. */
import { sql, statement } from '../../shared/postgres/statement.ts';

/** Tasks that have ended, of all. */
export const countEnded = statement<[]>()({
  name: 'sim_count_ended',
  text: sql`select count(*)::int4 as tasks, count(finished_at)::int4 as ended from tasks`,
  columns: { tasks: 'int4', ended: 'int4' },
});

/** Milliseconds that each task waited to be started, of those that were. */
export const listWaits = statement<[]>()({
  name: 'sim_list_waits',
  text: sql`
    select (extract(epoch from started_at - accepted_at) * 1000)::float8 as wait_ms from tasks where started_at is not null`,
  columns: { wait_ms: 'float8?' },
});

/** How tasks ended that did not succeed, and attempts that did not: by outcome. */
export const countFaults = statement<[]>()({
  name: 'sim_count_faults',
  text: sql`
    select 'task ' || state::text as what, count(*)::int4 as times from tasks where state <> 'succeeded' group by state
    union all
    select 'attempt ' || outcome, count(*)::int4 from attempts where outcome <> 'succeeded' group by outcome
    order by what`,
  columns: { what: 'text?', times: 'int4?' },
});
