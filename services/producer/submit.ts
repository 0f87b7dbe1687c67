/** Accepts tasks: insert with outbox row, in groups, then answer, then invite. */
import { toError } from '../../shared/errors/to-error.ts';
import { WarrenError } from '../../shared/errors/warren-error.ts';
import type { Logger } from '../../shared/observability/log.ts';
import type { Metrics } from '../../shared/observability/metrics.ts';
import type { Tracing } from '../../shared/observability/tracing.ts';
import type { Database } from '../../shared/postgres/pool.ts';
import { runSplitting } from '../../shared/postgres/split.ts';
import { arrayLiteral, run } from '../../shared/postgres/statement.ts';
import type { ParamsOf, Queryable } from '../../shared/postgres/statement.ts';
import { Batcher } from '../../shared/resilience/batcher.ts';
import { newId } from '../../shared/tasks/ids.ts';
import type { OutboxRow } from '../../shared/tasks/invitation.ts';
import type { Acceptance, Submission } from '../../shared/tasks/submission.ts';
import { judgeRepeats, messageKeyOf } from './repeats.ts';
import { acceptTasks } from './submit.sql.ts';

/** What the submitter needs. */
export interface SubmitterDeps {
  readonly db: Database;
  readonly log: Logger;
  /** Publishes what was committed; never rejects. */
  readonly invite: (row: OutboxRow) => Promise<boolean>;
  /** True where the outbox has reached its bound, because the broker has been away for long. */
  readonly isOutboxFull: () => boolean;
  /** Why what comes in for a queue is held back, where it is. */
  readonly holdReasonOf: (queue: string) => 'turn' | 'draining' | undefined;
  readonly metrics: Pick<Metrics, 'edits'>;
  /** Makes spans; `undefined` where nobody wants any. */
  readonly tracing?: Tracing | undefined;
}

/** Bounds of the submitter. */
export interface SubmitterOptions {
  /** Tasks in one transaction at most. 1 to 1 000. */
  readonly maxBatch: number;
}

/** One call of `submit`: the same submission may be handed in twice. */
interface Asked {
  readonly submission: Submission;
  answer: Acceptance | undefined;
  /** Times that what it met was gone again. */
  rounds: number;
}

/** Rounds after which a submission whose input is in the store must have met something, or its file is gone. */
const MOST_ROUNDS = 10;

/** A task that is to be inserted. */
export interface NumberedTask {
  readonly id: string;
  readonly submission: Submission;
}

interface Numbered extends NumberedTask {
  readonly asked: Asked;
}

/** Accepts checked submissions in groups. */
export class Submitter {
  readonly #deps: SubmitterDeps;
  readonly #batcher: Batcher<Asked, Acceptance>;

  constructor(deps: SubmitterDeps, options: SubmitterOptions) {
    this.#deps = deps;
    this.#batcher = new Batcher(async (batch) => await this.#accept(batch), { maxBatch: options.maxBatch, lanes: 2 });
  }

  /**
   * Accepts one task. When it resolves with `accepted`, the task is committed and will not be lost. Throws
   * `database-unavailable` and `outbox-full`; then nothing is promised, and the same may be sent again.
   */
  async submit(submission: Submission): Promise<Acceptance> {
    if (this.#deps.isOutboxFull()) throw new WarrenError('outbox-full', { retryAfterSeconds: 10 });
    const { tracing } = this.#deps;
    return tracing === undefined ? await this.#add(submission) : await this.#addTraced(submission, tracing);
  }

  #add(submission: Submission): Promise<Acceptance> {
    return this.#batcher.add({ submission, answer: undefined, rounds: 0 });
  }

  async #addTraced(submission: Submission, tracing: Tracing): Promise<Acceptance> {
    const taskId = submission.taskId ?? newId<string>();
    const { type: taskType, queue } = submission;
    const span = tracing.publish({ taskType, queue, taskId }, submission.trace);
    try {
      const acceptance = await this.#add({ ...submission, taskId, trace: span.trace });
      if (acceptance.kind === 'refused') span.fail(acceptance.fault.code, acceptance.fault.reason);
      else span.end({ 'messaging.message.id': acceptance.id, 'warren.acceptance': acceptance.kind });
      return acceptance;
    } catch (thrown) {
      span.threw(thrown);
      throw thrown;
    }
  }

  async #accept(batch: readonly Asked[]): Promise<readonly Acceptance[]> {
    let left = batch;
    // A message id that stands twice in a batch is accepted once; its second is judged in the next round.
    while (left.length > 0) {
      const { now, later } = splitByMessageId(left);
      const numbered = now.map((asked) => {
        const { submission } = asked;
        return { id: submission.taskId ?? newId<string>(), asked, submission };
      });
      const accepted = await runSplitting(
        this.#deps.db,
        numbered,
        async (items) => await this.#insert(items),
        (item, thrown) => this.#refuse(item, thrown),
      );
      const repeated = numbered.filter(({ asked }, index) => {
        asked.answer = accepted[index];
        return asked.answer === undefined;
      });
      const verdicts = repeated.length === 0 ? [] : await judgeRepeats(this.#deps, repeated);
      const again = repeated.filter(({ asked }, index) => {
        asked.rounds += 1;
        asked.answer = verdicts[index] ?? unstoredAnswer(asked);
        return asked.answer === undefined;
      });
      left = [...later, ...again.map(({ asked }) => asked)];
    }
    return batch.map(({ answer }) => answer as Acceptance);
  }

  /** One transaction. `undefined` for what met an id or a key that was taken before. */
  async #insert(items: readonly Numbered[]): Promise<(Acceptance | undefined)[]> {
    const { answers, invitations } = await insertTasks(this.#deps.db, items, this.#deps.holdReasonOf);
    // Never rejects; the answer does not wait for the broker.
    if (invitations !== undefined) void this.#deps.invite(invitations);
    return answers;
  }

  #refuse({ submission }: Numbered, thrown: unknown): Acceptance {
    const err = toError(thrown);
    this.#deps.log.warn('submission refused by postgres', { taskType: submission.type, err });
    return {
      kind: 'refused',
      fault: { code: 'field-invalid', field: 'task', reason: `cannot be stored: ${err.message}` },
    };
  }
}

/**
 * Inserts tasks. `answers` says what became of each, `undefined` for one that met an id or a key that was taken before; `invitations` are to be published
 * once the transaction is committed. Throws as `Queryable.query`.
 */
export async function insertTasks(
  db: Queryable,
  items: readonly NumberedTask[],
  holdReasonOf: SubmitterDeps['holdReasonOf'],
): Promise<{ readonly answers: (Acceptance | undefined)[]; readonly invitations: OutboxRow | undefined }> {
  const rows = await run(db, acceptTasks, ...columnsOf(items, holdReasonOf));
  const byId = new Map(rows.map((row) => [row.id, row]));
  const outboxId = rows.find((row) => row.outbox_id !== null)?.outbox_id ?? undefined;
  const invited = items.filter(({ id }) => byId.get(id)?.is_invited === true);
  const invitations =
    outboxId === undefined
      ? undefined
      : {
          id: outboxId,
          invitations: invited.map(({ id, submission: { type, queue, priority } }) => ({
            taskId: id,
            type,
            queue,
            priority,
            generation: 1,
          })),
        };
  const answers = items.map(({ id }): Acceptance | undefined => {
    const row = byId.get(id);
    if (row === undefined) return undefined;
    return {
      kind: 'accepted',
      id,
      state: row.state === 'pending' ? 'pending' : 'scheduled',
      acceptedAt: row.accepted_at,
      runAt: row.run_at ?? undefined,
    };
  });
  return { answers, invitations };
}

/** A file that was swept before its task was written, after an hour of standing still, does not come back. */
function unstoredAnswer({ submission, rounds }: Asked): Acceptance | undefined {
  if (submission.inputFile === undefined || rounds < MOST_ROUNDS) return undefined;
  const reason = 'its input was deleted from the store of files before it was accepted';
  return { kind: 'refused', fault: { code: 'file-store-unavailable', field: 'input', reason } };
}

function splitByMessageId(batch: readonly Asked[]): { now: Asked[]; later: Asked[] } {
  const seen = new Set<string>();
  const now: Asked[] = [];
  const later: Asked[] = [];
  for (const asked of batch) {
    const { external, type } = asked.submission;
    const key = external === undefined ? undefined : messageKeyOf(external.publisher, type, external.messageId);
    if (key !== undefined && seen.has(key)) later.push(asked);
    else now.push(asked);
    if (key !== undefined) seen.add(key);
  }
  return { now, later };
}

/** The columns of `acceptTasks`. A column that no task uses is null, so that it costs nothing. */
function columnsOf(
  items: readonly NumberedTask[],
  holdReasonOf: SubmitterDeps['holdReasonOf'],
): ParamsOf<typeof acceptTasks> {
  const pick = <T>(read: (submission: Submission) => T | undefined): (T | null)[] | null => {
    const isUsed = items.some(({ submission }) => read(submission) !== undefined);
    return isUsed ? items.map(({ submission }) => read(submission) ?? null) : null;
  };
  return [
    items.map(({ id }) => id),
    items.map(({ submission }) => submission.type),
    items.map(({ submission }) => submission.queue),
    items.map(({ submission }) => submission.priority),
    items.map(({ submission }) => submission.maxAttempts),
    items.map(({ submission }) => submission.input),
    pick(({ runAt }) => runAt),
    pick(({ deadline }) => deadline),
    pick(({ businessKey }) => businessKey),
    pick(({ tags }) => (tags === undefined || tags.length === 0 ? undefined : arrayLiteral(tags))),
    pick(({ external }) => external?.messageId),
    pick(({ external, publisher }) => external?.publisher ?? publisher),
    pick(({ correlationId }) => correlationId),
    pick(({ external, idempotency }) => (external ?? idempotency)?.digest),
    pick(({ origin }) => origin?.exchange),
    pick(({ origin }) => origin?.routingKey),
    pick(({ origin }) => origin?.properties),
    pick(({ origin }) => origin?.headers),
    pick(({ delayMs }) => delayMs),
    pick(({ idempotency }) => idempotency?.key),
    pick(({ unique }) => unique?.key),
    pick(({ unique }) => unique?.hold.kind),
    pick(({ unique }) => (unique?.hold.kind === 'window' ? unique.hold.withinMs : undefined)),
    pick(({ concurrencyKey }) => concurrencyKey),
    pick(({ rateKey }) => rateKey),
    pick(({ queue }) => holdReasonOf(queue)),
    pick(({ callback }) => (callback === undefined ? undefined : JSON.stringify(callback))),
    pick(({ inputFile }) => inputFile?.id),
    pick(({ trace }) => trace),
  ];
}
