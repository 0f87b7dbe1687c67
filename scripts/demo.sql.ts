/** What the demo's summary asks. */
import { sql, statement } from '../shared/postgres/statement.ts';

/** Tasks by state. */
export const countStates = statement<[]>()({
  name: 'demo_count_states',
  text: sql`select state::text as state, count(*)::int4 as tasks from tasks group by state`,
  columns: { state: 'text', tasks: 'int4' },
});

/** Per type: what became of its tasks, and how long they waited and ran. Deliberate delays are not counted as waiting. */
export const summarizeTypes = statement<[]>()({
  name: 'demo_summarize_types',
  text: sql`
    select type, count(*)::int4 as accepted,
           (count(*) filter (where state = 'succeeded'))::int4 as succeeded,
           (count(*) filter (where failures > 0 and attempt > 1))::int4 as retried,
           (count(*) filter (where state = 'dead'))::int4 as dead,
           (count(*) filter (where state in ('cancelled', 'expired')))::int4 as ended_otherwise,
           (percentile_cont(0.5) within group (order by waited))::float8 as wait_p50,
           (percentile_cont(0.95) within group (order by waited))::float8 as wait_p95,
           (percentile_cont(0.5) within group (order by ran))::float8 as run_p50,
           (percentile_cont(0.95) within group (order by ran))::float8 as run_p95
      from (
        select *, extract(epoch from started_at - invited_at) * 1000 as waited,
               extract(epoch from finished_at - started_at) * 1000 as ran
          from tasks
      ) t
     group by type
     order by type`,
  columns: {
    type: 'text',
    accepted: 'int4',
    succeeded: 'int4',
    retried: 'int4',
    dead: 'int4',
    ended_otherwise: 'int4',
    wait_p50: 'float8?',
    wait_p95: 'float8?',
    run_p50: 'float8?',
    run_p95: 'float8?',
  },
});
