/** What the checker reads of the tables, and the log of transitions that a trigger of the run's own writes beside them. */
import { sql, statement } from '../../shared/postgres/statement.ts';

/** Makes the log of transitions. Also where the state is written without being changed: nobody may settle twice. */
export const STEPS_DDL: readonly string[] = [
  `create table chaos_steps (
     n bigint generated always as identity primary key, task_id uuid not null, before task_state not null,
     after task_state not null, attempt_before int not null, attempt_after int not null, at_once int)`,
  `create function chaos_note_step() returns trigger language plpgsql as $$
     begin
       insert into chaos_steps (task_id, before, after, attempt_before, attempt_after, at_once)
       values (new.id, old.state, new.state, old.attempt, new.attempt,
               case when new.state = 'running' and new.concurrency_key is not null then
                 (select count(*) from tasks
                   where type = new.type and concurrency_key = new.concurrency_key and state = 'running') end);
       return null;
     end $$`,
  `create trigger chaos_note_step after update of state on tasks for each row execute function chaos_note_step()`,
];

/** All tasks. */
export const listChaosTasks = statement<[]>()({
  name: 'chaos_list_tasks',
  text: sql`
    select id, state::text as state, attempt, lost_attempts, queue, generation, accepted_at, started_at, finished_at,
           business_key, external_id, flow_id
      from tasks order by id`,
  columns: {
    id: 'uuid',
    state: 'text',
    attempt: 'int4',
    lost_attempts: 'int2',
    queue: 'text',
    generation: 'int4',
    accepted_at: 'timestamptz',
    started_at: 'timestamptz?',
    finished_at: 'timestamptz?',
    business_key: 'text?',
    external_id: 'text?',
    flow_id: 'uuid?',
  },
});

/** The history. */
export const listChaosAttempts = statement<[]>()({
  name: 'chaos_list_attempts',
  text: sql`
    select task_id, attempt, worker, outcome, error_type, error_message from attempts order by task_id, attempt`,
  columns: {
    task_id: 'uuid',
    attempt: 'int4',
    worker: 'uuid',
    outcome: 'text',
    error_type: 'text?',
    error_message: 'text?',
  },
});

/** All dead letters. Broker's evidence that does not come is waited for a minute; until then a letter is in time. */
export const listChaosLetters = statement<[]>()({
  name: 'chaos_list_letters',
  text: sql`
    select id, kind, task_id, state, reason, attempt, error_message, properties->>'messageId' as message_id,
           recorded_at is not null or died_at > clock_timestamp() - interval '75 s' as is_recorded
      from dead_letters order by id`,
  columns: {
    id: 'uuid',
    kind: 'text',
    task_id: 'uuid?',
    state: 'text',
    reason: 'text',
    attempt: 'int4?',
    error_message: 'text?',
    message_id: 'text?',
    is_recorded: 'bool?',
  },
});

/** All transitions, in the order in which they happened to each task. */
export const listSteps = statement<[]>()({
  name: 'chaos_list_steps',
  text: sql`
    select task_id, before::text as before, after::text as after, attempt_before, attempt_after, at_once
      from chaos_steps order by n`,
  columns: {
    task_id: 'uuid',
    before: 'text',
    after: 'text',
    attempt_before: 'int4',
    attempt_after: 'int4',
    at_once: 'int4?',
  },
});

/** What must be gone when all is over. */
export const countLeftovers = statement<[]>()({
  name: 'chaos_count_leftovers',
  text: sql`
    select (select count(*) from tasks where finished_at is null) as tasks,
           (select count(*) from claims) as claims,
           (select count(*) from outbox) as outbox,
           (select count(*) from due) as due,
           (select count(*) from cancel_requests) as cancel_requests,
           (select count(*) from leases) as leases,
           (select count(*) from flows where finished_at is null) as flows,
           (select count(*) from flow_timers) as flow_timers,
           (select count(*) from dead_letters
             where recorded_at is null and died_at < clock_timestamp() - interval '75 s') as unrecorded_letters,
           (select count(*) from dead_letters
             where group_id is null and died_at < clock_timestamp() - interval '75 s') as ungrouped_letters,
           (select count(*)
              from failure_groups g
              full join (select group_id as id, count(*) as letters, count(*) filter (where state = 'open') as open_letters
                           from dead_letters where group_id is not null group by 1) l using (id)
             where (g.letters, g.open_letters) is distinct from (l.letters, l.open_letters)) as groups_that_differ`,
  columns: {
    tasks: 'int8',
    claims: 'int8',
    outbox: 'int8',
    due: 'int8',
    cancel_requests: 'int8',
    leases: 'int8',
    flows: 'int8',
    flow_timers: 'int8',
    unrecorded_letters: 'int8',
    ungrouped_letters: 'int8',
    groups_that_differ: 'int8',
  },
});

/** Ends every session in this database but our own. */
export const endSessions = statement<[]>()({
  name: 'chaos_end_sessions',
  text: sql`
    select pg_terminate_backend(pid) as ended
      from pg_stat_activity
     where datname = current_database() and pid <> pg_backend_pid() and application_name <> 'warren-chaos'`,
  columns: { ended: 'bool' },
});

/** How far the books are, for people. */
export const readProgress = statement<[]>()({
  name: 'chaos_read_progress',
  text: sql`
    select count(*) as accepted, count(*) filter (where finished_at is not null) as ended,
           count(*) filter (where state = 'running') as running
      from tasks`,
  columns: { accepted: 'int8', ended: 'int8', running: 'int8' },
});
