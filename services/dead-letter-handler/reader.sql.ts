/** The statements that show a whole letter. */
import { sql, statement } from '../../shared/postgres/statement.ts';
import { summaryColumns, SUMMARY_COLUMNS } from './summary.sql.ts';

/** A whole letter, with what its publisher sent beside the input where it is a task. */
export const readLetter = statement<[id: string]>()({
  name: 'read_letter',
  text: sql`
    select ${summaryColumns}, l.error_stack, l.exchange, l.routing_key, l.body, l.properties, l.headers, l.x_death,
           l.replay_at, l.replay_exchange, l.replay_routing_key, o.exchange as origin_exchange,
           o.routing_key as origin_routing_key, o.properties as origin_properties, o.headers as origin_headers
      from dead_letters l
      left join origins o on o.task_id = l.task_id
      left join letter_facts f on f.letter_id = l.id
     where l.id = $1::uuid`,
  columns: {
    ...SUMMARY_COLUMNS,
    error_stack: 'text?',
    exchange: 'text?',
    routing_key: 'text?',
    body: 'bytea?',
    properties: 'jsonb?',
    headers: 'jsonb?',
    x_death: 'jsonb?',
    replay_at: 'timestamptz?',
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
    select t.id, t.state::text as state, t.type, t.queue, t.priority, t.generation, t.attempt, t.failures, t.lost_attempts, t.max_attempts,
           t.accepted_at, t.deadline, t.business_key, t.external_id, t.publisher, t.correlation_id, t.tags, t.input,
           f.id as input_file, f.bytes as input_file_bytes, f.sha256 as input_file_sha256
      from tasks t
      left join files f on f.id = t.input_file and f.doomed_at is null
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
    input_file: 'uuid?',
    input_file_bytes: 'int8?',
    input_file_sha256: 'bytea?',
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
    select at, actor, role, address, action, detail from audit where target = $1::text order by id limit $2::int4`,
  columns: { at: 'timestamptz', actor: 'text', role: 'text', address: 'text?', action: 'text', detail: 'jsonb' },
});
