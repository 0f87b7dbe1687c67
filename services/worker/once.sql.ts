/** The statements of side effects that a task does once. Each holds the task's row, so that only the attempt that has the claim passes. */
import { sql, statement } from '../../shared/postgres/statement.ts';

/** The task's row where the attempt still has its claim; locked, so that nobody settles or reaps it meanwhile. Parameters $1 to $3. */
const fence = sql`
      select id from tasks
       where id = $1::uuid and attempt = $2::int4 and claim_id = $3::uuid and state = 'running'
         for no key update`;

/** Begins a run of `key`, unless one was begun or finished already; answers what stood there. No row: the claim is lost. */
export const startOnce = statement<
  [taskId: string, attempt: number, claimId: string, key: string, runId: string, mostKeys: number]
>()({
  name: 'start_once',
  text: sql`
    with fence as (${fence}
    ), held as (
      select count(*) as keys from once_runs where task_id = $1::uuid
    ), started as (
      insert into once_runs (task_id, key, run_id, attempt)
      select f.id, $4::text, $5::uuid, $2::int4
        from fence f
        cross join held h
       where h.keys < $6::int4
      on conflict (task_id, key) do nothing
      returning key
    )
    select exists (select from started) as is_started, o.run_id, o.attempt, o.started_at, o.finished_at, o.result
      from fence f
      left join once_runs o on o.task_id = f.id and o.key = $4::text`,
  columns: {
    is_started: 'bool',
    run_id: 'uuid?',
    attempt: 'int4?',
    started_at: 'timestamptz?',
    finished_at: 'timestamptz?',
    result: 'bytea?',
  },
});

/** Begins a run anew in the place of one that was cut in the middle. No row: the claim is lost. */
export const takeOverOnce = statement<
  [taskId: string, attempt: number, claimId: string, key: string, from: string, runId: string]
>()({
  name: 'take_over_once',
  text: sql`
    with fence as (${fence}
    ), begun as (
      update once_runs o
         set run_id = $6::uuid, attempt = $2::int4, started_at = clock_timestamp()
        from fence f
       where o.task_id = f.id and o.key = $4::text and o.run_id = $5::uuid and o.finished_at is null
    )
    select id from fence`,
  columns: { id: 'uuid' },
});

/** Keeps the result of a run. No row: the claim is lost. */
export const finishOnce = statement<
  [taskId: string, attempt: number, claimId: string, key: string, runId: string, result: Buffer | null]
>()({
  name: 'finish_once',
  text: sql`
    with fence as (${fence}
    ), kept as (
      update once_runs o
         set finished_at = clock_timestamp(), result = $6::bytea
        from fence f
       where o.task_id = f.id and o.key = $4::text and o.run_id = $5::uuid and o.finished_at is null
    )
    select id from fence`,
  columns: { id: 'uuid' },
});

/** Forgets a run that failed without having done anything. No row: the claim is lost. */
export const dropOnce = statement<[taskId: string, attempt: number, claimId: string, key: string, runId: string]>()({
  name: 'drop_once',
  text: sql`
    with fence as (${fence}
    ), dropped as (
      delete from once_runs o
       using fence f
       where o.task_id = f.id and o.key = $4::text and o.run_id = $5::uuid and o.finished_at is null
    )
    select id from fence`,
  columns: { id: 'uuid' },
});
