/**
 * What a process knows of task types and queues: loaded from Postgres, kept fresh, served from memory. Names come from
 * strangers, so they are looked up in Maps and nowhere else.
 */
import { toError } from '../errors/to-error.ts';
import { isWarrenError, WarrenError } from '../errors/warren-error.ts';
import { Loop } from '../lifecycle/loop.ts';
import type { Part } from '../lifecycle/part.ts';
import type { Logger } from '../observability/log.ts';
import { run } from '../postgres/statement.ts';
import type { Queryable, RowOf } from '../postgres/statement.ts';
import type { Clock } from '../time/clock.ts';
import type { ConcurrencyLimit, Isolation, RateLimit } from './define-task.ts';
import { compileInputSchema } from './input-schema.ts';
import type { CheckInput, CompiledSchema } from './input-schema.ts';
import type { RetryPolicy } from './retry-policy.ts';
import { digestCatalog, loadQueues, loadTaskTypes } from './type-catalog.sql.ts';

/** A task type as it was announced. */
export interface KnownType {
  readonly name: string;
  readonly queue: string;
  /** 0 to 9. */
  readonly priority: number;
  /** 1 to 100. */
  readonly maxAttempts: number;
  readonly timeoutMs: number;
  /** `undefined` where the announcement did not say. */
  readonly isolation: Isolation | undefined;
  readonly keepLogs: boolean | undefined;
  readonly retry: Pick<RetryPolicy, 'maxAttempts' | 'firstDelayMs' | 'maxDelayMs'> | undefined;
  readonly concurrency: ConcurrencyLimit | undefined;
  readonly rate: RateLimit | undefined;
  readonly codeVersion: string;
  readonly announcedAt: Date;
  /** Text of its JSON Schema, `undefined` where it has none. */
  readonly inputSchema: string | undefined;
  /** Checks an input; `undefined` where only workers can. Compiled at its first use. */
  readonly checkInput: CheckInput | undefined;
}

/** What checking a submission needs to know. */
export interface Catalog {
  find(name: string): KnownType | undefined;
  hasQueue(name: string): boolean;
}

/** What the catalog needs. */
export interface TypeCatalogDeps {
  readonly db: Queryable;
  readonly clock: Clock;
  readonly log: Logger;
  readonly random: () => number;
  /** See `LoopDeps`. */
  readonly onFailure?: (loop: string) => void;
}

/** How fresh the catalog is kept. */
export interface TypeCatalogOptions {
  /** Milliseconds between two looks for announcements. Default 1 000. */
  readonly refreshMs: number;
  /** Milliseconds between two looks that misses cause, all misses together. Default 100. */
  readonly missGapMs: number;
}

/** Defaults. */
export const DEFAULT_CATALOG: TypeCatalogOptions = { refreshMs: 1_000, missGapMs: 100 };

/** Task types and queues. While Postgres is away it serves what it knows. */
export class TypeCatalog implements Part, Catalog {
  readonly #deps: TypeCatalogDeps;
  readonly #options: TypeCatalogOptions;
  readonly #loop: Loop;
  #types: ReadonlyMap<string, KnownType> = new Map();
  #queues: ReadonlyMap<string, RowOf<typeof loadQueues.columns>> = new Map();
  #compiled = new Map<string, CompiledSchema>();
  #digest: string | undefined;
  #turn = 0;
  #appliedTurn = 0;
  #lastLookMs = Number.NEGATIVE_INFINITY;
  #nextLook: Promise<void> | undefined;

  constructor(deps: TypeCatalogDeps, options: TypeCatalogOptions = DEFAULT_CATALOG) {
    this.#deps = deps;
    this.#options = options;
    this.#loop = new Loop(
      { ...deps, round: async () => await this.refresh() },
      { name: 'type catalog', intervalMs: options.refreshMs },
    );
  }

  /** False until the first load: an empty catalog then says nothing about which types there are. */
  get isLoaded(): boolean {
    return this.#digest !== undefined;
  }

  /** Loads, then keeps fresh. Starts empty where Postgres is away. */
  async start(): Promise<void> {
    try {
      await this.refresh();
    } catch (thrown) {
      this.#deps.log.warn('task types not loaded yet', { err: toError(thrown) });
    }
    await this.#loop.start();
  }

  async stop(deadlineMs: number): Promise<void> {
    await this.#loop.stop(deadlineMs);
  }

  find(name: string): KnownType | undefined {
    return this.#types.get(name);
  }

  hasQueue(name: string): boolean {
    return this.#queues.has(name);
  }

  /** Every task type, by name. */
  types(): readonly KnownType[] {
    return [...this.#types.values()];
  }

  /** Every queue, by name. */
  queues(): readonly string[] {
    return [...this.#queues.keys()];
  }

  /** Why a queue holds back what comes in, where it does: for its turn, or while it is drained. At most a look late. */
  holdReasonOf(queue: string): 'turn' | 'draining' | undefined {
    const known = this.#queues.get(queue);
    if (known?.is_fair === true) return 'turn';
    return known?.mode === 'draining' ? 'draining' : undefined;
  }

  /** True where what waits in a queue starts by priority and age: the queue is open, and not fair. At most a look late. */
  startsInOrder(queue: string): boolean {
    const known = this.#queues.get(queue);
    return known?.mode === 'open' && known.is_fair !== true;
  }

  /** Looks for announcements now. Throws as `Queryable.query`. */
  async refresh(): Promise<void> {
    this.#turn += 1;
    const turn = this.#turn;
    this.#lastLookMs = this.#deps.clock.monotonicMs();
    const { db } = this.#deps;
    const [{ digest } = { digest: '' }] = await run(db, digestCatalog);
    if (digest === this.#digest) return;
    // Read after its digest: what is announced in between is loaded, and loaded again in the next round.
    const queues = await run(db, loadQueues);
    const types = await run(db, loadTaskTypes);
    if (turn < this.#appliedTurn) return;
    this.#appliedTurn = turn;
    this.#apply(types, queues);
    this.#digest = digest;
  }

  /**
   * Resolves after a look that began after this call, so that a type announced a moment ago is not called unknown.
   * Misses share looks, which are `missGapMs` apart. Throws `database-unavailable` where Postgres cannot say.
   */
  async refreshAfterMiss(): Promise<void> {
    this.#nextLook ??= this.#lookSoon();
    try {
      await this.#nextLook;
    } catch (thrown) {
      if (isWarrenError(thrown)) throw thrown;
      throw new WarrenError('database-unavailable', { reason: 'task types cannot be read' }, thrown);
    }
  }

  async #lookSoon(): Promise<void> {
    const waitMs = this.#lastLookMs + this.#options.missGapMs - this.#deps.clock.monotonicMs();
    // Also with nothing to wait for, so that whoever asks first has set `#nextLook` before it is cleared.
    await this.#deps.clock.sleep(Math.max(0, waitMs));
    this.#nextLook = undefined;
    await this.refresh();
  }

  #apply(
    rows: readonly RowOf<typeof loadTaskTypes.columns>[],
    queues: readonly RowOf<typeof loadQueues.columns>[],
  ): void {
    const schemas = new Set(rows.map((row) => row.input_schema));
    this.#compiled = new Map([...this.#compiled].filter(([text]) => schemas.has(text)));
    this.#types = new Map(rows.map((row) => [row.name, this.#toType(row)]));
    this.#queues = new Map(queues.map((queue) => [queue.name, queue]));
  }

  #toType(row: RowOf<typeof loadTaskTypes.columns>): KnownType {
    const { name, input_schema: inputSchema } = row;
    const { isolation, keepLogs, retry, concurrency, rate } = row.description as Partial<
      Pick<KnownType, 'isolation' | 'keepLogs' | 'retry' | 'concurrency' | 'rate'>
    >;
    return {
      name,
      queue: row.queue,
      priority: row.priority,
      maxAttempts: row.max_attempts,
      timeoutMs: Number(row.timeout_ms),
      isolation,
      keepLogs,
      retry,
      concurrency,
      rate,
      codeVersion: row.code_version,
      announcedAt: row.announced_at,
      inputSchema: inputSchema ?? undefined,
      checkInput: inputSchema === null ? undefined : (input) => this.#check(name, inputSchema, input),
    };
  }

  #check(taskType: string, text: string, input: unknown): ReturnType<CheckInput> {
    let compiled = this.#compiled.get(text);
    if (compiled === undefined) {
      compiled = compileInputSchema(text);
      this.#compiled.set(text, compiled);
      if (compiled.kind === 'unusable') {
        this.#deps.log.warn('input schema cannot be compiled', {
          taskType,
          reason: compiled.reason,
          hint: 'its input is checked by its workers alone',
        });
      }
    }
    return compiled.kind === 'ok' ? compiled.check(input) : [];
  }
}
