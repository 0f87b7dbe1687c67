/** The statements that show letters. */
import { sql, statement } from '../../shared/postgres/statement.ts';

/**
 * A page of letters, newest first; a filter that is null lets all pass. Sent unprepared, so that each set of filters gets
 * its own plan: for open letters dead_letters_open, for a task dead_letters_task, else the primary key downwards.
 */
export const listLetters = statement<
  [
    states: readonly string[] | null,
    reason: string | null,
    type: string | null,
    queue: string | null,
    kinds: readonly string[] | null,
    taskId: string | null,
    diedAfter: Date | null,
    diedBefore: Date | null,
    before: string | null,
    limit: number,
  ]
>()({
  name: 'list_letters',
  text: sql`
    select id, kind, state, reason, task_id, type, queue, attempt, died_at, recorded_at, error_type, error_code,
           error_message, closed_at, closed_by, close_reason
      from dead_letters
     where ($1::text[] is null or state = any($1))
       and ($2::text is null or reason = $2)
       and ($3::text is null or type = $3)
       and ($4::text is null or queue = $4)
       and ($5::text[] is null or kind = any($5))
       and ($6::uuid is null or task_id = $6)
       and ($7::timestamptz is null or died_at >= $7)
       and ($8::timestamptz is null or died_at < $8)
       and ($9::uuid is null or id < $9)
     order by id desc
     limit $10::int4`,
  columns: {
    id: 'uuid',
    kind: 'text',
    state: 'text',
    reason: 'text',
    task_id: 'uuid?',
    type: 'text?',
    queue: 'text?',
    attempt: 'int4?',
    died_at: 'timestamptz',
    recorded_at: 'timestamptz?',
    error_type: 'text?',
    error_code: 'text?',
    error_message: 'text?',
    closed_at: 'timestamptz?',
    closed_by: 'text?',
    close_reason: 'text?',
  },
});

/** A whole letter, with what its publisher sent beside the input where it is a task. */
export const readLetter = statement<[id: string]>()({
  name: 'read_letter',
  text: sql`
    select l.id, l.kind, l.state, l.reason, l.task_id, l.type, l.queue, l.attempt, l.died_at, l.recorded_at, l.error_type,
           l.error_code, l.error_message, l.error_stack, l.exchange, l.routing_key, l.body, l.properties, l.headers,
           l.x_death, l.closed_at, l.closed_by, l.close_reason, l.replay_exchange, l.replay_routing_key,
           o.exchange as origin_exchange, o.routing_key as origin_routing_key, o.properties as origin_properties,
           o.headers as origin_headers
      from dead_letters l
      left join origins o on o.task_id = l.task_id
     where l.id = $1::uuid`,
  columns: {
    id: 'uuid',
    kind: 'text',
    state: 'text',
    reason: 'text',
    task_id: 'uuid?',
    type: 'text?',
    queue: 'text?',
    attempt: 'int4?',
    died_at: 'timestamptz',
    recorded_at: 'timestamptz?',
    error_type: 'text?',
    error_code: 'text?',
    error_message: 'text?',
    error_stack: 'text?',
    exchange: 'text?',
    routing_key: 'text?',
    body: 'bytea?',
    properties: 'jsonb?',
    headers: 'jsonb?',
    x_death: 'jsonb?',
    closed_at: 'timestamptz?',
    closed_by: 'text?',
    close_reason: 'text?',
    replay_exchange: 'text?',
    replay_routing_key: 'text?',
    origin_exchange: 'text?',
    origin_routing_key: 'text?',
    origin_properties: 'jsonb?',
    origin_headers: 'jsonb?',
  },
});

/** The task of a letter. */
export const readLetterTask = statement<[id: string]>()({
  name: 'read_letter_task',
  text: sql`
    select id, state::text as state, type, queue, priority, generation, attempt, failures, lost_attempts, max_attempts,
           accepted_at, deadline, business_key, external_id, publisher, correlation_id, tags, input
      from tasks
     where id = $1::uuid`,
  columns: {
    id: 'uuid',
    state: 'text',
    type: 'text',
    queue: 'text',
    priority: 'int2',
    generation: 'int4',
    attempt: 'int4',
    failures: 'int4',
    lost_attempts: 'int2',
    max_attempts: 'int4',
    accepted_at: 'timestamptz',
    deadline: 'timestamptz?',
    business_key: 'text?',
    external_id: 'text?',
    publisher: 'text?',
    correlation_id: 'text?',
    tags: 'text[]?',
    input: 'bytea',
  },
});

/** The last attempts of a task, newest first. Index: attempts primary key. */
export const readAttempts = statement<[taskId: string, limit: number]>()({
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

/** Every letter of a task, newest first: how often it died, and who made it run again. Index: dead_letters_task. */
export const readLettersOfTask = statement<[taskId: string, limit: number]>()({
  name: 'read_letters_of_task',
  text: sql`
    select id, state, reason, attempt, died_at, error_type, error_code, error_message, closed_at, closed_by, close_reason
      from dead_letters
     where task_id = $1::uuid
     order by id desc
     limit $2::int4`,
  columns: {
    id: 'uuid',
    state: 'text',
    reason: 'text',
    attempt: 'int4?',
    died_at: 'timestamptz',
    error_type: 'text?',
    error_code: 'text?',
    error_message: 'text?',
    closed_at: 'timestamptz?',
    closed_by: 'text?',
    close_reason: 'text?',
  },
});

/** What was done with a letter, oldest first. Index: audit_target. */
export const readLetterAudit = statement<[letterId: string, limit: number]>()({
  name: 'read_letter_audit',
  text: sql`
    select at, actor, role, action, detail from audit where target = $1::text order by id limit $2::int4`,
  columns: { at: 'timestamptz', actor: 'text', role: 'text', action: 'text', detail: 'jsonb' },
});
