/** Keeps the topology declared while the process runs: at the first connection, for each new queue, and for what went missing. */
import { Loop } from '../lifecycle/loop.ts';
import type { Part } from '../lifecycle/part.ts';
import type { Logger } from '../observability/log.ts';
import type { Clock } from '../time/clock.ts';
import type { QueueType } from './capabilities.ts';
import { goodbyeBy } from './channel.ts';
import type { AmqpConnection } from './connection.ts';
import { applyTopology, bindAll } from './topology-apply.ts';
import { driftError, exists } from './topology-drift.ts';
import { topologyOf } from './topology.ts';
import type { Topology } from './topology.ts';

/** What the keeper needs. */
export interface TopologyKeeperDeps {
  readonly connection: AmqpConnection;
  readonly clock: Clock;
  readonly log: Logger;
  readonly random: () => number;
  /** The work queues that there should be now, without prefix. */
  readonly queues: () => readonly string[];
  /** See `LoopDeps`. */
  readonly onFailure?: (loop: string) => void;
}

/** How the topology looks. */
export interface TopologyKeeperOptions {
  readonly prefix: string;
  /** `auto`: by the version of the broker. */
  readonly queueType: QueueType | 'auto';
  /** Milliseconds between two looks at the exchanges and the front door's binding: nobody of ours hears when one is deleted. */
  readonly lookAgainMs: number;
  /** False where the user has no right to declare: what is missing is waited for, and each round says what it is. */
  readonly mayDeclare: boolean;
}

const LOOK_EVERY_MS = 500;
const RESTORED_WITHIN_MS = 5_000;

/** Declares what is missing. Never deletes and never changes what exists. */
export class TopologyKeeper implements Part {
  readonly #deps: TopologyKeeperDeps;
  readonly #options: TopologyKeeperOptions;
  readonly #loop: Loop;
  #declared = new Set<string>();
  #isApplied = false;
  #lookedAtMs = 0;
  #listeners: (() => void)[] = [];

  constructor(deps: TopologyKeeperDeps, options: TopologyKeeperOptions) {
    this.#deps = deps;
    this.#options = options;
    this.#loop = new Loop(
      { ...deps, round: async () => await this.#apply() },
      { name: 'topology', intervalMs: LOOK_EVERY_MS },
    );
  }

  /** True once the topology was declared on this broker. */
  get isApplied(): boolean {
    return this.#isApplied;
  }

  /** Resolves once the topology was declared, or the signal aborts. */
  async whenApplied(signal: AbortSignal): Promise<void> {
    if (this.#isApplied || signal.aborted) return;
    await new Promise<void>((resolve) => {
      this.#listeners.push(resolve);
      signal.addEventListener('abort', () => resolve(), { once: true });
    });
  }

  /** Something that was declared is gone: look at everything again, at once. */
  declareAgain(): void {
    this.#declared = new Set();
    this.#isApplied = false;
    this.#loop.wake();
  }

  /** Declares everything again because something is missing, and waits for that, at most five seconds. */
  async restore(): Promise<void> {
    this.declareAgain();
    await this.whenApplied(AbortSignal.timeout(RESTORED_WITHIN_MS));
  }

  async start(): Promise<void> {
    await this.#loop.start();
  }

  async stop(deadlineMs: number): Promise<void> {
    await this.#loop.stop(goodbyeBy(this.#deps.clock, deadlineMs)); // what it waits for is the broker's word
  }

  async #apply(): Promise<void> {
    const { connection } = this.#deps;
    const { capabilities } = connection;
    if (!connection.isConnected || capabilities === undefined) return;
    const wanted = this.#deps.queues();
    const { prefix, queueType } = this.#options;
    const type = queueType === 'auto' ? capabilities.queueType : queueType;
    const isKnown = this.#isApplied && wanted.every((queue) => this.#declared.has(queue));
    if (isKnown && (await this.#isIntact(topologyOf({ prefix, queues: [], queueType: type })))) return;
    const topology = topologyOf({ prefix, queues: wanted, queueType: type });
    await (this.#options.mayDeclare ? applyTopology(this.#deps, topology) : this.#lookForAll(topology));
    this.#declared = new Set(wanted);
    this.#isApplied = true;
    for (const listener of this.#listeners.splice(0)) listener();
  }

  /** Throws `topology-drift` for the first thing that is missing. */
  async #lookForAll({ exchanges, queues }: Topology): Promise<void> {
    for (const { name } of exchanges) await this.#lookFor('exchange', name);
    for (const { name } of queues) await this.#lookFor('queue', name);
  }

  async #lookFor(kind: 'exchange' | 'queue', name: string): Promise<void> {
    if (!(await exists(this.#deps, kind, name))) throw driftError({ kind, name, problem: 'missing' });
  }

  /** Looks at what others publish to. Work queues are missed by who consumes from them, their bindings by who invites. */
  async #isIntact({ exchanges, bindings }: Topology): Promise<boolean> {
    const nowMs = this.#deps.clock.monotonicMs();
    if (nowMs - this.#lookedAtMs < this.#options.lookAgainMs) return true;
    this.#lookedAtMs = nowMs;
    for (const { name } of exchanges) if (!(await exists(this.#deps, 'exchange', name))) return false;
    // Bindings cannot be read over AMQP, and may be made again.
    return this.#options.mayDeclare ? await bindAll(this.#deps, bindings) : true;
  }
}
