/** Accepts tasks: insert with outbox row, in groups, then answer, then invite. */
import { toError } from '../../shared/errors/to-error.ts';
import { WarrenError } from '../../shared/errors/warren-error.ts';
import type { Logger } from '../../shared/observability/log.ts';
import type { Database } from '../../shared/postgres/pool.ts';
import { runSplitting } from '../../shared/postgres/split.ts';
import { run } from '../../shared/postgres/statement.ts';
import { Batcher } from '../../shared/resilience/batcher.ts';
import { newId } from '../../shared/tasks/ids.ts';
import type { OutboxRow } from '../../shared/tasks/invitation.ts';
import type { Acceptance, Submission } from '../../shared/tasks/submission.ts';
import { acceptTasks, findMessageIds, forgetMessageId } from './submit.sql.ts';

/** What the submitter needs. */
export interface SubmitterDeps {
  readonly db: Database;
  readonly log: Logger;
  /** Publishes what was committed; never rejects. */
  readonly invite: (row: OutboxRow) => Promise<boolean>;
  /** True where the outbox has reached its bound, because the broker has been away for long. */
  readonly isOutboxFull: () => boolean;
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
}

interface Numbered {
  readonly id: string;
  readonly asked: Asked;
  readonly submission: Submission;
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
    return await this.#batcher.add({ submission, answer: undefined });
  }

  async #accept(batch: readonly Asked[]): Promise<readonly Acceptance[]> {
    let left = batch;
    // A message id that stands twice in a batch is accepted once; its second is judged in the next round.
    while (left.length > 0) {
      const { now, later } = splitByMessageId(left);
      const numbered = now.map((asked) => ({ id: newId(), asked, submission: asked.submission }));
      const accepted = await runSplitting(
        this.#deps.db,
        numbered,
        async (items) => await this.#insert(items),
        (item, thrown) => this.#refuse(item, thrown),
      );
      const again = await this.#judgeRepeated(numbered, accepted);
      left = [...later, ...again];
    }
    return batch.map(({ answer }) => answer as Acceptance);
  }

  /** One transaction. `undefined` for a message id that was accepted before. */
  async #insert(items: readonly Numbered[]): Promise<(Acceptance | undefined)[]> {
    const rows = await run(this.#deps.db, acceptTasks, ...columnsOf(items));
    const byId = new Map(rows.map((row) => [row.id, row]));
    const outboxId = rows.find((row) => row.outbox_id !== null)?.outbox_id;
    if (outboxId !== undefined && outboxId !== null) {
      const invitations = items
        .filter(({ id }) => byId.get(id)?.state === 'pending')
        .map(({ id, submission: { type, queue, priority } }) => ({ taskId: id, type, queue, priority, generation: 1 }));
      void this.#deps.invite({ id: outboxId, invitations }); // never rejects; the answer does not wait for the broker
    }
    return items.map(({ id }) => {
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
  }

  #refuse({ submission }: Numbered, thrown: unknown): Acceptance {
    const err = toError(thrown);
    this.#deps.log.warn('submission refused by postgres', { taskType: submission.type, err });
    return {
      kind: 'refused',
      fault: { code: 'field-invalid', field: 'task', reason: `cannot be stored: ${err.message}` },
    };
  }

  /** Says what each repeated message id met, and gives back those whose seven days are over. */
  async #judgeRepeated(items: readonly Numbered[], accepted: readonly (Acceptance | undefined)[]): Promise<Asked[]> {
    const repeated: Asked[] = [];
    items.forEach(({ asked }, index) => {
      asked.answer = accepted[index];
      if (asked.answer === undefined) repeated.push(asked);
    });
    if (repeated.length === 0) return [];
    const keys = repeated.map(
      ({ submission: { type, external } }) => [external?.publisher ?? '', type, external?.messageId ?? ''] as const,
    );
    const found = await run(
      this.#deps.db,
      findMessageIds,
      keys.map(([publisher]) => publisher),
      keys.map(([, type]) => type),
      keys.map(([, , messageId]) => messageId),
    );
    const byKey = new Map(found.map((row) => [keyOf(row.publisher, row.type, row.message_id), row]));
    const again: Asked[] = [];
    for (const asked of repeated) {
      const { external, type } = asked.submission;
      const earlier = byKey.get(keyOf(external?.publisher ?? '', type, external?.messageId ?? ''));
      if (earlier === undefined) again.push(asked); // forgotten meanwhile
      else if (earlier.is_past) {
        await run(this.#deps.db, forgetMessageId, earlier.publisher, earlier.type, earlier.message_id);
        again.push(asked);
      } else if (external !== undefined && earlier.digest.equals(external.digest)) {
        asked.answer = { kind: 'duplicate', id: earlier.task_id };
      } else {
        const reason = `this message id belongs to task ${earlier.task_id}, accepted with other content`;
        asked.answer = { kind: 'refused', fault: { code: 'id-conflict', field: 'message_id', reason } };
      }
    }
    return again;
  }
}

function keyOf(publisher: string, type: string, messageId: string): string {
  return JSON.stringify([publisher, type, messageId]);
}

function splitByMessageId(batch: readonly Asked[]): { now: Asked[]; later: Asked[] } {
  const seen = new Set<string>();
  const now: Asked[] = [];
  const later: Asked[] = [];
  for (const asked of batch) {
    const { external, type } = asked.submission;
    const key = external === undefined ? undefined : keyOf(external.publisher, type, external.messageId);
    if (key !== undefined && seen.has(key)) later.push(asked);
    else now.push(asked);
    if (key !== undefined) seen.add(key);
  }
  return { now, later };
}

/** The columns of `acceptTasks`. A column that no task uses is null, so that it costs nothing. */
function columnsOf(items: readonly Numbered[]): ParamsOf<typeof acceptTasks> {
  const pick = <T>(read: (submission: Submission) => T | undefined): (T | null)[] | null => {
    const column = items.map(({ submission }) => read(submission) ?? null);
    return column.every((value) => value === null) ? null : column;
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
    pick(({ external }) => external?.digest),
    pick(({ origin }) => origin?.exchange),
    pick(({ origin }) => origin?.routingKey),
    pick(({ origin }) => origin?.properties),
    pick(({ origin }) => origin?.headers),
    pick(({ delayMs }) => delayMs),
  ];
}

type ParamsOf<S> = S extends { readonly params?: infer P extends readonly unknown[] } ? P : never;

/** A text[] inside a text[]: Postgres has no arrays of arrays of different lengths. */
function arrayLiteral(texts: readonly string[]): string {
  return `{${texts.map((text) => `"${text.replaceAll('\\', '\\\\').replaceAll('"', '\\"')}"`).join(',')}}`;
}
