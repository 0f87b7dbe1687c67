/** The statements that show tasks. None walks the table but along an index, and each is bounded. */
import { sql, statement } from '../../shared/postgres/statement.ts';

/** One task with what stands beside it. Indexes: primary keys, dead_letters_open_task. */
export const readTask = statement<[id: string]>()({
  name: 'read_task',
  text: sql`
    select t.id, t.state::text as state, t.type, t.queue, t.priority, t.generation, t.attempt, t.failures,
           t.max_attempts, t.lost_attempts, t.accepted_at, t.invited_at, t.run_at, t.deadline, t.started_at,
           t.finished_at, t.worker, t.business_key, t.external_id, t.publisher, t.correlation_id, t.tags,
           t.input, t.result,
           p.fraction::float8 as progress_fraction, p.step as progress_step, p.updated_at as progress_at,
           c.requested_at as cancel_requested_at, d.id as dead_letter_id
      from tasks t
      left join progress p on p.task_id = t.id and p.attempt = t.attempt and t.state = 'running'
      left join cancel_requests c on c.task_id = t.id and t.state = 'running'
      left join dead_letters d on d.task_id = t.id and d.state in ('open', 'replaying')
     where t.id = $1::uuid`,
  columns: {
    id: 'uuid',
    state: 'text',
    type: 'text',
    queue: 'text',
    priority: 'int2',
    generation: 'int4',
    attempt: 'int4',
    failures: 'int4',
    max_attempts: 'int4',
    lost_attempts: 'int2',
    accepted_at: 'timestamptz',
    invited_at: 'timestamptz?',
    run_at: 'timestamptz?',
    deadline: 'timestamptz?',
    started_at: 'timestamptz?',
    finished_at: 'timestamptz?',
    worker: 'uuid?',
    business_key: 'text?',
    external_id: 'text?',
    publisher: 'text?',
    correlation_id: 'text?',
    tags: 'text[]?',
    input: 'bytea',
    result: 'bytea?',
    progress_fraction: 'float8?',
    progress_step: 'text?',
    progress_at: 'timestamptz?',
    cancel_requested_at: 'timestamptz?',
    dead_letter_id: 'uuid?',
  },
});

/** The last `limit` attempts of a task that left a row, newest first. Index: attempts primary key. */
export const readAttempts = statement<[id: string, limit: number]>()({
  name: 'read_attempts',
  text: sql`
    select attempt, worker, started_at, finished_at, outcome, error_type, error_code, error_message, error_stack,
           code_version
      from attempts
     where task_id = $1::uuid
     order by attempt desc
     limit $2::int4`,
  columns: {
    attempt: 'int4',
    worker: 'uuid',
    started_at: 'timestamptz',
    finished_at: 'timestamptz',
    outcome: 'text',
    error_type: 'text?',
    error_code: 'text?',
    error_message: 'text?',
    error_stack: 'text?',
    code_version: 'text?',
  },
});

/**
 * Of `ids`, the tasks that fit, newest first, without their bodies. A filter that is null fits everything. One look-up in
 * the primary key per id.
 */
export const filterTasks = statement<
  [
    ids: readonly string[],
    states: readonly string[] | null,
    type: string | null,
    queue: string | null,
    tag: string | null,
    businessKey: string | null,
    externalId: string | null,
    acceptedAfter: Date | null,
    acceptedBefore: Date | null,
  ]
>()({
  name: 'filter_tasks',
  text: sql`
    select t.id, t.state::text as state, t.type, t.queue, t.priority, t.generation, t.attempt, t.failures,
           t.max_attempts, t.lost_attempts, t.accepted_at, t.invited_at, t.run_at, t.deadline, t.started_at,
           t.finished_at, t.worker, t.business_key, t.external_id, t.publisher, t.correlation_id, t.tags
      from unnest($1::uuid[]) as wanted (id)
      join tasks t on t.id = wanted.id
     where ($2::text[] is null or t.state::text = any($2::text[]))
       and ($3::text is null or t.type = $3::text)
       and ($4::text is null or t.queue = $4::text)
       and ($5::text is null or t.tags @> array[$5::text])
       and ($6::text is null or t.business_key = $6::text)
       and ($7::text is null or t.external_id = $7::text)
       and ($8::timestamptz is null or t.accepted_at >= $8::timestamptz)
       and ($9::timestamptz is null or t.accepted_at < $9::timestamptz)
     order by t.id desc`,
  columns: {
    id: 'uuid',
    state: 'text',
    type: 'text',
    queue: 'text',
    priority: 'int2',
    generation: 'int4',
    attempt: 'int4',
    failures: 'int4',
    max_attempts: 'int4',
    lost_attempts: 'int2',
    accepted_at: 'timestamptz',
    invited_at: 'timestamptz?',
    run_at: 'timestamptz?',
    deadline: 'timestamptz?',
    started_at: 'timestamptz?',
    finished_at: 'timestamptz?',
    worker: 'uuid?',
    business_key: 'text?',
    external_id: 'text?',
    publisher: 'text?',
    correlation_id: 'text?',
    tags: 'text[]?',
  },
});

const ids = { id: 'uuid' } as const;

/** The newest ids below `below` and from `from` on. Walks the primary key. */
export const pageIds = statement<[below: string, from: string, limit: number]>()({
  name: 'page_ids',
  text: sql`
    select id from tasks where id < $1::uuid and id >= $2::uuid order by id desc limit $3::int4`,
  columns: ids,
});

/** The same, of one business key. Walks tasks_business_key. */
export const pageIdsByBusinessKey = statement<[below: string, from: string, limit: number, key: string]>()({
  name: 'page_ids_by_business_key',
  text: sql`
    select id from tasks
     where business_key = $4::text and id < $1::uuid and id >= $2::uuid
     order by id desc limit $3::int4`,
  columns: ids,
});

/** The same, of one external id. Walks tasks_external_id. */
export const pageIdsByExternalId = statement<[below: string, from: string, limit: number, externalId: string]>()({
  name: 'page_ids_by_external_id',
  text: sql`
    select id from tasks
     where external_id = $4::text and id < $1::uuid and id >= $2::uuid
     order by id desc limit $3::int4`,
  columns: ids,
});

/**
 * Any `limit` ids with a tag, in no order: where there are fewer, these are all. The offset keeps the planner from walking
 * the primary key instead, which for a rare tag would be the whole table. Index: tasks_tags.
 */
export const someIdsByTag = statement<[below: string, from: string, limit: number, tag: string]>()({
  name: 'some_ids_by_tag',
  text: sql`
    select id
      from (select id from tasks where tags @> array[$4::text] offset 0) tagged
     where id < $1::uuid and id >= $2::uuid
     limit $3::int4`,
  columns: ids,
});

/** The newest ids that a claim names: all that run, and a few that have just ended. A row per claim, so few. */
export const pageIdsOfClaims = statement<[below: string, from: string, limit: number]>()({
  name: 'page_ids_of_claims',
  text: sql`
    select u.id
      from claims c
      cross join unnest(c.task_ids) as u (id)
     where u.id < $1::uuid and u.id >= $2::uuid
     order by u.id desc limit $3::int4`,
  columns: ids,
});

/** The newest ids that wait for an instant: all that are scheduled or retrying. Walks the primary key of due. */
export const pageIdsOfDue = statement<[below: string, from: string, limit: number]>()({
  name: 'page_ids_of_due',
  text: sql`
    select task_id as id from due
     where task_id < $1::uuid and task_id >= $2::uuid
     order by task_id desc limit $3::int4`,
  columns: ids,
});

/** The newest ids that have a dead letter: all that are dead, and those replayed since. Walks dead_letters_task. */
export const pageIdsOfDeadLetters = statement<[below: string, from: string, limit: number]>()({
  name: 'page_ids_of_dead_letters',
  text: sql`
    select distinct task_id as id from dead_letters
     where task_id < $1::uuid and task_id >= $2::uuid
     order by task_id desc limit $3::int4`,
  columns: { id: 'uuid?' },
});
