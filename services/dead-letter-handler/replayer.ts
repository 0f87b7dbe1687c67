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
import type { ReplayId } from '../../shared/tasks/ids.ts';
import type { OutboxRow } from '../../shared/tasks/invitation.ts';
import { checkLetter } from './letter-etag.ts';
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
  readonly metrics: Pick<Metrics, 'replayed' | 'discarded' | 'published'>;
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
  /** ETag of the letter that was looked at: nothing is done where it stands otherwise by now. */
  readonly ifMatch?: string | undefined;
}

/** What an operator asked to be closed. */
export type DiscardRequest = Pick<ReplayRequest, 'letterId' | 'actor' | 'ifMatch'> & { readonly reason: string };

/** What became of a letter. */
export interface Replayed {
  readonly id: string;
  readonly kind: LetterKind;
  /** `replaying`: RabbitMQ has not confirmed yet; the replay is finished without further ado. */
  readonly state: Extract<LetterState, 'replayed' | 'replaying'>;
  readonly taskId?: string;
  /** The replay of one that it is. */
  readonly replayId: string;
}

/** What decides where a letter's message goes. */
export interface MessageHead {
  readonly id: string;
  readonly kind: string | null;
  readonly state: string | null;
  readonly reason: string | null;
  readonly exchange: string | null;
  readonly routing_key: string | null;
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
   * `dead-letter-erased`, `dead-letter-closed` (also to whoever came second), `precondition-failed`, `task-not-found`, `field-invalid`, `destination-not-allowed`, `database-unavailable`,
   * and, with the letter open again, what kept RabbitMQ from taking the message.
   */
  async replay(request: ReplayRequest): Promise<Replayed> {
    const head = await this.#head(request.letterId);
    refuseErased(head);
    checkLetter(head, request.ifMatch);
    if (head.kind === 'task') return await this.#replayTask(head, request);
    const destination = this.destinationOf(head, request);
    return await this.#replayMessage(head, destination, request);
  }

  /** Closes one letter unrun. Throws `dead-letter-not-found`, `dead-letter-closed`, `precondition-failed`, `database-unavailable`. */
  async discard({ actor, letterId, reason, ifMatch }: DiscardRequest): Promise<void> {
    const { db, metrics } = this.#deps;
    if (ifMatch !== undefined) checkLetter(await this.#head(letterId), ifMatch);
    const done = await retryConflicts(
      db,
      async () =>
        await run(db, discardLetter, letterId, actor.name, actor.role, reason, newId(), actor.address ?? null),
    );
    if (done.length === 0) throw closed(await this.#head(letterId), ifMatch);
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

  async #replayTask(head: Head, { letterId, actor, reason, destination, ifMatch }: ReplayRequest): Promise<Replayed> {
    if (destination !== undefined) throw notForTasks();
    const { db, metrics, invite } = this.#deps;
    const replayId = newId<ReplayId>();
    const [row] = await retryConflicts(
      db,
      async () =>
        await run(
          db,
          replayTask,
          letterId,
          actor.name,
          actor.role,
          reason ?? null,
          newId(),
          replayId,
          actor.address ?? null,
        ),
    );
    if (row === undefined) {
      // Read anew: it was open a moment ago, and somebody may have been faster.
      const now = await this.#head(letterId);
      if (now.state === 'open' && now.task_state === null)
        throw new WarrenError('task-not-found', { id: head.task_id });
      throw closed(now, ifMatch);
    }
    metrics.replayed.add(1, 'task');
    const { task_id: taskId, type, queue, priority, generation, outbox_id: id } = row;
    void invite({ id, invitations: [{ taskId, type, queue, priority, generation }] }); // never rejects
    return { id: letterId, kind: 'task', state: 'replayed', taskId, replayId };
  }

  /**
   * Where a message goes: what the front door refused through it again; anything else only where the configuration lets it.
   * Throws `field-invalid`, `destination-not-allowed`.
   */
  destinationOf(head: MessageHead, { destination }: Pick<ReplayRequest, 'destination'> = {}): Destination {
    if (head.state === 'open' && head.reason === 'unstorable') {
      throw new WarrenError('field-invalid', { field: 'id', reason: 'only a part of this message was kept' });
    }
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
    const { db } = this.#deps;
    const { exchange, routingKey } = destination;
    const { name, role, address } = actor;
    const replayId = newId<ReplayId>();
    const [row] = await retryConflicts(
      db,
      async () =>
        await run(
          db,
          beginReplay,
          letterId,
          name,
          role,
          reason ?? null,
          newId(),
          replayId,
          exchange,
          routingKey,
          address ?? null,
        ),
    );
    if (row === undefined) throw closed(await this.#head(head.id), request.ifMatch);
    const state = await this.#publish({ ...row, kind: row.kind as LetterKind }, destination, { actor, isAgain: false });
    return { id: letterId, kind: row.kind as LetterKind, state, replayId };
  }

  /**
   * Publishes and closes a letter that a replay has taken. Throws what kept RabbitMQ from taking it, with the letter open again;
   * where a later try may not meet that any more, its item waits again.
   */
  async send(row: Stored, destination: Destination): Promise<void> {
    await this.#publish(row, destination, { actor: SYSTEM, isAgain: false, isPatient: true });
  }

  /**
   * Publishes and closes. Where the message certainly did not go, the letter is opened again and the failure thrown;
   * where it may have gone, now or before (`isAgain`), the letter stays `replaying` for the loop.
   */
  async #publish(
    row: Stored,
    destination: Destination,
    { actor, isAgain, isPatient = false }: PublishOptions,
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
      const isToWait = isPatient && isPassing(thrown);
      await run(
        db,
        reopenLetter,
        row.id,
        actor.name,
        actor.role,
        newId(),
        err.message,
        isToWait,
        actor.address ?? null,
      );
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

interface PublishOptions {
  readonly actor: Actor;
  /** True where it may have gone before. */
  readonly isAgain: boolean;
  /** True where somebody will try again. */
  readonly isPatient?: boolean;
}

/** A letter with its message. */
export interface Stored {
  readonly id: string;
  readonly kind: LetterKind;
  readonly body: Buffer | null;
  readonly properties: unknown;
  readonly headers: unknown;
}

function tableOf(stored: unknown): Readonly<Record<string, unknown>> {
  return typeof stored === 'object' && stored !== null ? (stored as Record<string, unknown>) : {};
}

/** Throws `precondition-failed` instead where that was asked for. */
function closed(head: Head, ifMatch: string | undefined): WarrenError {
  refuseErased(head);
  checkLetter(head, ifMatch);
  const { id, state, closed_at: closedAt, closed_by: closedBy } = head;
  return new WarrenError('dead-letter-closed', {
    id,
    state,
    ...(closedBy === null ? {} : { closedBy }),
    ...(closedAt === null ? {} : { closedAt: closedAt.toISOString() }),
  });
}

/** Throws `dead-letter-erased`. */
function refuseErased({ id, erased_at: erasedAt }: Head): void {
  if (erasedAt !== null) throw new WarrenError('dead-letter-erased', { id, erasedAt: erasedAt.toISOString() });
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
export function isPassing(thrown: unknown): boolean {
  return !isWarrenError(thrown) || CATALOGUE[thrown.code].retryable;
}

function answerOf(thrown: unknown): 'refused' | 'unroutable' | 'late' | 'lost' {
  if (isWarrenError(thrown, 'unroutable')) return 'unroutable';
  if (isWarrenError(thrown, 'confirm-late')) return 'late';
  return isWarrenError(thrown, 'publish-refused') ? 'refused' : 'lost';
}
