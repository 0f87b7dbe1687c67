/** What attempts logged, as it is kept with them. */
import { WarrenError } from '../errors/warren-error.ts';
import { run } from '../postgres/statement.ts';
import type { Queryable } from '../postgres/statement.ts';
import { readAttemptLogs } from './attempt-logs.sql.ts';

/** Why there are no lines. */
export const NO_LINES = {
  running: 'The attempt still runs; its lines are written when it ends.',
  lost: 'The worker of the attempt died or was cut off, and its lines with it.',
  succeeded: 'The attempt succeeded, and its task type keeps lines of others only (keepLogs).',
  none: 'The handler logged nothing.',
} as const;

/** The lines of one attempt. */
export interface AttemptLog {
  readonly attempt: number;
  /** How the attempt ended; `running` while it has not. */
  readonly outcome: string;
  /** JSON array of the lines, oldest first. */
  readonly json: string;
  /** Lines left out between the first and the last. */
  readonly dropped: number;
  /** Why there are none; `undefined` where there are. */
  readonly why: keyof typeof NO_LINES | undefined;
}

/** The last lines of an attempt, as they are shown with something else. */
export interface LogTail {
  readonly attempt: number;
  /** The last lines, oldest first. */
  readonly lines: readonly unknown[];
  /** Lines before those: kept, and left out. */
  readonly before: number;
  /** Where the rest is, in the Task API. */
  readonly path: string;
}

/** The last `most` lines of an attempt; `undefined` where none are kept. Throws as `Queryable.query`. */
export async function findLogTail(
  db: Queryable,
  { taskId, attempt, most }: { readonly taskId: string; readonly attempt: number; readonly most: number },
): Promise<LogTail | undefined> {
  const [row] = await run(db, readAttemptLogs, taskId, attempt);
  if (row === undefined || row.lines === null) return undefined;
  const lines = JSON.parse(row.lines) as readonly unknown[];
  return {
    attempt,
    lines: lines.slice(-most),
    before: Math.max(0, lines.length - most) + (row.dropped ?? 0),
    path: `/v1/tasks/${taskId}/attempts/${attempt}/logs`,
  };
}

/** The lines of an attempt. Throws `task-not-found`, `attempt-not-found`, and as `Queryable.query`. */
export async function findAttemptLog(db: Queryable, taskId: string, attempt: number): Promise<AttemptLog> {
  const [row] = await run(db, readAttemptLogs, taskId, attempt);
  if (row === undefined) throw new WarrenError('task-not-found', { taskId });
  if (attempt < 1 || attempt > row.last_attempt) {
    throw new WarrenError('attempt-not-found', { taskId, attempt, lastAttempt: row.last_attempt });
  }
  const isCurrent = attempt === row.last_attempt && row.state === 'running';
  const outcome = row.outcome ?? (isCurrent ? 'running' : 'succeeded');
  const { lines, dropped } = row;
  if (lines !== null) return { attempt, outcome, json: lines, dropped: dropped ?? 0, why: undefined };
  const why = outcome === 'running' || outcome === 'lost' || outcome === 'succeeded' ? outcome : 'none';
  return { attempt, outcome, json: '[]', dropped: 0, why };
}
