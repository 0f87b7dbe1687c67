/** What the benchmark of the API writes and asks. */
import { sql, statement } from '../../../shared/postgres/statement.ts';

/**
 * Adds tasks number $1 up to, not including, $2, of $3 that were accepted evenly over the thirty days before today, with what stands beside
 * them: most have succeeded, some of each other state, skewed types, common and rare tags, business keys of nine tasks each. What
 * waits is held back or far from due, and what runs has a lease ahead of time, so that the services have nothing to do with it.
 */
export const addTasks = statement<[from: number, to: number, of: number, worker: string]>()({
  name: 'bench_add_tasks',
  text: sql`
    with numbered as (
      select n, date_trunc('day', now(), 'UTC') - ($3::int4 - n) * (interval '30 days' / $3::int4) as at,
             case when n % 200 = 0 then 'dead' when n % 100 = 3 then 'cancelled' when n % 500 = 7 then 'expired'
                  when n % 1000 = 11 then 'scheduled' when n % 5000 = 13 then 'retrying' when n % 50000 = 17 then 'running'
                  when n > $3::int4 * 0.998 and n % 4 = 1 then 'pending' else 'succeeded' end::task_state as state
        from generate_series($1::int4, $2::int4 - 1) n
    ), made as (
      insert into tasks (id, state, accepted_at, invited_at, started_at, finished_at, run_at, attempt, failures, max_attempts,
                         priority, type, queue, business_key, external_id, tags, claim_id, worker, input, result)
      select (lpad(to_hex(floor(extract(epoch from at) * 1000)::bigint), 12, '0') || '7' || lpad(to_hex(n % 4096), 3, '0') ||
              '8' || lpad(to_hex(n), 15, '0'))::uuid,
             state, at, case when state in ('pending', 'scheduled') then null else at end,
             case when state in ('succeeded', 'dead', 'running', 'retrying') then at end,
             case when state in ('succeeded', 'dead', 'cancelled', 'expired') then at + interval '1 s' end,
             case when state in ('scheduled', 'retrying') then now() + interval '30 days' end,
             case when state in ('pending', 'scheduled', 'cancelled', 'expired') then 0 else 1 end,
             case when state in ('dead', 'retrying') then 1 else 0 end, 3, n % 10,
             case when n % 100000 = 21 then 'bench.rare' when n % 10 < 5 then 'bench.0' when n % 10 < 8 then 'bench.1'
                  else 'bench.' || 2 + n / 10 % 38 end,
             case when n % 5 = 2 then 'reports' else 'default' end,
             case when n % 10 < 3 then 'order-' || n / 30 end, case when n % 10 = 5 then 'message-' || n end,
             case when n % 100000 = 31 then array['common', 'rare'] when n % 100 = 3 then array['common', 'some']
                  when n % 2 = 1 then array['common'] end,
             case when state = 'running' then gen_random_uuid() end, case when state = 'running' then $4::uuid end,
             convert_to(rpad('{"text":"', 198, 'x') || '"}', 'UTF8'), case when state = 'succeeded' then 'null'::bytea end
        from numbered
      returning id, state, type, queue, run_at, claim_id, finished_at
    ), waiting as (
      insert into due (task_id, at) select id, run_at from made where state in ('scheduled', 'retrying')
    ), running as (
      insert into claims (id, worker, claimed_at, task_ids) select claim_id, $4::uuid, now(), array[id] from made where state = 'running'
    ), letters as (
      insert into dead_letters (id, kind, task_id, reason, type, queue, attempt, died_at, recorded_at)
      select gen_random_uuid(), 'task', id, 'attempts_exhausted', type, queue, 1, finished_at, finished_at from made where state = 'dead'
    ), counted as (
      insert into ledger_entries as l (hour, type, entry, backend, tasks)
      select task_hour(id), type, e.entry, 0, count(*)
        from made cross join lateral (
          select 'accepted' union all
          select state::text where state in ('succeeded', 'dead', 'cancelled', 'expired')) as e (entry)
       group by 1, 2, 3
      on conflict (hour, type, entry, backend) do update set tasks = l.tasks + excluded.tasks
    )
    select count(*)::int4 as added from made`,
  columns: { added: 'int4' },
});

/** The worker of what runs, alive for a day. */
export const addLease = statement<[worker: string]>()({
  name: 'bench_add_lease',
  text: sql`
    insert into leases (worker, renewed_at, host, pid, code_version, queues, task_types, slots)
    values ($1::uuid, clock_timestamp() + interval '1 day', 'bench', 1, '1', '{}', '{}', 0)`,
  columns: {},
});

/** Ids of tasks from all over the table. */
export const sampleIds = statement<[percent: number, limit: number]>()({
  name: 'bench_sample_ids',
  text: sql`select id from tasks tablesample bernoulli ($1::float8) order by random() limit $2::int4`,
  columns: { id: 'uuid' },
});
