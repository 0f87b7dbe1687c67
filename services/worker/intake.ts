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
}

/** What to consume and how. */
export interface IntakeOptions {
  /** Queues with the attempts that run at once. */
  readonly queues: readonly { readonly name: string; readonly concurrency: number }[];
  /** Deliveries unanswered per queue; 0: twice the concurrency. */
  readonly prefetch: number;
  /** Milliseconds that a delivery waits for a slot before it is given back, so that another worker can start it. */
  readonly localWaitMs: number;
}

interface Line {
  readonly queue: string;
  readonly slots: Slots;
  readonly consumer: Consumer;
  readonly starts: readonly StartsOfPriority[];
  isPaused: boolean;
}

const LOOK_EVERY_MS = 250;
const HIGHEST_PREFETCH = 65_535;

const PRIORITIES = Array.from({ length: PRIORITY.highest + 1 });

interface StartsOfPriority {
  started: number;
  newest: string;
}

/** Counts what is started beside what else is told of it. Ids in canonical form sort as text. */
function countingStarts(attempt: AttemptDeps, starts: StartsOfPriority): AttemptDeps {
  const { observe } = attempt;
  const started: AttemptDeps['observe']['started'] = (type, claim) => {
    starts.started += 1;
    if (claim.taskId > starts.newest) starts.newest = claim.taskId;
    observe.started(type, claim);
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
  #isDraining = false;
  #takesNoMore = false;

  constructor(deps: IntakeDeps, options: IntakeOptions) {
    this.#deps = deps;
    this.#options = options;
    this.#lines = options.queues.map(({ name, concurrency }) => this.#createLine(name, concurrency));
    this.#watch = new Loop(
      { ...deps, round: async () => await this.#look() },
      { name: 'intake', intervalMs: LOOK_EVERY_MS },
    );
  }

  /** True from the moment on at which the worker takes nothing new. */
  get isDraining(): boolean {
    return this.#isDraining;
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
    for (const { consumer } of this.#lines) await consumer.start();
    await this.#watch.start();
  }

  /** Takes nothing new: cancels the consumers, waits for the broker's word, and sends away what waits for a slot. */
  async drain(deadlineMs: number): Promise<void> {
    this.#isDraining = true;
    await this.#watch.stop(deadlineMs);
    await Promise.all(this.#lines.map(async ({ consumer }) => await this.#within(consumer.cancel(), deadlineMs)));
    // A broker that did not answer the cancel in time may still deliver: nothing of that starts.
    this.#takesNoMore = true;
    for (const { slots } of this.#lines) slots.giveBack();
    this.#isolation.stop();
  }

  /** Resolves when every delivery that was taken is answered. */
  async idle(): Promise<void> {
    await Promise.all(this.#underWay);
  }

  /** Waits until what is under way is answered, then closes the channels. */
  async stop(deadlineMs: number): Promise<void> {
    if (!this.#isDraining) await this.drain(deadlineMs);
    await this.#within(this.idle(), deadlineMs);
    await Promise.all(this.#lines.map(async ({ consumer }) => await consumer.close(deadlineMs)));
  }

  get #isolation(): Isolation {
    return this.#deps.attempt.isolation;
  }

  #createLine(queue: string, concurrency: number): Line {
    const { clock, queueName } = this.#deps;
    const slots = new Slots(concurrency, () => clock.monotonicMs());
    const prefetch =
      this.#options.prefetch === 0 ? Math.min(2 * concurrency, HIGHEST_PREFETCH) : this.#options.prefetch;
    const { attempt } = this.#deps;
    const starts = PRIORITIES.map((): StartsOfPriority => ({ started: 0, newest: '' }));
    const counting = starts.map((of) => countingStarts(attempt, of));
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

  /** Pauses queues that cannot be served, and resumes those that can again. */
  async #look(): Promise<void> {
    const isAvailable = this.#deps.canClaim();
    const isolation = this.#isolation;
    for (const line of this.#lines) {
      const { slots, consumer } = line;
      const canClaim = isAvailable && !this.#deps.isQueuePaused(line.queue);
      const isStuck = Math.max(slots.longestWaitMs, isolation.longestWaitMs) > this.#options.localWaitMs;
      if (!line.isPaused && (!canClaim || isStuck)) {
        line.isPaused = true;
        // Nobody may hold work that others could start: what waits here goes back once nothing new comes.
        await consumer.pause();
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
