/** The columns that lists and whole letters show alike. */
import { sql } from '../../shared/postgres/statement.ts';

/** Of a letter `l` and its facts `f`. */
export const summaryColumns = sql`l.id, l.kind, l.state, l.reason, l.task_id, l.type, l.queue, l.attempt, l.died_at, l.recorded_at,
           l.group_id, f.tags, l.error_type, l.error_code, l.error_message, l.closed_at, l.closed_by, l.close_reason`;

/** What they are. */
export const SUMMARY_COLUMNS = {
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
  group_id: 'uuid?',
  tags: 'text[]?',
  error_type: 'text?',
  error_code: 'text?',
  error_message: 'text?',
  closed_at: 'timestamptz?',
  closed_by: 'text?',
  close_reason: 'text?',
} as const;
