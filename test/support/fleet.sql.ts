/** What tests read of a fleet's database, and the instants that they move. */
import { sql, statement } from '../../shared/postgres/statement.ts';

/** One task as the row says. */
export const readTask = statement<[id: string]>()({
  name: 'test_read_task',
  text: sql`
    select id, state::text as state, attempt, failures, lost_attempts, lost_alone, worker, run_at, started_at, finished_at, result
      from tasks where id = $1::uuid`,
  columns: {
    id: 'uuid',
    state: 'text',
    attempt: 'int4',
    failures: 'int4',
    lost_attempts: 'int2',
    lost_alone: 'int2',
    worker: 'uuid?',
    run_at: 'timestamptz?',
    started_at: 'timestamptz?',
    finished_at: 'timestamptz?',
    result: 'bytea?',
  },
});

/** All tasks. */
export const listTasks = statement<[]>()({
  name: 'test_list_tasks',
  text: sql`select id, state::text as state, attempt, run_at, accepted_at from tasks order by id`,
  columns: { id: 'uuid', state: 'text', attempt: 'int4', run_at: 'timestamptz?', accepted_at: 'timestamptz' },
});

/** The history, of all tasks or of one. */
export const listAttempts = statement<[taskId: string | null]>()({
  name: 'test_list_attempts',
  text: sql`
    select task_id, attempt, worker, outcome, error_type, error_message, started_at, finished_at from attempts
     where $1::uuid is null or task_id = $1::uuid
     order by task_id, attempt`,
  columns: {
    task_id: 'uuid',
    attempt: 'int4',
    worker: 'uuid',
    outcome: 'text',
    error_type: 'text?',
    error_message: 'text?',
    started_at: 'timestamptz',
    finished_at: 'timestamptz',
  },
});

/** All dead letters. */
export const listLetters = statement<[]>()({
  name: 'test_list_letters',
  text: sql`
    select id, kind, task_id, state, reason, attempt, error_type, error_message, recorded_at, evidence_key
      from dead_letters order by id`,
  columns: {
    id: 'uuid',
    kind: 'text',
    task_id: 'uuid?',
    state: 'text',
    reason: 'text',
    attempt: 'int4?',
    error_type: 'text?',
    error_message: 'text?',
    recorded_at: 'timestamptz?',
    evidence_key: 'bytea?',
  },
});

/** The books of the whole database. */
export const readBooks = statement<[]>()({
  name: 'test_read_books',
  text: sql`
    select count(*) as accepted,
           count(*) filter (where state = 'succeeded') as succeeded,
           count(*) filter (where state = 'dead') as dead,
           count(*) filter (where state in ('cancelled', 'expired')) as dropped,
           count(*) filter (where state = 'running') as running,
           count(*) filter (where state in ('pending', 'scheduled', 'retrying', 'blocked')) as waiting,
           (select count(*) from dead_letters where kind = 'task' and state = 'open') as letters,
           (select count(*) from claims) as claims,
           (select count(*) from outbox) as outbox
      from tasks`,
  columns: {
    accepted: 'int8',
    succeeded: 'int8',
    dead: 'int8',
    dropped: 'int8',
    running: 'int8',
    waiting: 'int8',
    letters: 'int8',
    claims: 'int8',
    outbox: 'int8',
  },
});

/** Lines of the ledger that the tasks' rows contradict. */
export const compareBooks = statement<[]>()({
  name: 'test_compare_books',
  text: sql`
    with counted as (
      select hour, type, case entry when 'revived' then 'dead' else entry end as entry,
             sum(case entry when 'revived' then -tasks else tasks end) as tasks
        from ledger_entries group by 1, 2, 3
    ), found as (
      select task_hour(id) as hour, type, 'accepted' as entry, count(*) as tasks from tasks group by 1, 2
      union all
      select task_hour(id), type, state::text, count(*) from tasks where finished_at is not null group by 1, 2, 3
    )
    select hour, type, entry, c.tasks as counted, f.tasks as found
      from counted c
      full join found f using (hour, type, entry)
     where coalesce(c.tasks, 0) <> coalesce(f.tasks, 0)`,
  columns: { hour: 'int4?', type: 'text?', entry: 'text?', counted: 'numeric?', found: 'int8?' },
});

/** The queues that a fleet knows. */
export const listQueues = statement<[]>()({
  name: 'test_list_queues',
  text: sql`select name from queues order by name`,
  columns: { name: 'text' },
});

/** Makes what waits for an instant due, and what lies in the outbox free for the sweeper. */
export const makeDue = statement<[]>()({
  name: 'test_make_due',
  text: sql`
    with moved as (
      update tasks set run_at = clock_timestamp() where state in ('scheduled', 'retrying') returning id
    ), due_now as (
      update due set at = clock_timestamp() where task_id in (select id from moved) returning task_id
    ), freed as (
      update outbox set retry_at = clock_timestamp() returning id
    )
    select (select count(*) from due_now) as tasks, (select count(*) from freed) as invitations`,
  columns: { tasks: 'int8', invitations: 'int8' },
});
