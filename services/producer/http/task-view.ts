/** How a task looks in JSON. What is absent is left out; bodies are the bytes that came. */
import { traceIdOf } from '../../../shared/observability/trace-context.ts';
import { withoutNull } from '../without-null.ts';
import { renderWithRaw } from '../../../shared/tasks/json.ts';
import type { Acceptance, InputFile, Submission } from '../../../shared/tasks/submission.ts';
import type { KnownType } from '../../../shared/tasks/type-catalog.ts';
import type { AttemptRow } from '../../../shared/tasks/attempts.ts';
import type { EstimatedFinish, EstimatedStart } from '../outlook.ts';
import type { TaskRow, WholeTaskRow } from '../tasks.ts';

type Accepted = Extract<Acceptance, { readonly kind: 'accepted' }>;

/** What is expected of a task that has not ended. */
export interface Outlook {
  readonly estimatedStart?: EstimatedStart | undefined;
  readonly estimatedFinish?: EstimatedFinish | undefined;
}

/** A whole task as JSON text. */
export function renderTask(task: WholeTaskRow, attempts: readonly AttemptRow[], outlook: Outlook = {}): string {
  return renderWithRaw(
    {
      ...listedTaskOf(task),
      ...withoutNull({ progress: progressOf(task), ...outlook }),
      ...inputFileOf(task),
      ...resultFileOf(task),
      ...withoutNull({
        cancelRequestedAt: task.cancel_requested_at,
        deadLetterId: task.dead_letter_id,
        flow: flowOf(task),
      }),
      attempts: attempts.map((attempt) => attemptOf(attempt)),
    },
    { input: task.input, result: task.result ?? undefined },
  );
}

/** How far a running attempt says it is; `undefined` where it says nothing. */
export function progressOf(
  task: Pick<WholeTaskRow, 'progress_fraction' | 'progress_step' | 'progress_message' | 'progress_at'>,
): Record<string, unknown> | undefined {
  const { progress_fraction: fraction, progress_step: step, progress_message: message } = task;
  const { progress_at: updatedAt } = task;
  if (fraction === null || updatedAt === null) return undefined;
  return withoutNull({ fraction: Math.round(fraction * 1e6) / 1e6, step, message, updatedAt });
}

function inputFileOf(task: WholeTaskRow): Record<string, unknown> {
  const { input_file: id, input_file_bytes: bytes, input_file_sha256: sha256 } = task;
  if (id === null || sha256 === null) return {};
  return { inputFile: inputFileView(task.id, { id, bytes: Number(bytes), sha256: sha256.toString('hex') }) };
}

/** Where the whole input is. */
function inputFileView(taskId: string, { id, bytes, sha256 }: InputFile): Record<string, unknown> {
  return { id, bytes, sha256, link: linkTo(taskId, id) };
}

/** Where a link is asked for. */
const linkTo = (taskId: string, fileId: string): string => `/v1/tasks/${taskId}/files/${fileId}/link`;

function resultFileOf(task: WholeTaskRow): Record<string, unknown> {
  const { id: taskId, result_file_id: id, result_file_name: name, result_file_type: contentType } = task;
  if (id === null) return {};
  const link = linkTo(taskId, id);
  const sha256 = task.result_file_sha256?.toString('hex');
  return { resultFile: { id, name, contentType, bytes: Number(task.result_file_bytes), sha256, link } };
}

/** A task in a list. */
export function listedTaskOf(task: TaskRow | WholeTaskRow): Record<string, unknown> {
  return withoutNull({
    id: task.id,
    type: task.type,
    queue: task.queue,
    state: task.state,
    priority: task.priority,
    generation: task.generation,
    attempt: task.attempt,
    failures: task.failures,
    maxAttempts: task.max_attempts,
    lostAttempts: task.lost_attempts,
    acceptedAt: task.accepted_at,
    invitedAt: task.invited_at,
    runAt: task.run_at,
    deadline: task.deadline,
    startedAt: task.started_at,
    finishedAt: task.finished_at,
    worker: task.worker,
    businessKey: task.business_key,
    externalId: task.external_id,
    publisher: task.publisher,
    correlationId: task.correlation_id,
    tags: task.tags,
    traceId: task.trace === null ? null : traceIdOf(task.trace),
  });
}

/** A task that was accepted a moment ago, without a look at its row. */
export function acceptedTaskOf(submission: Submission, accepted: Accepted): Record<string, unknown> {
  const { type, queue, priority, maxAttempts, deadline, businessKey, tags, inputFile } = submission;
  return withoutNull({
    id: accepted.id,
    type,
    queue,
    state: accepted.state,
    priority,
    generation: 1,
    attempt: 0,
    failures: 0,
    maxAttempts,
    lostAttempts: 0,
    acceptedAt: accepted.acceptedAt,
    runAt: accepted.runAt,
    deadline,
    businessKey,
    tags: tags?.length === 0 ? undefined : tags,
    inputFile: inputFile === undefined ? undefined : inputFileView(accepted.id, inputFile),
  });
}

/** A task type. */
export function taskTypeOf(type: KnownType): Record<string, unknown> {
  const { checkInput: _function, inputSchema, ...plain } = type;
  return withoutNull({
    ...plain,
    inputSchema: inputSchema === undefined ? undefined : (JSON.parse(inputSchema) as unknown),
  });
}

/** An attempt that did not succeed. */
export function attemptOf(row: AttemptRow): Record<string, unknown> {
  const error = withoutNull({
    type: row.error_type,
    code: row.error_code,
    message: row.error_message,
    stack: row.error_stack,
  });
  return withoutNull({
    attempt: row.attempt,
    worker: row.worker,
    startedAt: row.started_at,
    finishedAt: row.finished_at,
    outcome: row.outcome,
    codeVersion: row.code_version === '' ? null : row.code_version,
    error: Object.keys(error).length === 0 ? null : error,
  });
}

/** The flow that it is a step of. */
function flowOf({ flow_id: id, step_name: step, step_why: why }: WholeTaskRow): Record<string, unknown> | undefined {
  return id === null ? undefined : withoutNull({ id, step, why });
}
