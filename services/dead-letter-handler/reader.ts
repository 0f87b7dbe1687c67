/** Reads letters for the API: pages of summaries, and whole letters with the original message as it was. */
import { isUtf8 } from 'node:buffer';
import { encodeParameter, run } from '../../shared/postgres/statement.ts';
import type { Queryable, RowOf } from '../../shared/postgres/statement.ts';
import { renderWithRaw } from '../../shared/tasks/json.ts';
import {
  listLetters,
  readAttempts,
  readLetter,
  readLetterAudit,
  readLetterTask,
  readLettersOfTask,
} from './reader.sql.ts';

/** Which letters a list holds; what is absent lets all pass. */
export interface LetterFilter {
  readonly states?: readonly string[] | undefined;
  readonly kinds?: readonly string[] | undefined;
  readonly reason?: string | undefined;
  readonly type?: string | undefined;
  readonly queue?: string | undefined;
  readonly taskId?: string | undefined;
  /** From this instant on. */
  readonly diedAfter?: Date | undefined;
  /** Before this instant, not at it. */
  readonly diedBefore?: Date | undefined;
  /** Only letters with a smaller id: the page after that one. */
  readonly before?: string | undefined;
  readonly limit: number;
}

type Row = RowOf<typeof listLetters.columns>;
type WholeRow = RowOf<typeof readLetter.columns>;

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
  readonly error: ShownError | null;
  readonly closedAt: string | null;
  readonly closedBy: string | null;
  readonly closeReason: string | null;
}

const MOST_ATTEMPTS = 500;
const MOST_LETTERS = 200;
const MOST_AUDIT_LINES = 100;
/** Bytes of a body that is also shown as text. */
const TEXT_BYTES = 1_048_576;

/** The letters that pass the filter, newest first. */
export async function findLetters(db: Queryable, filter: LetterFilter): Promise<readonly LetterSummary[]> {
  const { states, reason, type, queue, kinds, taskId, diedAfter, diedBefore, before, limit } = filter;
  const values = [states, reason, type, queue, kinds, taskId, diedAfter, diedBefore, before, limit];
  const { rows } = await db.query({ text: listLetters.text, values: values.map((value) => encodeParameter(value)) });
  return (rows as Row[]).map((row) => summaryOf(row));
}

/** One letter as JSON text, with the input of its task spliced in byte for byte; `undefined` where there is none. */
export async function renderLetter(db: Queryable, id: string): Promise<string | undefined> {
  const [row] = await run(db, readLetter, id);
  if (row === undefined) return undefined;
  const common = { ...summaryOf(row), error: errorOf(row), audit: await findAudit(db, id) };
  if (row.task_id === null) {
    return JSON.stringify({ ...common, ...messageOf(row), xDeath: deathOf(row), attempts: [], letters: [] });
  }
  const [task] = await run(db, readLetterTask, row.task_id);
  const members = {
    ...common,
    exchange: row.origin_exchange,
    routingKey: row.origin_routing_key,
    properties: row.origin_properties,
    headers: row.origin_headers,
    evidence:
      row.exchange === null
        ? null
        : { exchange: row.exchange, routingKey: row.routing_key, properties: row.properties, headers: row.headers },
    xDeath: deathOf(row),
    attempts: await findAttempts(db, row.task_id),
    letters: await findLettersOfTask(db, row.task_id),
  };
  if (task === undefined) return JSON.stringify({ ...members, task: null });
  const { input, ...others } = task;
  return renderWithRaw({ ...members, task: taskOf(others) }, { input });
}

function summaryOf(row: Row): LetterSummary {
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

function errorOf(row: ErrorColumns): ShownError | null {
  const { error_type: type, error_code: code, error_message: message, error_stack: stack } = row;
  if (type === null && code === null && message === null) return null;
  return { type, code, message, ...(stack === undefined ? {} : { stack }) };
}

/** A message that never was a task: its bytes in base64, and as text where they are one. */
function messageOf(row: WholeRow): Record<string, unknown> {
  const body = row.body ?? Buffer.alloc(0);
  return {
    exchange: row.exchange,
    routingKey: row.routing_key,
    properties: row.properties,
    headers: row.headers,
    bodyBytes: body.length,
    body: body.toString('base64'),
    text: body.length <= TEXT_BYTES && isUtf8(body) ? body.toString('utf8') : null,
    replayedTo:
      row.replay_exchange === null ? null : { exchange: row.replay_exchange, routingKey: row.replay_routing_key },
  };
}

/** Whoever can publish can write this header, so that nobody may take it for the truth. */
function deathOf(row: WholeRow): { readonly isVerified: false; readonly value: unknown } | null {
  return row.x_death === null ? null : { isVerified: false, value: row.x_death };
}

function taskOf(task: Omit<RowOf<typeof readLetterTask.columns>, 'input'>): Record<string, unknown> {
  return {
    id: task.id,
    state: task.state,
    type: task.type,
    queue: task.queue,
    priority: task.priority,
    generation: task.generation,
    attempt: task.attempt,
    failures: task.failures,
    lostAttempts: task.lost_attempts,
    maxAttempts: task.max_attempts,
    acceptedAt: task.accepted_at.toISOString(),
    deadline: task.deadline?.toISOString() ?? null,
    businessKey: task.business_key,
    externalId: task.external_id,
    publisher: task.publisher,
    correlationId: task.correlation_id,
    tags: task.tags ?? [],
  };
}

async function findAttempts(db: Queryable, taskId: string): Promise<readonly Record<string, unknown>[]> {
  const rows = await run(db, readAttempts, taskId, MOST_ATTEMPTS);
  return rows.map((row) => ({
    attempt: row.attempt,
    workerId: row.worker,
    startedAt: row.started_at.toISOString(),
    finishedAt: row.finished_at.toISOString(),
    outcome: row.outcome,
    error: errorOf(row),
    codeVersion: row.code_version,
  }));
}

async function findLettersOfTask(db: Queryable, taskId: string): Promise<readonly Record<string, unknown>[]> {
  const rows = await run(db, readLettersOfTask, taskId, MOST_LETTERS);
  return rows.map((row) => ({
    id: row.id,
    state: row.state,
    reason: row.reason,
    attempt: row.attempt,
    diedAt: row.died_at.toISOString(),
    error: errorOf(row),
    closedAt: row.closed_at?.toISOString() ?? null,
    closedBy: row.closed_by,
    closeReason: row.close_reason,
  }));
}

async function findAudit(db: Queryable, letterId: string): Promise<readonly Record<string, unknown>[]> {
  const rows = await run(db, readLetterAudit, letterId, MOST_AUDIT_LINES);
  return rows.map(({ at, actor, role, action, detail }) => ({ at: at.toISOString(), actor, role, action, detail }));
}
