/** What the benchmark of dead letters writes and asks. */
import { sql, statement } from '../../../shared/postgres/statement.ts';

/** Dead tasks with their open letters, as settles leave them: ids, of ten types with a hundred different errors. */
export const makeDeadTasks = statement<[count: number, firstNumber: number]>()({
  name: 'bench_make_dead_tasks',
  text: sql`
    with made as (
      insert into tasks (id, state, attempt, failures, max_attempts, priority, type, queue, input, invited_at, finished_at,
                         tags)
      select uuid_v7(), 'dead', 1, 1, 1, 4, 'bench.type' || n % 10, 'default',
             convert_to(json_build_object('user', json_build_object('id', n), 'text', repeat('x', 100))::text, 'UTF8'), now(),
             now(), case when n % 100 = 0 then '{vip}'::text[] end
        from generate_series($2::int4 + 1, $2::int4 + $1::int4) n
      returning id, type, queue
    ), letters as (
      insert into dead_letters (id, kind, task_id, reason, type, queue, attempt, error_type, error_code, error_message, error_stack)
      select uuid_v7(), 'task', id, 'attempts_exhausted', type, queue, 1, 'MailError', 'ECONNREFUSED',
             'connect ECONNREFUSED 10.0.0.' || n % 250 || ' ' || repeat('y', (n % 10)::int4) || ' while saving order ' || n,
             'MailError: connect ECONNREFUSED' || chr(10) || '    at send (/app/tasks/mail' || n % 10 || '.js:10:5)'
        from (select id, type, queue, row_number() over () as n from made) m
    ), counted as (
      insert into ledger_entries as l (hour, type, entry, backend, tasks)
      select task_hour(id), type, e.entry, pg_backend_pid(), count(*)
        from made cross join (values ('accepted'), ('dead')) as e (entry) group by 1, 2, 3
      on conflict (hour, type, entry, backend) do update set tasks = l.tasks + excluded.tasks
    )
    select id, type from made`,
  columns: { id: 'uuid', type: 'text' },
});

/** Letters, those that nobody has taken note of, and those that are in no group. */
export const countUngrouped = statement<[]>()({
  name: 'bench_count_ungrouped',
  text: sql`
    select count(*) filter (where group_id is null)::int4 as ungrouped,
           count(*) filter (where recorded_at is null)::int4 as unrecorded, count(*)::int4 as letters
      from dead_letters`,
  columns: { ungrouped: 'int4', unrecorded: 'int4', letters: 'int4' },
});

/** Seconds since the first letter was recorded. */
export const recordingSpan = statement<[]>()({
  name: 'bench_recording_span',
  text: sql`select extract(epoch from clock_timestamp() - min(recorded_at))::float8 as seconds from dead_letters`,
  columns: { seconds: 'float8?' },
});

/** Takes note of every letter, as if its evidence had come. */
export const markRecorded = statement<[]>()({
  name: 'bench_mark_recorded',
  text: sql`update dead_letters set recorded_at = clock_timestamp() where recorded_at is null`,
  columns: {},
});

/** Tasks that can be claimed, and invitations that RabbitMQ has not confirmed. */
export const countOutbox = statement<[]>()({
  name: 'bench_count_outbox',
  text: sql`
    select (select count(*) from tasks where state = 'pending')::int4 as pending,
           (select coalesce(sum(cardinality(task_ids)), 0) from outbox)::int4 as invitations`,
  columns: { pending: 'int4?', invitations: 'int4?' },
});

/** Makes the groups of letters that are there, as the grouper would have. */
export const makeGroups = statement<[]>()({
  name: 'bench_make_groups',
  text: sql`
    insert into failure_groups (id, kind, type, error_type, error_message, letters, open_letters, first_at, last_at)
    select group_id, 'task', min(type), min(error_type), 'no space for order <n>', count(*),
           count(*) filter (where state = 'open'), min(died_at), max(died_at)
      from dead_letters where group_id is not null group by group_id
    returning id`,
  columns: { id: 'uuid' },
});
