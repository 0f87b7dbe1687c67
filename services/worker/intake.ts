/** Where deliveries come in: a consumer and its slots per queue. */
import { Consumer } from '../../shared/amqp/consumer.ts';
import type { ConsumerDeps } from '../../shared/amqp/consumer.ts';
import { PRIORITY } from '../../shared/amqp/topology.ts';
import { Loop } from '../../shared/lifecycle/loop.ts';
import type { Part } from '../../shared/lifecycle/part.ts';
import type { AttemptDeps } from './attempt.ts';
import { handleDelivery } from './attempt.ts';
import type { Isolation } from './isolation.ts';
import type { Starts } from './measures.ts';
import { Slots } from './slots.ts';

/** What the intake needs. */
export interface IntakeDeps extends Omit<ConsumerDeps, 'onDelivery' | 'onQueueMissing' | 'onServerCancel'> {
  readonly attempt: AttemptDeps;
  /** Full name of a work queue on the broker. */
  readonly queueName: (queue: string) => string;
  readonly onQueueMissing: () => Promise<void>;
  /** Told each time the broker cancelled the consumer of a queue. */
  readonly onServerCancel?: (queue: string) => void;
  /** False while Postgres does not answer: then no delivery is taken. */
  readonly canClaim: () => boolean;
  /** True while an operator has paused the queue. */
  readonly isQueuePaused: (queue: string) => boolean;
  /** Told once, when this worker has done what it was started for: nothing of it is under way any more. */
  readonly onDone: (reason: string) => void;
}

/** What to consume and how. */
export interface IntakeOptions {
  /** Queues with the attempts that run at once. */
  readonly queues: readonly { readonly name: string; readonly concurrency: number }[];
  /** Deliveries unanswered per queue; 0: twice the concurrency. */
  readonly prefetch: number;
  /** Milliseconds that a delivery waits for a slot before it is given back, so that another worker can start it. */
  readonly localWaitMs: number;
  /** Attempts that this worker starts at most, of all queues together; 0: any number. */
  readonly maxTasks: number;
  /** Milliseconds without anything under way after which it is done; 0: never. */
  readonly idleExitMs: number;
}

interface Line {
  readonly queue: string;
  readonly slots: Slots;
  readonly consumer: Consumer;
  readonly starts: readonly StartsOfPriority[];
  isPaused: boolean;
}

const LOOK_EVERY_MS = 250;
/** Milliseconds that the broker gets to confirm that a worker with nothing left to start takes nothing more. */
const CLOSE_WITHIN_MS = 30_000;
const HIGHEST_PREFETCH = 65_535;

const PRIORITIES = Array.from({ length: PRIORITY.highest + 1 });

interface StartsOfPriority {
  started: number;
  newest: string;
}

/** Counts what is started beside what else is told of it. Ids in canonical form sort as text. */
function countingStarts(attempt: AttemptDeps, starts: StartsOfPriority, onStarted: () => void): AttemptDeps {
  const { observe } = attempt;
  const started: AttemptDeps['observe']['started'] = (type, claim) => {
    starts.started += 1;
    if (claim.taskId > starts.newest) starts.newest = claim.taskId;
    observe.started(type, claim);
    onStarted();
  };
  return { ...attempt, observe: { ...observe, started } };
}

/** Takes deliveries of all queues of this worker. */
export class Intake implements Part {
  readonly #deps: IntakeDeps;
  readonly #options: IntakeOptions;
  readonly #lines: readonly Line[];
  readonly #watch: Loop;
  readonly #underWay = new Set<Promise<void>>();
  readonly #allowance: Slots | undefined;
  #startsLeft: number;
  #busyAtMs: number;
  #draining: Promise<void> | undefined;
  #takesNoMore = false;

  constructor(deps: IntakeDeps, options: IntakeOptions) {
    this.#deps = deps;
    this.#options = options;
    const { maxTasks } = options;
    this.#allowance = maxTasks === 0 ? undefined : new Slots(maxTasks, () => deps.clock.monotonicMs());
    this.#startsLeft = maxTasks === 0 ? Infinity : maxTasks;
    this.#busyAtMs = deps.clock.monotonicMs();
    this.#lines = options.queues.map(({ name, concurrency }) => this.#createLine(name, concurrency));
    this.#watch = new Loop(
      { ...deps, round: async () => await this.#look() },
      { name: 'intake', intervalMs: LOOK_EVERY_MS },
    );
  }

  /** True from the moment on at which the worker takes nothing new. */
  get isDraining(): boolean {
    return this.#draining !== undefined;
  }

  /** Per queue: what runs, what waits, whether the broker has our consumer. */
  get lines(): readonly {
    readonly queue: string;
    readonly taken: number;
    readonly waiting: number;
    readonly concurrency: number;
    readonly isConsuming: boolean;
    /** Deliveries that the broker holds for this worker until it answers. */
    readonly unanswered: number;
  }[] {
    return this.#lines.map(({ queue, slots, consumer, isPaused }) => ({
      queue,
      taken: slots.taken,
      waiting: slots.waiting,
      concurrency: slots.concurrency,
      unanswered: consumer.unanswered,
      // A full worker that gave back what waited is well; it consumes again with the next free slot, or once a suspect is through.
      isConsuming:
        consumer.isConsuming ||
        (isPaused &&
          (slots.taken === slots.concurrency || this.#isolation.isClosed || this.#deps.isQueuePaused(queue))),
    }));
  }

  /** What was started, by queue and priority. */
  get starts(): readonly Starts[] {
    return this.#lines.flatMap(({ queue, starts }) =>
      starts.map(({ started, newest }, priority) => ({ queue, priority, started, newest })),
    );
  }

  async start(): Promise<void> {
    this.#busyAtMs = this.#deps.clock.monotonicMs();
    for (const { consumer } of this.#lines) await consumer.start();
    await this.#watch.start();
  }

  /** Takes nothing new: cancels the consumers, waits for the broker's word, and sends away what waits for a slot. */
  async drain(deadlineMs: number): Promise<void> {
    this.#draining ??= this.#drainAll(deadlineMs);
    await this.#within(this.#draining, deadlineMs);
    // A broker that did not answer the cancel in time may still deliver: nothing of that starts.
    this.#sendAway();
  }

  async #drainAll(deadlineMs: number): Promise<void> {
    await this.#watch.stop(deadlineMs);
    await Promise.all(this.#lines.map(async ({ consumer }) => await this.#within(consumer.cancel(), deadlineMs)));
    this.#sendAway();
  }

  #sendAway(): void {
    this.#takesNoMore = true;
    this.#allowance?.giveBack();
    for (const { slots } of this.#lines) slots.giveBack();
    this.#isolation.stop();
  }

  /** The last attempt that this worker starts has begun. What runs is waited for however long it takes: no deadline is over it. */
  async #finish(reason: string): Promise<void> {
    await this.drain(this.#deps.clock.monotonicMs() + CLOSE_WITHIN_MS);
    await this.idle();
    this.#deps.onDone(reason);
  }

  /** Resolves when every delivery that was taken is answered. */
  async idle(): Promise<void> {
    await Promise.all(this.#underWay);
  }

  /** Waits until what is under way is answered, then closes the channels. */
  async stop(deadlineMs: number): Promise<void> {
    if (!this.isDraining) await this.drain(deadlineMs);
    await this.#within(this.idle(), deadlineMs);
    await Promise.all(this.#lines.map(async ({ consumer }) => await consumer.close(deadlineMs)));
  }

  get #isolation(): Isolation {
    return this.#deps.attempt.isolation;
  }

  #createLine(queue: string, concurrency: number): Line {
    const { clock, queueName } = this.#deps;
    const { maxTasks } = this.#options;
    const slots = new Slots(concurrency, () => clock.monotonicMs());
    // What it will not start others shall have at once.
    const most = maxTasks === 0 ? HIGHEST_PREFETCH : Math.min(maxTasks, HIGHEST_PREFETCH);
    const prefetch = Math.min(this.#options.prefetch === 0 ? 2 * concurrency : this.#options.prefetch, most);
    const attempt = { ...this.#deps.attempt, allowance: this.#allowance };
    const starts = PRIORITIES.map((): StartsOfPriority => ({ started: 0, newest: '' }));
    const onStarted = (): void => {
      this.#startsLeft -= 1;
      if (this.#startsLeft === 0) void this.#finish(`has run the ${maxTasks} tasks of worker.maxTasks`); // never rejects
    };
    const counting = starts.map((of) => countingStarts(attempt, of, onStarted));
    const consumer = new Consumer(
      {
        ...this.#deps,
        onServerCancel: () => this.#deps.onServerCancel?.(queue),
        onDelivery: (delivery) => {
          if (this.#takesNoMore) return delivery.nack();
          const way = handleDelivery(delivery, slots, counting[delivery.priority] ?? attempt).finally(() =>
            this.#underWay.delete(way),
          );
          this.#underWay.add(way); // never rejects
        },
      },
      { queue: queueName(queue), prefetch },
    );
    return { queue, slots, consumer, starts, isPaused: false };
  }

  /** Pauses queues that cannot be served, and resumes those that can again; and sees whether this worker has long had nothing to do. */
  async #look(): Promise<void> {
    const nowMs = this.#deps.clock.monotonicMs();
    const { idleExitMs } = this.#options;
    // Nor is it idle while nothing may start: another in its place would find the same.
    const mayStart = this.#deps.canClaim() && this.#lines.some(({ queue }) => !this.#deps.isQueuePaused(queue));
    if (this.#underWay.size > 0 || !mayStart) this.#busyAtMs = nowMs;
    else if (idleExitMs > 0 && nowMs - this.#busyAtMs >= idleExitMs) {
      void this.#finish(`had nothing to do for the ${idleExitMs} ms of worker.idleExitMs`); // never rejects
      return;
    }
    const isAvailable = this.#deps.canClaim();
    const isolation = this.#isolation;
    for (const line of this.#lines) {
      const { slots, consumer } = line;
      const canClaim = isAvailable && !this.#deps.isQueuePaused(line.queue);
      const waitsMs = [slots.longestWaitMs, this.#allowance?.longestWaitMs ?? 0, isolation.longestWaitMs];
      const isStuck = Math.max(...waitsMs) > this.#options.localWaitMs;
      if (!line.isPaused && (!canClaim || isStuck)) {
        line.isPaused = true;
        // Nobody may hold work that others could start: what waits here goes back once nothing new comes.
        await consumer.pause();
        this.#allowance?.giveBack();
        slots.giveBack();
        isolation.giveBack();
      } else if (line.isPaused && canClaim && slots.taken < slots.concurrency && !isolation.isClosed) {
        line.isPaused = false;
        consumer.resume();
      }
    }
  }

  async #within(promise: Promise<void>, deadlineMs: number): Promise<void> {
    const { clock } = this.#deps;
    const race = new AbortController();
    await Promise.race([promise, clock.sleep(deadlineMs - clock.monotonicMs(), race.signal)]);
    race.abort();
  }
}
