/** Edits tasks that wait: what is pending then is invited anew, and invitations of before lose by their generation. */
import { Bug, WarrenError } from '../../shared/errors/warren-error.ts';
import type { Actor } from '../../shared/http/auth.ts';
import { etagOf } from '../../shared/http/etag.ts';
import type { Metrics } from '../../shared/observability/metrics.ts';
import { run } from '../../shared/postgres/statement.ts';
import type { RowOf } from '../../shared/postgres/statement.ts';
import { retryConflicts } from '../../shared/postgres/transaction.ts';
import type { Transactional } from '../../shared/postgres/transaction.ts';
import type { OutboxRow } from '../../shared/tasks/invitation.ts';
import { outboxRowsOf } from '../../shared/tasks/outbox.ts';
import type { InputFile, Submission } from '../../shared/tasks/submission.ts';
import { isTerminal, TASK_STATES } from '../../shared/tasks/state-machine.ts';
import type { TaskState } from '../../shared/tasks/state-machine.ts';
import { editTasks, readType } from './edit.sql.ts';

/** What editing needs. */
export interface EditDeps {
  readonly db: Transactional;
  /** Publishes what a row invites to. Never rejects. */
  readonly invite: (row: OutboxRow) => Promise<boolean>;
  /** True while no further invitation may be written down. */
  readonly isOutboxFull: () => boolean;
  readonly metrics: Pick<Metrics, 'edits'>;
}

/** What shall be different; what is absent stays. */
export interface TaskChanges {
  /** 0 to 9. */
  readonly priority?: number | undefined;
  readonly queue?: string | undefined;
  /** Not before this instant; null, or one that has passed: at once. Not together with `delayMs`. */
  readonly runAt?: Date | null | undefined;
  /** Milliseconds from now; 0 is at once. */
  readonly delayMs?: number | undefined;
  /** It expires when it has not started by then; null: never. */
  readonly deadline?: Date | null | undefined;
  readonly input?: NewInput | undefined;
}

/** Another input. */
export interface NewInput extends Pick<Submission, 'concurrencyKey' | 'rateKey'> {
  /** The bytes of its JSON, checked; where there is an `inputFile` an outline of it. */
  readonly bytes: Buffer;
  readonly inputFile?: InputFile | undefined;
}

/** Who edits, what, and why. */
export interface EditOrder {
  readonly changes: TaskChanges;
  /** Only in this generation; `undefined`: in any. */
  readonly generation?: number | undefined;
  readonly actor: Actor;
  /** Kept in the audit. */
  readonly reason: string | undefined;
  /** Of an edit of many: the line in the audit that each task's own line names. */
  readonly operation?: string;
  /** False for what a submission replaces: that is no act of a person. Default true. */
  readonly isAudited?: boolean;
}

/** What became of one task. */
export type EditResult =
  | { readonly kind: 'edited' }
  /** It was as wanted. */
  | { readonly kind: 'unchanged' }
  /** It does not wait, or waits for no time that could be moved. */
  | { readonly kind: 'not-editable'; readonly state: TaskState }
  /** Somebody changed it before. */
  | { readonly kind: 'other-generation'; readonly generation: number };

/** Times that a row may change under the statement before that is a bug. */
const MOST_TRIES = 20;

/**
 * Edits one task; true where that changed anything. Throws `task-not-found`, `task-finished`, `task-not-editable`,
 * `precondition-failed`, `outbox-full`, and as `Queryable.query`.
 */
export async function editTask(deps: EditDeps, taskId: string, order: EditOrder): Promise<boolean> {
  const result = (await editEach(deps, [taskId], order)).get(taskId);
  switch (result?.kind) {
    case 'edited':
      return true;
    case 'unchanged':
      return false;
    case 'other-generation':
      throw new WarrenError('precondition-failed', {
        taskId,
        generation: result.generation,
        etag: etagOf(result.generation),
      });
    case 'not-editable': {
      const { state } = result;
      if (isTerminal(state)) throw new WarrenError('task-finished', { taskId, state });
      throw new WarrenError('task-not-editable', {
        taskId,
        state,
        reason: state === 'blocked' ? 'it waits for other tasks, not for a time' : 'it runs',
      });
    }
    case undefined:
      throw new WarrenError('task-not-found', { taskId });
  }
}

/** Edits some tasks, in one commit but for those whose row changed meanwhile; of ids that there are none of, nothing is said. */
export async function editEach(
  { db, invite, isOutboxFull, metrics }: EditDeps,
  ids: readonly string[],
  order: EditOrder,
): Promise<ReadonlyMap<string, EditResult>> {
  if (isOutboxFull()) throw new WarrenError('outbox-full');
  const results = new Map<string, EditResult>();
  let left = ids;
  for (let tries = 0; left.length > 0; tries += 1) {
    if (tries === MOST_TRIES) throw new Bug('a task changed at every try to edit it');
    const asked = left;
    const rows = await retryConflicts(db, async () => await run(db, editTasks, ...parametersOf(asked, order)));
    for (const row of outboxRowsOf(rows, ({ id }) => id)) void invite(row); // never rejects
    const changed: string[] = [];
    for (const row of rows) {
      const result = resultOf(row);
      if (result === undefined) changed.push(row.id);
      else results.set(row.id, result);
    }
    metrics.edits.add(rows.filter((row) => row.state !== null).length);
    left = changed;
  }
  return results;
}

/** The type of a task, which never changes. Throws `task-not-found`, and as `Queryable.query`. */
export async function typeOf(db: Transactional, taskId: string): Promise<string> {
  const [row] = await run(db, readType, taskId);
  if (row === undefined) throw new WarrenError('task-not-found', { taskId });
  return row.type;
}

type EditRow = RowOf<typeof editTasks.columns>;

/** `undefined` where the row changed while the statement waited for it. */
function resultOf(row: EditRow): EditResult | undefined {
  const state = TASK_STATES.find((each) => each === row.was);
  if (state === undefined) throw new Bug(`a task is in the state ${row.was}`);
  if (row.state !== null) return { kind: 'edited' };
  if (row.is_editable !== true) return { kind: 'not-editable', state };
  if (row.is_expected !== true) return { kind: 'other-generation', generation: row.generation_before };
  return row.is_changed === true ? undefined : { kind: 'unchanged' };
}

function parametersOf(
  ids: readonly string[],
  { changes, generation, actor, reason, operation, isAudited }: EditOrder,
): NonNullable<typeof editTasks.params> {
  const { priority, queue, runAt, delayMs, deadline, input } = changes;
  return [
    ids,
    generation ?? null,
    priority ?? null,
    queue ?? null,
    runAt !== undefined || delayMs !== undefined,
    runAt ?? null,
    delayMs ?? null,
    deadline !== undefined,
    deadline ?? null,
    input?.bytes ?? null,
    input?.concurrencyKey ?? null,
    input?.rateKey ?? null,
    actor.name,
    actor.role,
    JSON.stringify({ reason, operation }), // without what is undefined
    actor.address ?? null,
    isAudited ?? true,
    input?.inputFile?.id ?? null,
  ];
}
