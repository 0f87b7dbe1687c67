/**
 * Tells whoever asked for it how a task ended. A callback is a row that was written with its task, and stays until it was told: a
 * webhook's as a task of its own, with a message id, so that telling twice makes no second one; a publisher's queue by a confirmed
 * publish. So a crash at any moment costs time alone. The statements that end tasks know nothing of it.
 */
import { createHash } from 'node:crypto';
import { JSON_CONTENT_TYPE } from '../../shared/amqp/message.ts';
import type { Outgoing } from '../../shared/amqp/outgoing.ts';
import { isOwnQueue } from '../../shared/amqp/topology.ts';
import type { Names } from '../../shared/amqp/topology.ts';
import { toError } from '../../shared/errors/to-error.ts';
import { isWarrenError } from '../../shared/errors/warren-error.ts';
import { Loop } from '../../shared/lifecycle/loop.ts';
import type { LoopDeps } from '../../shared/lifecycle/loop.ts';
import type { Metrics } from '../../shared/observability/metrics.ts';
import { traceHeaders } from '../../shared/observability/trace-context.ts';
import { execute, run } from '../../shared/postgres/statement.ts';
import type { Queryable } from '../../shared/postgres/statement.ts';
import { parseCallback, WEBHOOK_TYPE } from '../../shared/tasks/callback.ts';
import type { Callback } from '../../shared/tasks/callback.ts';
import { stateOf } from '../../shared/tasks/state-machine.ts';
import type { Acceptance, Submission } from '../../shared/tasks/submission.ts';
import type { Catalog } from '../../shared/tasks/type-catalog.ts';
import { markTold, readOutcomes, takeCallbacks, walkCallbacks } from './callbacks.sql.ts';
import { outcomeId, renderOutcome, renderWebhook } from './outcome-message.ts';
import type { OutcomeRow } from './outcome-message.ts';

/** Start of the address that RabbitMQ gives a publisher who named `amq.rabbitmq.reply-to`. */
const DIRECT_REPLY_TO = 'amq.rabbitmq.reply-to.';

/** What callbacks need. */
export interface CallbacksDeps extends Omit<LoopDeps, 'round'> {
  readonly db: Queryable;
  readonly catalog: Pick<Catalog, 'find'>;
  /** Throws `database-unavailable` and `outbox-full`. */
  readonly submit: (submission: Submission) => Promise<Acceptance>;
  /** Publishes; resolves with the broker's confirm. */
  readonly publish: (message: Outgoing) => Promise<void>;
  readonly canPublish: () => boolean;
  /** Warren's own queues, which get no replies. */
  readonly names: Pick<Names, 'ingress' | 'dead' | 'queue'>;
  readonly metrics: Pick<Metrics, 'callbacks' | 'published'>;
}

/** How often it looks. */
export interface CallbacksOptions {
  /** Milliseconds between two looks. Default 500. */
  readonly intervalMs: number;
  /** Milliseconds after which another producer may tell what one has taken; longer than a confirm may take. Default 30 000. */
  readonly takenMs: number;
}

/** The defaults. */
export const DEFAULT_CALLBACKS: CallbacksOptions = { intervalMs: 500, takenMs: 30_000 };

/** Rows that one look walks: some 10 ms. With more of them the walk goes on in the next round. */
const PER_LOOK = 5_000;
/** Told at once; their results are in memory together. */
const AT_ONCE = 50;
const BEFORE_ALL_IDS = '00000000-0000-0000-0000-000000000000';
/** Who hands in webhooks, as their tasks show. With it a message id that comes again is told. */
const PUBLISHER = 'warren-producer';

type Told = 'told' | 'not_wanted' | 'unroutable' | 'refused' | 'later';

/** Finds what has ended, and tells. */
export class Callbacks {
  readonly #deps: CallbacksDeps;
  readonly #options: CallbacksOptions;
  #walkedTo = BEFORE_ALL_IDS;

  constructor(deps: CallbacksDeps, options: CallbacksOptions = DEFAULT_CALLBACKS) {
    this.#deps = deps;
    this.#options = options;
  }

  /** The loop. */
  loop(): Loop {
    return new Loop(
      { ...this.#deps, round: async (signal) => await this.round(signal) },
      { name: 'callbacks', intervalMs: this.#options.intervalMs },
    );
  }

  /** One look, and what it found. True where more is waiting. Throws as `Queryable.query`. */
  async round(signal: AbortSignal): Promise<boolean> {
    const rows = await run(this.#deps.db, walkCallbacks, this.#walkedTo, PER_LOOK);
    const [walk] = rows;
    const hasMore = walk?.rows_seen === PER_LOOK && walk.last_id !== null;
    this.#walkedTo = hasMore ? (walk.last_id ?? BEFORE_ALL_IDS) : BEFORE_ALL_IDS;
    const ended = rows.flatMap(({ task_id: taskId }) => (taskId === null ? [] : [taskId]));
    for (let from = 0; from < ended.length && !signal.aborted; from += AT_ONCE) {
      await this.#tellSome(ended.slice(from, from + AT_ONCE));
    }
    return hasMore && ended.length > 0;
  }

  async #tellSome(taskIds: readonly string[]): Promise<void> {
    const { db } = this.#deps;
    const taken = await run(db, takeCallbacks, taskIds, this.#options.takenMs);
    if (taken.length === 0) return;
    const outcomes = new Map(
      (
        await run(
          db,
          readOutcomes,
          taken.map(({ task_id: taskId }) => taskId),
        )
      ).map((row) => [row.id, row]),
    );
    await Promise.all(
      taken.map(async ({ task_id: taskId, callback }) => await this.#tell(taskId, callback, outcomes.get(taskId))),
    );
  }

  /** Tells one end and writes down that it is told. What cannot be told now is tried again once it is nobody's any more. */
  async #tell(taskId: string, kept: unknown, task: OutcomeRow | undefined): Promise<void> {
    const { db, log, metrics } = this.#deps;
    const callback = parseCallback(kept);
    if (task === undefined || callback === undefined) {
      // The row of the task is gone, or somebody replayed it a moment ago: then it is looked at again after its next end.
      if (callback === undefined) log.error('callback cannot be read', { taskId });
      await execute(db, markTold, taskId, callback === undefined ? null : 'dead');
      return;
    }
    let told: Told;
    try {
      told = callback.kind === 'webhook' ? await this.#callWebhook(callback, task) : await this.#reply(callback, task);
    } catch (thrown) {
      log.warn('callback delayed', { taskId, kind: callback.kind, err: toError(thrown) });
      told = 'later';
    }
    metrics.callbacks.add(1, callback.kind, told);
    if (told !== 'later') await execute(db, markTold, taskId, task.state);
  }

  /** Hands the call in as a task of its own. */
  async #callWebhook(callback: Extract<Callback, { kind: 'webhook' }>, task: OutcomeRow): Promise<Told> {
    const { catalog, submit, log } = this.#deps;
    if (callback.states?.includes(stateOf(task.state)) === false) return 'not_wanted';
    const type = catalog.find(WEBHOOK_TYPE);
    if (type === undefined) {
      log.warn('callback waits for a worker', { taskId: task.id, taskType: WEBHOOK_TYPE });
      return 'later';
    }
    const id = outcomeId(task);
    const acceptance = await submit({
      type: WEBHOOK_TYPE,
      queue: type.queue,
      priority: type.priority,
      maxAttempts: type.maxAttempts,
      input: Buffer.from(JSON.stringify({ url: callback.url, id, body: renderWebhook(task) })),
      correlationId: task.id,
      external: { publisher: PUBLISHER, messageId: id, digest: createHash('sha256').update(id).digest() },
      ...(task.trace === null ? {} : { trace: task.trace }),
    });
    if (acceptance.kind !== 'refused') return 'told';
    log.error('webhook cannot be handed in', { taskId: task.id, reason: acceptance.fault.reason });
    return 'refused';
  }

  /** Publishes to the queue that a publisher named. What leads nowhere is logged and not tried again: its owner is gone. */
  async #reply(callback: Extract<Callback, { kind: 'reply' }>, task: OutcomeRow): Promise<Told> {
    const { names, publish, canPublish, metrics, log } = this.#deps;
    const { replyTo, correlationId } = callback;
    if (isOwnQueue(replyTo, names)) {
      log.warn('reply refused', { taskId: task.id, reason: 'reply_to names a queue of Warren' });
      return 'refused';
    }
    if (!canPublish()) return 'later';
    try {
      await publish({
        exchange: '',
        routingKey: replyTo,
        body: Buffer.from(`{"outcome":${renderOutcome(task)}}`),
        properties: {
          contentType: JSON_CONTENT_TYPE,
          messageId: outcomeId(task),
          ...(task.trace === null ? {} : { headers: traceHeaders(task.trace) }),
          ...(correlationId === undefined ? {} : { correlationId }),
        },
        // RabbitMQ 3.10 returns what it delivers by direct reply-to; whether such a publisher is still there, nobody can tell.
        mandatory: !replyTo.startsWith(DIRECT_REPLY_TO),
      });
      metrics.published.add(1, 'reply', 'confirmed');
      return 'told';
    } catch (thrown) {
      if (!isWarrenError(thrown, 'unroutable')) throw thrown;
      metrics.published.add(1, 'reply', 'unroutable');
      log.warn('reply unroutable', { taskId: task.id, replyTo, hint: 'its queue is gone, so nobody is told' });
      return 'unroutable';
    }
  }
}
