/**
 * Makes dead letters run again, and closes them unrun. A task goes back by one statement and an invitation; a message that
 * never was a task is marked as `replaying`, published until RabbitMQ has confirmed it, and then closed, so that a crash at
 * any moment leaves a letter that the loop below finishes.
 */
import type { Outgoing } from '../../shared/amqp/publisher.ts';
import type { Names } from '../../shared/amqp/topology.ts';
import { messageOf } from '../../shared/dead-letters/republish.ts';
import type { Destination } from '../../shared/dead-letters/republish.ts';
import type { LetterKind, LetterState } from '../../shared/dead-letters/reason.ts';
import { CATALOGUE } from '../../shared/errors/catalogue.ts';
import { toError } from '../../shared/errors/to-error.ts';
import { isWarrenError, WarrenError } from '../../shared/errors/warren-error.ts';
import type { Actor } from '../../shared/http/auth.ts';
import { Loop } from '../../shared/lifecycle/loop.ts';
import type { LoopDeps } from '../../shared/lifecycle/loop.ts';
import type { Metrics } from '../../shared/observability/metrics.ts';
import type { Database } from '../../shared/postgres/pool.ts';
import { run } from '../../shared/postgres/statement.ts';
import { retryConflicts } from '../../shared/postgres/transaction.ts';
import { newId } from '../../shared/tasks/ids.ts';
import type { OutboxRow } from '../../shared/tasks/invitation.ts';
import {
  beginReplay,
  discardLetter,
  finishReplays,
  readLetterHead,
  reopenLetter,
  replayTask,
  takeUnfinished,
} from './replayer.sql.ts';

/** What the replayer needs. */
export interface ReplayerDeps extends Omit<LoopDeps, 'round'> {
  readonly db: Database;
  readonly names: Names;
  readonly metrics: Pick<Metrics, 'replayed' | 'discarded' | 'invitations' | 'published'>;
  /** Publishes what a replay invited; never rejects. */
  readonly invite: (row: OutboxRow) => Promise<boolean>;
  /** Publishes with confirm; see `Publisher.publish`. */
  readonly publish: (message: Outgoing) => Promise<void>;
  /** False where RabbitMQ has no such exchange: a publish to it would close the channel. Throws `broker-unavailable`. */
  readonly hasExchange: (name: string) => Promise<boolean>;
}

/** How the replayer works. */
export interface ReplayerOptions {
  /** Where foreign letters may go, as `exchange/routing-key`. */
  readonly destinations: readonly string[];
  /** Milliseconds after which a replay that nobody finished is published again; longer than a confirm may take. */
  readonly unfinishedAfterMs: number;
}

/** What an operator asked for. */
export interface ReplayRequest {
  readonly letterId: string;
  readonly actor: Actor;
  /** Kept with the letter and in the audit. */
  readonly reason?: string | undefined;
  /** Where a foreign letter goes; absent: where it came from. */
  readonly destination?: Destination | undefined;
}

/** What became of a letter. */
export interface Replayed {
  readonly id: string;
  readonly kind: LetterKind;
  /** `replaying`: RabbitMQ has not confirmed yet; the replay is finished without further ado. */
  readonly state: Extract<LetterState, 'replayed' | 'replaying'>;
  readonly taskId?: string;
}

type Head = NonNullable<Awaited<ReturnType<typeof run<[string], typeof readLetterHead.columns>>>[number]>;

const UNFINISHED_EVERY_MS = 2_000;
const UNFINISHED_PER_ROUND = 20;
/** Who finishes what a crash left. */
const SYSTEM: Actor = { name: 'dead-letter-handler', role: 'operator' };

/** Replays and discards. */
export class Replayer {
  readonly #deps: ReplayerDeps;
  readonly #options: ReplayerOptions;

  constructor(deps: ReplayerDeps, options: ReplayerOptions) {
    this.#deps = deps;
    this.#options = options;
  }

  /**
   * Replays one letter: exactly one new run, however often it is called. Throws `dead-letter-not-found`,
   * `dead-letter-closed` (also to whoever came second), `task-not-found`, `field-invalid`, `destination-not-allowed`, `database-unavailable`,
   * and, with the letter open again, what kept RabbitMQ from taking the message.
   */
  async replay(request: ReplayRequest): Promise<Replayed> {
    const head = await this.#head(request.letterId);
    if (head.kind === 'task') return await this.#replayTask(head, request);
    const destination = this.#destinationOf(head, request);
    return await this.#replayMessage(head, destination, request);
  }

  /** Closes one letter unrun. Throws `dead-letter-not-found`, `dead-letter-closed`, `database-unavailable`. */
  async discard(request: { readonly letterId: string; readonly actor: Actor; readonly reason: string }): Promise<void> {
    const { actor, letterId, reason } = request;
    const { db, metrics } = this.#deps;
    const done = await retryConflicts(
      db,
      async () => await run(db, discardLetter, letterId, actor.name, actor.role, reason, newId()),
    );
    if (done.length === 0) throw closed(await this.#head(letterId));
    metrics.discarded.add(1);
  }

  /** Finishes replays that a crash or a late confirm cut off. A message may go twice then, with the same `message_id`. */
  loop(): Loop {
    const round = async (): Promise<boolean> => {
      const { db } = this.#deps;
      const rows = await run(db, takeUnfinished, this.#options.unfinishedAfterMs, UNFINISHED_PER_ROUND);
      for (const row of rows) {
        const destination = { exchange: row.replay_exchange ?? '', routingKey: row.replay_routing_key ?? '' };
        try {
          await this.#publish({ ...row, kind: row.kind as LetterKind }, destination, { actor: SYSTEM, isAgain: true });
        } catch (thrown) {
          this.#deps.log.warn('replay not finished', { letterId: row.id, err: toError(thrown) });
        }
      }
      return rows.length === UNFINISHED_PER_ROUND;
    };
    return new Loop({ ...this.#deps, round }, { name: 'unfinished replays', intervalMs: UNFINISHED_EVERY_MS });
  }

  async #head(letterId: string): Promise<Head> {
    const [head] = await run(this.#deps.db, readLetterHead, letterId);
    if (head === undefined) throw new WarrenError('dead-letter-not-found', { id: letterId });
    return head;
  }

  async #replayTask(head: Head, { letterId, actor, reason, destination }: ReplayRequest): Promise<Replayed> {
    if (destination !== undefined) throw notForTasks();
    const { db, metrics, invite } = this.#deps;
    const [row] = await retryConflicts(
      db,
      async () => await run(db, replayTask, letterId, actor.name, actor.role, reason ?? null, newId()),
    );
    if (row === undefined) {
      // Read anew: it was open a moment ago, and somebody may have been faster.
      const now = await this.#head(letterId);
      if (now.state === 'open' && now.task_state === null)
        throw new WarrenError('task-not-found', { id: head.task_id });
      throw closed(now);
    }
    metrics.invitations.add(1, 'replay');
    metrics.replayed.add(1, 'task');
    const { task_id: taskId, type, queue, priority, generation, outbox_id: id } = row;
    void invite({ id, invitations: [{ taskId, type, queue, priority, generation }] }); // never rejects
    return { id: letterId, kind: 'task', state: 'replayed', taskId };
  }

  /** What the front door refused goes through it again; anything else only where the configuration lets it. */
  #destinationOf(head: Head, { destination }: ReplayRequest): Destination {
    if (head.kind === 'refused') {
      if (destination !== undefined) throw notForTasks();
      return { exchange: this.#deps.names.tasks, routingKey: head.routing_key ?? '' };
    }
    const wanted = destination ?? { exchange: head.exchange ?? '', routingKey: head.routing_key ?? '' };
    if (!this.#options.destinations.includes(`${wanted.exchange}/${wanted.routingKey}`)) {
      throw new WarrenError('destination-not-allowed', { ...wanted });
    }
    return wanted;
  }

  async #replayMessage(head: Head, destination: Destination, request: ReplayRequest): Promise<Replayed> {
    const { letterId, actor, reason } = request;
    if (head.state === 'open' && head.reason === 'unstorable') {
      throw new WarrenError('field-invalid', { field: 'id', reason: 'only a part of this message was kept' });
    }
    const { db } = this.#deps;
    const { exchange, routingKey } = destination;
    const [row] = await retryConflicts(
      db,
      async () =>
        await run(db, beginReplay, letterId, actor.name, actor.role, reason ?? null, newId(), exchange, routingKey),
    );
    if (row === undefined) throw closed(await this.#head(letterId));
    const state = await this.#publish({ ...row, kind: row.kind as LetterKind }, destination, { actor, isAgain: false });
    return { id: letterId, kind: row.kind as LetterKind, state };
  }

  /**
   * Publishes and closes. Where the message certainly did not go, the letter is opened again and the failure thrown;
   * where it may have gone, now or before (`isAgain`), the letter stays `replaying` for the loop.
   */
  async #publish(
    row: Stored,
    destination: Destination,
    { actor, isAgain }: { readonly actor: Actor; readonly isAgain: boolean },
  ): Promise<'replayed' | 'replaying'> {
    const { db, log, metrics, publish, hasExchange } = this.#deps;
    const { exchange } = destination;
    const message = messageOf(
      {
        id: row.id,
        body: row.body ?? Buffer.alloc(0),
        properties: tableOf(row.properties),
        headers: tableOf(row.headers),
      },
      destination,
    );
    try {
      if (exchange !== '' && !(await hasExchange(exchange))) throw new WarrenError('unroutable', { exchange });
      await publish(message);
      metrics.published.add(1, 'replay', 'confirmed');
    } catch (thrown) {
      const err = toError(thrown);
      metrics.published.add(1, 'replay', answerOf(thrown));
      if (mayHaveGone(thrown) || (isAgain && isPassing(thrown))) {
        log.warn('replay not confirmed', { letterId: row.id, err });
        return 'replaying';
      }
      await run(db, reopenLetter, row.id, actor.name, actor.role, newId(), err.message);
      throw thrown;
    }
    try {
      const closedRows = await run(db, finishReplays, [row.id]);
      if (closedRows.length > 0 && row.kind !== 'task') metrics.replayed.add(1, row.kind);
      return 'replayed';
    } catch (thrown) {
      log.warn('replay not closed yet', { letterId: row.id, err: toError(thrown) });
      return 'replaying';
    }
  }
}

interface Stored {
  readonly id: string;
  readonly kind: LetterKind;
  readonly body: Buffer | null;
  readonly properties: unknown;
  readonly headers: unknown;
}

function tableOf(stored: unknown): Readonly<Record<string, unknown>> {
  return typeof stored === 'object' && stored !== null ? (stored as Record<string, unknown>) : {};
}

function closed({ id, state, closed_at: closedAt, closed_by: closedBy }: Head): WarrenError {
  return new WarrenError('dead-letter-closed', {
    id,
    state,
    ...(closedBy === null ? {} : { closedBy }),
    ...(closedAt === null ? {} : { closedAt: closedAt.toISOString() }),
  });
}

function notForTasks(): WarrenError {
  return new WarrenError('field-invalid', {
    field: 'destination',
    reason: 'is for letters that never were for Warren; this one goes back to where it came from',
  });
}

/** `broker-unavailable` says whether it was sent. */
function mayHaveGone(thrown: unknown): boolean {
  if (isWarrenError(thrown, 'confirm-late')) return true;
  return isWarrenError(thrown, 'broker-unavailable') && thrown.facts['wasSent'] === true;
}

/** What the next try may not meet any more. */
function isPassing(thrown: unknown): boolean {
  return !isWarrenError(thrown) || CATALOGUE[thrown.code].retryable;
}

function answerOf(thrown: unknown): 'refused' | 'unroutable' | 'late' | 'lost' {
  if (isWarrenError(thrown, 'unroutable')) return 'unroutable';
  if (isWarrenError(thrown, 'confirm-late')) return 'late';
  return isWarrenError(thrown, 'publish-refused') ? 'refused' : 'lost';
}
