/** Reads whole letters for the API, with the original message as it was. */
import { isUtf8 } from 'node:buffer';
import { run } from '../../shared/postgres/statement.ts';
import type { Queryable, RowOf } from '../../shared/postgres/statement.ts';
import { findLogTail } from '../../shared/tasks/attempt-logs.ts';
import { findAttempts } from '../../shared/tasks/attempts.ts';
import { renderWithRaw } from '../../shared/tasks/json.ts';
import { letterEtag } from './letter-etag.ts';
import { errorOf, summaryOf } from './letter-view.ts';
import { findReplaysOfLetter } from './replay-reader.ts';
import { readLetter, readLetterAudit, readLetterTask, readLettersOfTask } from './reader.sql.ts';

type WholeRow = RowOf<typeof readLetter.columns>;

const MOST_ATTEMPTS = 500;
const MOST_LETTERS = 200;
const MOST_AUDIT_LINES = 100;
const MOST_LOG_LINES = 20;
/** Bytes of a body that is also shown as text. */
const TEXT_BYTES = 1_048_576;

/** One letter as JSON text, with the input of its task spliced in byte for byte, and its ETag; `undefined` where there is none. */
export async function renderLetter(
  db: Queryable,
  id: string,
): Promise<{ readonly text: string; readonly etag: string } | undefined> {
  const [row] = await run(db, readLetter, id);
  return row === undefined ? undefined : { text: await renderRow(db, id, row), etag: letterEtag(row) };
}

async function renderRow(db: Queryable, id: string, row: WholeRow): Promise<string> {
  const { replays, originalInput } = await findReplaysOfLetter(db, id);
  const common = {
    ...summaryOf(row),
    // What the front door refused names the task that it has become since.
    taskId: row.task_id ?? replays.findLast(({ taskId }) => taskId !== null)?.taskId ?? null,
    error: errorOf(row),
    audit: await findAudit(db, id),
    replays,
  };
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
    attempts: await listAttempts(db, row.task_id),
    letters: await findLettersOfTask(db, row.task_id),
    logs:
      row.attempt === null
        ? null
        : ((await findLogTail(db, { taskId: row.task_id, attempt: row.attempt, most: MOST_LOG_LINES })) ?? null),
  };
  if (task === undefined) return JSON.stringify({ ...members, task: null });
  const { input, ...others } = task;
  return renderWithRaw({ ...members, task: taskOf(others) }, { input, originalInput });
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
    ...inputFileOf(task),
  };
}

/** Where the whole input is, of which an outline is shown; the producer gives links. */
function inputFileOf({
  id: taskId,
  input_file: id,
  input_file_bytes: bytes,
  input_file_sha256: sha256,
}: Omit<RowOf<typeof readLetterTask.columns>, 'input'>): Record<string, unknown> {
  if (id === null) return {};
  const link = `/v1/tasks/${taskId}/files/${id}/link`;
  return { inputFile: { id, bytes: Number(bytes), sha256: sha256?.toString('hex'), link } };
}

async function listAttempts(db: Queryable, taskId: string): Promise<readonly Record<string, unknown>[]> {
  const rows = await findAttempts(db, taskId, MOST_ATTEMPTS);
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
  return rows.map(({ at, ...line }) => ({ at: at.toISOString(), ...line }));
}
