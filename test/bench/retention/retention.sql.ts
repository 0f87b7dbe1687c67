/** What the benchmark of retention asks of Postgres. */
import { sql, statement } from '../../../shared/postgres/statement.ts';

/**
 * Adds `$3` tasks that were accepted between two instants and succeeded a second later, with their entries in the ledger, an
 * input of 200 bytes each. Their ids are what a producer would have made.
 */
export const addFinished = statement<[from: Date, to: Date, count: number]>()({
  name: 'bench_add_finished',
  text: sql`
    with made as (
      insert into tasks (id, state, accepted_at, invited_at, started_at, finished_at, attempt, max_attempts, priority, type,
                         queue, claim_id, worker, input, result)
      select (lpad(to_hex(floor(extract(epoch from m.at) * 1000)::bigint), 12, '0') || '7' || substr(m.random, 1, 3) || '8' ||
              substr(m.random, 4, 15))::uuid,
             'succeeded', m.at, m.at, m.at, m.at + interval '1 s', 1, 3, 4, 'bench.noop', 'default', gen_random_uuid(),
             gen_random_uuid(), convert_to(rpad('{"text":"', 198, 'x') || '"}', 'UTF8'), 'null'
        from (
          select $1::timestamptz + ($2::timestamptz - $1::timestamptz) * (n / $3::float8) as at, md5(n::text) as random
            from generate_series(0, $3::int4 - 1) n
        ) m
      returning id, type
    ), counted as (
      insert into ledger_entries as l (hour, type, entry, backend, tasks)
      select task_hour(id), type, entry, 0, count(*)
        from made cross join unnest(array['accepted', 'succeeded']) entry group by 1, 2, 3
      on conflict (hour, type, entry, backend) do update set tasks = l.tasks + excluded.tasks
      returning hour
    )
    select (select count(*) from made)::int4 as added, (select count(*) from counted)::int4 as entries`,
  columns: { added: 'int4?', entries: 'int4?' },
});

/** Tasks from an id on that have ended, of all of them. */
export const countEndedFrom = statement<[from: string]>()({
  name: 'bench_count_ended_from',
  text: sql`select count(*)::int4 as tasks, count(finished_at)::int4 as ended from tasks where id >= $1::uuid`,
  columns: { tasks: 'int4', ended: 'int4' },
});

/** Seconds from the first start to the last end of tasks from an id on. */
export const processingSpanFrom = statement<[from: string]>()({
  name: 'bench_processing_span_from',
  text: sql`
    select count(*)::int4 as tasks, extract(epoch from max(finished_at) - min(started_at))::float8 as seconds
      from tasks where id >= $1::uuid and state = 'succeeded'`,
  columns: { tasks: 'int4', seconds: 'float8?' },
});
