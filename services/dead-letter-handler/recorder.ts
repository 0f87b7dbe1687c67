/**
 * Records what died: first the row, then the ack. It never rejects a delivery: its own failures would come back through
 * the exchange that it drains. While Postgres is away nothing more is taken, and what was taken waits for it.
 */
import type { Consumer, Delivery } from '../../shared/amqp/consumer.ts';
import type { Names } from '../../shared/amqp/topology.ts';
import { readDeath } from '../../shared/dead-letters/death.ts';
import { toError } from '../../shared/errors/to-error.ts';
import type { Part } from '../../shared/lifecycle/part.ts';
import type { Logger } from '../../shared/observability/log.ts';
import type { Metrics } from '../../shared/observability/metrics.ts';
import { isUnavailable } from '../../shared/postgres/failure.ts';
import type { Database } from '../../shared/postgres/pool.ts';
import { runSplitting } from '../../shared/postgres/split.ts';
import { run } from '../../shared/postgres/statement.ts';
import type { ParamsOf, RowOf } from '../../shared/postgres/statement.ts';
import { retryConflicts } from '../../shared/postgres/transaction.ts';
import { Batcher } from '../../shared/resilience/batcher.ts';
import type { OutboxRow } from '../../shared/tasks/invitation.ts';
import { outboxRowsOf } from '../../shared/tasks/outbox.ts';
import { storableText } from '../../shared/tasks/outcome.ts';
import type { Clock } from '../../shared/time/clock.ts';
import { foreignLetter, reducedLetter, refusedLetter, sort } from './letters.ts';
import type { NewLetter, Sorted } from './letters.ts';
import type { Refusal } from './refusals.ts';
import { recordInvitations, recordLetters, releaseKeys } from './recorder.sql.ts';

/** What the recorder needs. */
export interface RecorderDeps {
  readonly db: Database;
  readonly clock: Clock;
  readonly log: Logger;
  readonly random: () => number;
  readonly metrics: Pick<Metrics, 'deadLetters' | 'invitedAnew'>;
  readonly names: Names;
  /** The consumer of the dead-letter queue; hands each delivery to `take`. */
  readonly consumer: Pick<Consumer, 'start' | 'pause' | 'resume' | 'cancel' | 'close'>;
  /** Says why the front door refused messages; see `judgeRefused`. */
  readonly judge: (messages: readonly Delivery[]) => Promise<readonly (Refusal | undefined)[]>;
  /** Publishes what was invited anew; never rejects. */
  readonly invite: (row: OutboxRow) => Promise<boolean>;
}

/** What became of a delivery. `kept`: it could not be recorded, not even in a reduced form; it is tried again. */
type Became = 'evidence' | 'known' | 'invited' | 'over' | 'recorded' | 'kept';

const MAX_BATCH = 250;
/** Bytes of bodies in one statement at most, unless one body alone is larger. */
const BATCH_BYTES = 4_194_304;
/** A task whose last invitation is younger than this, in milliseconds, is not invited anew at once but after a while. */
const YOUNG_MS = 1_000;
const AGAIN_MIN_MS = 200;
const AGAIN_MAX_MS = 5_000;
const PING_WITHIN_MS = 2_000;

/** Drains the dead-letter queue into Postgres. */
export class Recorder implements Part {
  readonly #deps: RecorderDeps;
  readonly #batcher: Batcher<Delivery, Became>;
  /** For deliveries of a batch that failed: whichever was to blame, the others do not fail with it again. */
  readonly #singly: Batcher<Delivery, Became>;
  readonly #stopping = new AbortController();
  #pausing: Promise<void> | undefined;

  constructor(deps: RecorderDeps) {
    this.#deps = deps;
    const record = async (batch: readonly Delivery[]): Promise<readonly Became[]> => {
      try {
        return await this.#record(batch);
      } catch (thrown) {
        this.#onFailure(thrown); // once a batch
        throw thrown;
      }
    };
    this.#batcher = new Batcher(record, { maxBatch: MAX_BATCH, lanes: 2 });
    this.#singly = new Batcher(record, { maxBatch: 1, lanes: 1 });
  }

  async start(): Promise<void> {
    await this.#deps.consumer.start();
  }

  /** Takes nothing more, writes and acks what is being written, and leaves the rest to the broker. */
  async stop(deadlineMs: number): Promise<void> {
    const { clock, consumer } = this.#deps;
    this.#stopping.abort();
    const race = new AbortController();
    const late = clock.sleep(Math.max(0, deadlineMs - clock.monotonicMs()), race.signal);
    await Promise.race([consumer.cancel().then(async () => await this.#idle()), late]);
    race.abort();
    // What is still unanswered waits for Postgres; the broker gives it to the next handler.
    await consumer.close(clock.monotonicMs());
  }

  async #idle(): Promise<void> {
    await this.#batcher.idle();
    await this.#singly.idle();
  }

  /** Takes one delivery: records it, then acks it. Tries until it is recorded, its channel is gone, or the recorder stops. */
  take(delivery: Delivery): void {
    void this.#process(delivery); // never rejects
  }

  async #process(delivery: Delivery): Promise<void> {
    const { clock, random } = this.#deps;
    const { signal } = this.#stopping;
    let batcher = this.#batcher;
    for (let tries = 1; delivery.isAlive; tries += 1) {
      await this.#pausing;
      if (signal.aborted || !delivery.isAlive) return;
      try {
        if ((await batcher.add(delivery)) !== 'kept') {
          delivery.ack();
          return;
        }
      } catch (thrown) {
        if (!isUnavailable(thrown)) batcher = this.#singly;
      }
      const waitMs = Math.min(AGAIN_MIN_MS * 2 ** Math.min(tries - 1, 10), AGAIN_MAX_MS);
      await clock.sleep(waitMs * (0.5 + random() / 2), signal);
    }
  }

  #onFailure(thrown: unknown): void {
    if (isUnavailable(thrown)) {
      this.#pausing ??= this.#pauseUntilBack().finally(() => {
        this.#pausing = undefined;
      });
      return;
    }
    this.#deps.log.error('dead letters not recorded', {
      err: toError(thrown),
      hint: 'they stay in the dead-letter queue and are tried again',
    });
  }

  async #pauseUntilBack(): Promise<void> {
    const { clock, consumer, db, log, random } = this.#deps;
    const { signal } = this.#stopping;
    log.warn('recording paused', { hint: 'Postgres does not answer; dead letters wait in RabbitMQ' });
    await consumer.pause().catch((thrown: unknown) => log.warn('consumer not paused', { err: toError(thrown) }));
    while (!signal.aborted && !(await db.ping(PING_WITHIN_MS)).isAvailable) {
      await clock.sleep(AGAIN_MIN_MS * (1 + random()), signal);
    }
    if (signal.aborted) return;
    consumer.resume();
    log.info('recording resumed');
  }

  async #record(batch: readonly Delivery[]): Promise<readonly Became[]> {
    const became = new Map<Delivery, Became>();
    const sorted = batch.map((delivery) => ({ delivery, ...sort(delivery, this.#deps.names) }));
    const strays = await this.#recordInvitations(
      sorted.filter((each) => each.kind === 'invitation'),
      became,
    );
    const refused = sorted.filter((each) => each.kind === 'refused');
    const refusals = refused.length === 0 ? [] : await this.#deps.judge(refused.map(({ delivery }) => delivery));
    const letters = [
      ...strays,
      ...refused.map((each, index) => ({ delivery: each.delivery, letter: refusedLetter(each, refusals[index]) })),
      ...sorted.flatMap((each) =>
        each.kind === 'foreign' ? [{ delivery: each.delivery, letter: foreignLetter(each) }] : [],
      ),
    ];
    for (const chunk of chunksOf(letters)) {
      const results = await this.#insert(chunk.map(({ letter }) => letter));
      chunk.forEach(({ delivery }, index) => became.set(delivery, results[index] as Became));
    }
    return batch.map((delivery) => became.get(delivery) ?? 'kept');
  }

  /** Judges invitations by their tasks' rows, and gives back those that name no task that there is. */
  async #recordInvitations(
    items: readonly DeadInvitation[],
    became: Map<Delivery, Became>,
  ): Promise<readonly Addressed[]> {
    if (items.length === 0) return [];
    const { db, log, metrics, invite } = this.#deps;
    const rows = await runSplitting(
      db,
      items,
      async (some) => await this.#judgeInvitations(some),
      // The task matters more than what the broker said about it.
      async (item) => (await this.#judgeInvitations([withoutEvidence(item)]))[0] as InvitationRow,
    );
    const strays: Addressed[] = [];
    for (const [index, row] of rows.entries()) {
      const item = items[index] as DeadInvitation;
      const { delivery, message, evidence } = item;
      if (row.became === 'unknown') {
        const death = readDeath(message.headers);
        const note = 'an invitation to a task that is not in the database';
        strays.push({ delivery, letter: foreignLetter({ message, evidence, death }, note) });
        continue;
      }
      became.set(delivery, row.became as Became);
      if (row.is_first === true && row.reason !== null) metrics.deadLetters.add(1, row.reason);
      if (row.became === 'invited') metrics.invitedAnew.add(1, 'dead_lettered');
      if (row.became !== 'evidence')
        log.debug('dead invitation without a letter', { taskId: row.task_id, became: row.became });
    }
    for (const row of outboxRowsOf(rows, ({ task_id: taskId }) => taskId ?? '')) void invite(row); // never rejects
    return strays;
  }

  /** One row for each, in their order: what was done, else what was found. */
  async #judgeInvitations(items: readonly DeadInvitation[]): Promise<readonly InvitationRow[]> {
    const rows = await run(this.#deps.db, recordInvitations, ...invitationColumns(items));
    const judged = new Map<number, InvitationRow>();
    for (const row of rows) {
      const isDone = row.became === 'evidence' || row.became === 'invited';
      if (isDone || !judged.has(row.n ?? 0)) judged.set(row.n ?? 0, row);
    }
    return items.map((_item, index) => judged.get(index + 1) as InvitationRow);
  }

  async #insert(letters: readonly NewLetter[]): Promise<readonly Became[]> {
    const [only] = letters;
    if (letters.length === 1 && only !== undefined) {
      try {
        return await retryConflicts(this.#deps.db, async () => await this.#insertAll(letters));
      } catch (thrown) {
        if (isUnavailable(thrown)) throw thrown;
        return [await this.#park(only, thrown)];
      }
    }
    return await runSplitting(
      this.#deps.db,
      letters,
      async (items) => await this.#insertAll(items),
      async (letter, thrown) => await this.#park(letter, thrown),
    );
  }

  async #insertAll(letters: readonly NewLetter[]): Promise<readonly Became[]> {
    const { db, log, metrics } = this.#deps;
    const rows = await run(db, recordLetters, ...letterColumns(letters));
    if (rows.length < letters.length) {
      const first = new Set(rows.map(({ id }) => id));
      const known = letters.filter(({ id }) => !first.has(id));
      const released = await run(
        db,
        releaseKeys,
        known.map(({ key }) => key),
      );
      if (released.length > 0) rows.push(...(await run(db, recordLetters, ...letterColumns(known))));
    }
    for (const { reason } of rows) metrics.deadLetters.add(1, reason);
    if (rows.length > 0) log.info('dead letters recorded', { count: rows.length, letters: rows.slice(0, 10) });
    const recorded = new Set(rows.map(({ id }) => id));
    return letters.map(({ id }) => (recorded.has(id) ? 'recorded' : 'known'));
  }

  /** Postgres refuses a value of this letter: it is recorded without what may be at fault, so that it is seen and does not come again. */
  async #park(letter: NewLetter, refusal: unknown): Promise<Became> {
    const err = toError(refusal);
    try {
      const [became] = await this.#insertAll([reducedLetter(letter, err.message)]);
      this.#deps.log.warn('dead letter reduced', { letterId: letter.id, err });
      return became ?? 'kept';
    } catch (thrown) {
      if (isUnavailable(thrown)) throw thrown;
      this.#deps.log.error('dead letter refused by postgres', {
        letterId: letter.id,
        err: toError(thrown),
        hint: 'it stays in the dead-letter queue and is tried again',
      });
      return 'kept';
    }
  }
}

type DeadInvitation = { readonly delivery: Delivery } & Extract<Sorted, { kind: 'invitation' }>;

type InvitationRow = RowOf<typeof recordInvitations.columns>;

function withoutEvidence(item: DeadInvitation): DeadInvitation {
  return { ...item, evidence: { properties: '{}', headers: '{}' } };
}

interface Addressed {
  readonly delivery: Delivery;
  readonly letter: NewLetter;
}

function chunksOf(letters: readonly Addressed[]): readonly (readonly Addressed[])[] {
  const chunks: Addressed[][] = [];
  let bytes = BATCH_BYTES;
  for (const each of letters) {
    bytes += each.letter.body.length;
    const chunk = chunks.at(-1);
    if (chunk === undefined || bytes > BATCH_BYTES) {
      chunks.push([each]);
      bytes = each.letter.body.length;
    } else chunk.push(each);
  }
  return chunks;
}

function invitationColumns(items: readonly DeadInvitation[]): ParamsOf<typeof recordInvitations> {
  return [
    items.map((_item, index) => index + 1),
    items.map(({ invitation }) => invitation.taskId),
    items.map(({ invitation }) => invitation.generation),
    items.map(({ message }) => readDeath(message.headers)?.exchange ?? message.exchange),
    items.map(({ message }) => storableText(message.routingKey, 255)),
    items.map(({ evidence }) => evidence.properties),
    items.map(({ evidence }) => evidence.headers),
    items.map(({ evidence }) => evidence.xDeath ?? null),
    YOUNG_MS,
    YOUNG_MS,
  ];
}

function letterColumns(letters: readonly NewLetter[]): ParamsOf<typeof recordLetters> {
  return [
    letters.map(({ id }) => id),
    letters.map(({ kind }) => kind),
    letters.map(({ reason }) => reason),
    letters.map(({ type }) => type),
    letters.map(({ queue }) => queue),
    letters.map(({ errorCode }) => errorCode),
    letters.map(({ errorMessage }) => errorMessage),
    letters.map(({ exchange }) => exchange),
    letters.map(({ routingKey }) => routingKey),
    letters.map(({ body }) => body),
    letters.map(({ properties }) => properties),
    letters.map(({ headers }) => headers),
    letters.map(({ xDeath }) => xDeath),
    letters.map(({ key }) => key),
  ];
}
