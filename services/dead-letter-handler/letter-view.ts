/** Letters as the API shows them in lists. */
import type { RowOf } from '../../shared/postgres/statement.ts';
import type { readSummaries } from './finder.sql.ts';

/** An error as the API shows it. */
export interface ShownError {
  readonly type: string | null;
  readonly code: string | null;
  readonly message: string | null;
  readonly stack?: string | null;
}

/** A letter in a list. */
export interface LetterSummary {
  readonly id: string;
  readonly kind: string;
  readonly state: string;
  readonly reason: string;
  readonly taskId: string | null;
  readonly type: string | null;
  readonly queue: string | null;
  readonly attempt: number | null;
  readonly diedAt: string;
  readonly recordedAt: string | null;
  readonly groupId: string | null;
  readonly tags: readonly string[];
  readonly error: ShownError | null;
  readonly closedAt: string | null;
  readonly closedBy: string | null;
  readonly closeReason: string | null;
}

/** A row as a summary. */
export function summaryOf(row: RowOf<typeof readSummaries.columns>): LetterSummary {
  return {
    id: row.id,
    kind: row.kind,
    state: row.state,
    reason: row.reason,
    taskId: row.task_id,
    type: row.type,
    queue: row.queue,
    attempt: row.attempt,
    diedAt: row.died_at.toISOString(),
    recordedAt: row.recorded_at?.toISOString() ?? null,
    groupId: row.group_id,
    tags: row.tags ?? [],
    error: errorOf(row),
    closedAt: row.closed_at?.toISOString() ?? null,
    closedBy: row.closed_by,
    closeReason: row.close_reason,
  };
}

interface ErrorColumns {
  readonly error_type: string | null;
  readonly error_code: string | null;
  readonly error_message: string | null;
  readonly error_stack?: string | null;
}

/** The error of a letter or an attempt; null where it has none. */
export function errorOf(row: ErrorColumns): ShownError | null {
  const { error_type: type, error_code: code, error_message: message, error_stack: stack } = row;
  if (type === null && code === null && message === null) return null;
  return { type, code, message, ...(stack === undefined ? {} : { stack }) };
}
