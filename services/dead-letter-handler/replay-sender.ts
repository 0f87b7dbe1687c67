/** Sends the items of a replay: tasks many at once, mended where it has a patch, and one by one what never was a task. */
import type { Destination } from '../../shared/dead-letters/republish.ts';
import type { LetterKind } from '../../shared/dead-letters/reason.ts';
import type { SkipCode } from '../../shared/dead-letters/replay-state.ts';
import { toError } from '../../shared/errors/to-error.ts';
import type { Logger } from '../../shared/observability/log.ts';
import type { Metrics } from '../../shared/observability/metrics.ts';
import type { Database } from '../../shared/postgres/pool.ts';
import { run } from '../../shared/postgres/statement.ts';
import type { RowOf } from '../../shared/postgres/statement.ts';
import { retryConflicts } from '../../shared/postgres/transaction.ts';
import { newId } from '../../shared/tasks/ids.ts';
import type { OutboxRow } from '../../shared/tasks/invitation.ts';
import { outboxRowsOf } from '../../shared/tasks/outbox.ts';
import type { InputFile } from '../../shared/tasks/submission.ts';
import { createMend } from './mend.ts';
import type { Mend, MendDeps } from './mend.ts';
import { mendWhole } from './mend-whole.ts';
import type { MendWholeDeps } from './mend-whole.ts';
import { beginItem, readBatch, sendItems } from './replay-runner.sql.ts';
import type { lookAtReplay } from './replay-runner.sql.ts';
import { isPassing } from './replayer.ts';
import type { Replayer } from './replayer.ts';

/** What sending needs. */
export interface ReplaySenderDeps extends MendDeps, MendWholeDeps {
  readonly db: Database;
  readonly log: Logger;
  readonly metrics: Pick<Metrics, 'replayed'>;
  /** Publishes what was invited; never rejects. */
  readonly invite: (row: OutboxRow) => Promise<boolean>;
  /** Sends what never was a task. */
  readonly replayer: Pick<Replayer, 'destinationOf' | 'send'>;
  /** Looks for task types that were announced a moment ago. */
  readonly refreshTypes: () => Promise<void>;
}

type Replay = RowOf<typeof lookAtReplay.columns>;
type Item = RowOf<typeof readBatch.columns>;

/** Items that one statement sends, and those that it mends: their inputs are in memory. */
const PER_BATCH = 500;
const MENDED_PER_BATCH = 100;
/** Rows of invitations that await their confirm; more would fill memory. */
const MOST_UNCONFIRMED = 4;

/** Sends items. */
export class ReplaySender {
  readonly #deps: ReplaySenderDeps;
  readonly #unconfirmed = new Set<Promise<unknown>>();

  constructor(deps: ReplaySenderDeps) {
    this.#deps = deps;
  }

  /**
   * Sends the next items of the wave under way, as many as one statement and the rate take. Gives the milliseconds after which more
   * may go. Throws as `Queryable.query`, and what keeps RabbitMQ from taking messages for now.
   */
  async send(replay: Replay): Promise<number> {
    const { db, metrics } = this.#deps;
    const most = replay.patch === null ? PER_BATCH : MENDED_PER_BATCH;
    const count = Math.min(most, replay.wave_end - replay.next_n + 1, replay.allowed ?? most);
    if (count < 1) return Math.max(10, Math.min(1_000 / (replay.rate ?? 1), 1_000));
    const next = replay.next_n + count;
    const items = await run(db, readBatch, replay.id, replay.next_n, next - 1, replay.patch !== null);
    const decided = await this.#decide(replay, items);
    const rows = await retryConflicts(
      db,
      async () =>
        await run(
          db,
          sendItems,
          replay.id,
          replay.next_n,
          next,
          decided.map(({ n }) => n),
          decided.map(({ input }) => input ?? null),
          decided.map(({ inputFile }) => inputFile?.id ?? null),
          decided.map(({ concurrencyKey }) => concurrencyKey ?? null),
          decided.map(({ rateKey }) => rateKey ?? null),
          decided.map(({ code }) => code ?? null),
          decided.map(({ why }) => why ?? null),
        ),
    );
    for (const row of outboxRowsOf(rows, ({ task_id: taskId }) => taskId ?? '')) {
      metrics.replayed.add(row.invitations.length, 'task');
      await this.#invite(row);
    }
    return 0;
  }

  /** Waits only where too many rows await their confirm. */
  async #invite(row: OutboxRow): Promise<void> {
    const invited: Promise<unknown> = this.#deps.invite(row).finally(() => this.#unconfirmed.delete(invited)); // never rejects
    this.#unconfirmed.add(invited);
    if (this.#unconfirmed.size >= MOST_UNCONFIRMED) await Promise.race(this.#unconfirmed);
  }

  /** What goes as it is, what goes mended, and what does not go; sends by the way what never was a task. */
  async #decide(replay: Replay, items: readonly Item[]): Promise<readonly Decided[]> {
    const mend = replay.patch === null ? undefined : createMend(replay.patch, this.#deps);
    if (mend !== undefined && items.some(({ type }) => type !== null && this.#deps.catalog.find(type) === undefined)) {
      await this.#deps.refreshTypes();
    }
    const decided: Decided[] = [];
    for (const item of items) {
      if (item.kind === null || item.kind === 'task') decided.push(await decideTask(item, mend, this.#deps));
      else {
        const skip = await this.#sendMessage(replay, item);
        if (skip !== undefined) decided.push({ n: item.n, ...skip });
      }
    }
    return decided;
  }

  /** Sends a letter with a message of its own; gives why not, where it does not go. */
  async #sendMessage(replay: Replay, item: Item): Promise<Omit<Decided, 'n'> | undefined> {
    const { db, replayer, log } = this.#deps;
    if (item.letter_state !== 'open') return { code: 'closed' };
    if (replay.patch !== null || replay.queue !== null || replay.priority !== null) {
      return {
        code: 'not-a-task',
        why: 'it never was a task: there is nothing to mend, and no queue of Warren to go to',
      };
    }
    let destination: Destination;
    try {
      destination = replayer.destinationOf({ ...item, id: item.letter_id, state: 'open' });
    } catch (thrown) {
      return { code: 'not-sent', why: toError(thrown).message.slice(0, 1_000) };
    }
    const { exchange, routingKey } = destination;
    const [row] = await retryConflicts(
      db,
      async () => await run(db, beginItem, replay.id, item.n, newId(), exchange, routingKey),
    );
    // Closed meanwhile. Where the replay was paused instead, or the item was sent by another runner, this is not written down.
    if (row === undefined) return { code: 'closed' };
    try {
      await replayer.send({ ...row, kind: row.kind as LetterKind }, destination);
    } catch (thrown) {
      // Its letter is open again. Its item waits where RabbitMQ or Postgres is away, and so does the replay; else it says why.
      if (isPassing(thrown)) throw thrown;
      log.debug('replayed letter not sent', { letterId: row.id, err: toError(thrown) });
    }
    return undefined;
  }
}

interface Decided {
  readonly n: number;
  readonly input?: Buffer;
  readonly inputFile?: InputFile;
  readonly concurrencyKey?: string;
  readonly rateKey?: string;
  readonly code?: SkipCode;
  readonly why?: string;
}

async function decideTask(item: Item, mend: Mend | undefined, deps: MendWholeDeps): Promise<Decided> {
  const { n, kind, type, task_id: taskId, input, input_file: inputFile, letter_state: state } = item;
  if (kind === null) return { n, code: 'gone' };
  if (state !== 'open') return { n, code: 'closed' };
  if (mend === undefined) return { n };
  if (type === null || taskId === null || input === null) return { n, code: 'gone' };
  const mended = await mendWhole(mend, { type, input, inputFile }, deps);
  if (mended.kind === 'skip') return { n, code: mended.code, why: mended.why };
  const { kind: _ok, ...rest } = mended;
  if (!deps.inputs.isLarge(mended.input)) return { n, ...rest };
  return { n, ...rest, ...(await deps.inputs.keep(taskId, mended.input)) };
}
