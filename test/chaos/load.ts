/** The load: mixed tasks through both doors, at a steady rate, whatever happens to the services. */
import { randomUUID } from 'node:crypto';
import { call } from '../../scripts/call.ts';
import { systemClock } from '../../shared/time/clock.ts';
import { Background } from './background.ts';
import { drawKind, KINDS } from './kinds.ts';
import type { Kind } from './kinds.ts';
import type { ChaosPublisher } from './publisher.ts';
import type { Log, Submission } from './submissions.ts';

/** What the load needs. */
export interface LoadDeps {
  readonly submissions: Log<Submission>;
  readonly publisher: ChaosPublisher;
  /** URL of a producer that is up, by a number from 0 to 1; `undefined` while there is none. */
  readonly producerUrl: (choice: number) => string | undefined;
  readonly random: () => number;
}

/** How heavy it is. */
export interface LoadOptions {
  /** Tasks a second, both doors together. */
  readonly perSecond: number;
  /** Seconds that it goes on. */
  readonly seconds: number;
  /** Log of the handlers. */
  readonly journal: string;
  /** Names of kinds; absent: all. */
  readonly kinds?: readonly string[];
}

interface Item {
  readonly key: string;
  readonly kind: Kind;
  readonly priority: number;
  readonly input: Readonly<Record<string, unknown>>;
  readonly delayMs: number | undefined;
  readonly deadline: string | undefined;
}

const AMQP_SHARE = 0.45;
/** Of what is not confirmed at once, this share is never sent again: a publisher that gave up. */
const GIVES_UP_SHARE = 0.2;
const BATCH_SHARE = 0.15;
const BATCH_SIZE = 8;
const MOST_UNDER_WAY = 300;
/** Of the time, after which nothing that kills its worker is submitted any more. */
const KILLERS_UNTIL = 0.6;

/** Submits until it is stopped. */
export class Load {
  readonly #deps: LoadDeps;
  readonly #options: LoadOptions;
  readonly #kinds: readonly Kind[];
  readonly #background = new Background();

  constructor(deps: LoadDeps, options: LoadOptions) {
    this.#deps = deps;
    this.#options = options;
    const { kinds } = options;
    this.#kinds = kinds === undefined ? KINDS : KINDS.filter(({ name }) => kinds.includes(name));
  }

  start(): void {
    this.#background.start(async () => await this.#run());
  }

  /** Submits no more, and resolves when every submission has its answer. Call it with the links healed. */
  async stop(): Promise<void> {
    await this.#background.stop();
  }

  async #run(): Promise<void> {
    const { random } = this.#deps;
    const startMs = systemClock.monotonicMs();
    let count = 0;
    while (!this.#background.signal.aborted) {
      const dueMs = startMs + (count / this.#options.perSecond) * 1_000;
      await systemClock.sleep(Math.max(1, dueMs - systemClock.monotonicMs()), this.#background.signal);
      // The draws do not depend on what was answered, so that a seed gives the same tasks.
      const door = random() < AMQP_SHARE ? 'amqp' : 'http';
      const size = door === 'http' && random() < BATCH_SHARE ? BATCH_SIZE : 1;
      const isLate = dueMs - startMs > this.#options.seconds * 1_000 * KILLERS_UNTIL;
      const items = Array.from({ length: size }, () => this.#draw(door, isLate));
      const choice = random();
      count += size;
      if (this.#background.underWay >= MOST_UNDER_WAY) continue;
      this.#background.track(door === 'amqp' ? this.#publish(items[0] as Item, choice) : this.#post(items, choice));
    }
  }

  #draw(door: 'amqp' | 'http', isLate: boolean): Item {
    const { random } = this.#deps;
    const kind = drawKind(
      this.#kinds.filter((each) => (each.door ?? door) === door && !(isLate && each.killsWorker === true)),
      random,
    );
    const drawn = kind.draw((least, most) => least + Math.floor(random() * (most - least + 1)));
    const input = { journal: this.#options.journal, ...drawn.input };
    const { delayMs, deadlineMs } = drawn;
    const deadline =
      deadlineMs === undefined ? undefined : new Date(systemClock.now().getTime() + deadlineMs).toISOString();
    return { key: randomUUID(), kind, priority: Math.floor(random() * 10), input, delayMs, deadline };
  }

  async #publish({ key, kind, priority, input, delayMs, deadline }: Item, choice: number): Promise<void> {
    const message = {
      routingKey: kind.type,
      body: Buffer.from(JSON.stringify(input)),
      messageId: key,
      priority,
      headers: {
        'warren-business-key': key,
        ...(delayMs === undefined ? {} : { 'warren-delay-ms': delayMs }),
        ...(deadline === undefined ? {} : { 'warren-deadline': deadline }),
      },
    };
    let times = 0;
    let isConfirmed = false;
    do {
      times += 1;
      isConfirmed = await this.#deps.publisher.publish(message);
    } while (!isConfirmed && choice >= GIVES_UP_SHARE && times < 1_000);
    const answer = isConfirmed ? 'accepted' : 'unknown';
    this.#deps.submissions.add({ key, kind: kind.name, door: 'amqp', answer, times });
  }

  async #post(items: readonly Item[], choice: number): Promise<void> {
    const tasks = items.map(({ key, kind, priority, input, delayMs, deadline }) => ({
      type: kind.type,
      input,
      priority,
      businessKey: key,
      ...(delayMs === undefined ? {} : { delayMs }),
      ...(deadline === undefined ? {} : { deadline }),
    }));
    const answers = await this.#ask(tasks, choice);
    items.forEach(({ key, kind }, index) => {
      const { status, taskId } = answers[index] ?? NOT_ANSWERED;
      const answer = taskId !== undefined ? 'accepted' : status >= 400 && status < 500 ? 'refused' : 'unknown';
      const id = taskId === undefined ? {} : { taskId };
      this.#deps.submissions.add({ key, kind: kind.name, door: 'http', answer, times: 1, ...id });
    });
  }

  async #ask(tasks: readonly Readonly<Record<string, unknown>>[], choice: number): Promise<readonly HttpAnswer[]> {
    const url = this.#deps.producerUrl(choice);
    if (url === undefined) return [];
    try {
      if (tasks.length === 1) {
        const { status, body } = await call(url, 'POST', '/v1/tasks', tasks[0]);
        return [{ status, ...(status === 202 ? { taskId: String(body['id']) } : {}) }];
      }
      const { status, body } = await call(url, 'POST', '/v1/tasks/batch', { tasks });
      const results = body['results'] as readonly {
        readonly status: number;
        readonly task?: { readonly id: string };
      }[];
      if (status !== 200 && status !== 207) return tasks.map(() => ({ status }));
      return results.map((result) => ({
        status: result.status,
        ...(result.task === undefined ? {} : { taskId: result.task.id }),
      }));
    } catch {
      return []; // killed, cut off, too late
    }
  }
}

interface HttpAnswer {
  readonly status: number;
  readonly taskId?: string;
}

const NOT_ANSWERED: HttpAnswer = { status: 0 };
