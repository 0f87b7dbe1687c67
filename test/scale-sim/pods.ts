/** Worker processes as the pods of a Deployment: new ones take a while, and which one goes is not ours to choose. */
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { findRoot } from '../../deploy/local-stack/stack.ts';
import { systemClock } from '../../shared/time/clock.ts';
import { ServiceProcess } from '../support/service-process.ts';

/** How pods live. */
export interface PodsOptions {
  readonly name: string;
  readonly env: Readonly<Record<string, string>>;
  readonly random: () => number;
  /** Simulated seconds in one of the machine. */
  readonly factor: number;
  /** Simulated seconds between SIGTERM and SIGKILL. */
  readonly graceSeconds: number;
  /** Processes that stand loaded, for pods to come. */
  readonly spares: number;
}

interface Pod {
  readonly gone: AbortController;
  process: ServiceProcess | undefined;
  isReady: boolean;
}

/** Simulated seconds that a pod takes to be ready, at least and at most: scheduling, image, start of the process, readiness. */
const START_SECONDS = { least: 5, most: 20 };
/** Real milliseconds that a loaded process takes to be ready, before any was measured. */
const OWN_MS = 500;
const FEW_SPARES = 3;

/** The pods of one Deployment. */
export class Pods {
  readonly faults: string[] = [];
  /** Simulated seconds that each took to be ready. */
  readonly starts: number[] = [];
  readonly #options: PodsOptions;
  readonly #spares: ServiceProcess[] = [];
  readonly #ownMs: number[] = [];
  readonly #ending = new Set<Promise<void>>();
  #pods: Pod[] = [];
  #made = 0;
  #refilling: Promise<void> | undefined;
  #isOver = false;

  constructor(options: PodsOptions) {
    this.#options = options;
  }

  /** Pods that there are to be: the Deployment's `replicas`. */
  get desired(): number {
    return this.#pods.length;
  }

  /** Of those, the ones that are ready. */
  get ready(): number {
    return this.#pods.filter(({ isReady }) => isReady).length;
  }

  /** Resolves once so many processes stand loaded. */
  async standBy(): Promise<void> {
    this.#refilling ??= this.#refill().finally(() => {
      this.#refilling = undefined;
    });
    await this.#refilling;
  }

  /** Makes or takes away pods, at once; what is to be there later is on its way. */
  scaleTo(replicas: number): void {
    while (this.#pods.length < replicas) this.#add();
    while (this.#pods.length > replicas) this.#remove();
  }

  /** Takes all away and waits until the last has ended. */
  async end(): Promise<void> {
    this.#isOver = true;
    this.scaleTo(0);
    await this.#refilling;
    await Promise.all(this.#spares.splice(0).map(async (spare) => await spare.terminate()));
    await Promise.all(this.#ending);
  }

  /** One after the other, so that loading them takes little from those that work. */
  async #refill(): Promise<void> {
    while (this.#spares.length < this.#options.spares && !this.#isOver) {
      const spare = this.#load();
      await spare.next('standing by');
      this.#spares.push(spare);
    }
  }

  #load(): ServiceProcess {
    this.#made += 1;
    const gate = pathToFileURL(join(findRoot(), 'dist', 'test', 'scale-sim', 'gate.js')).href;
    const env = { ...this.#options.env, NODE_OPTIONS: `--import=${gate}` };
    return new ServiceProcess('worker', `${this.#options.name}-${this.#made}`, env);
  }

  #add(): void {
    const pod: Pod = { gone: new AbortController(), process: undefined, isReady: false };
    this.#pods.push(pod);
    const living = this.#live(pod).finally(() => this.#ending.delete(living));
    this.#ending.add(living);
  }

  /** From its making to its readiness. Never rejects. */
  async #live(pod: Pod): Promise<void> {
    const { random, factor } = this.#options;
    const { least, most } = START_SECONDS;
    const madeMs = systemClock.monotonicMs();
    const startsInMs = ((least + random() * (most - least)) / factor) * 1_000;
    await systemClock.sleep(Math.max(0, startsInMs - (median(this.#ownMs) ?? OWN_MS)), pod.gone.signal);
    if (pod.gone.signal.aborted) return;
    const begunMs = systemClock.monotonicMs();
    const process = this.#spares.shift() ?? this.#load();
    pod.process = process;
    // Loading more takes processor time from those that work: only once they run short.
    if (this.#spares.length < FEW_SPARES) void this.standBy();
    try {
      await process.next('standing by');
      process.signal('SIGUSR2');
      await process.ready();
    } catch (thrown) {
      if (!pod.gone.signal.aborted) this.faults.push(String(thrown));
      return;
    }
    this.#ownMs.push(systemClock.monotonicMs() - begunMs);
    this.starts.push(((systemClock.monotonicMs() - madeMs) / 1_000) * factor);
    pod.isReady = true;
  }

  /** One that is not ready goes first, else any: a ReplicaSet ranks so, and among equals nobody can tell. */
  #remove(): void {
    const unready = this.#pods.filter(({ isReady }) => !isReady);
    const among = unready.length > 0 ? unready : this.#pods;
    const pod = among[Math.floor(this.#options.random() * among.length)];
    if (pod === undefined) return;
    this.#pods = this.#pods.filter((each) => each !== pod);
    const ending = this.#terminate(pod).finally(() => this.#ending.delete(ending));
    this.#ending.add(ending);
  }

  async #terminate(pod: Pod): Promise<void> {
    const { factor, graceSeconds } = this.#options;
    pod.gone.abort();
    const { process } = pod;
    if (process === undefined) return;
    const cancel = systemClock.after((graceSeconds / factor) * 1_000, () => process.signal('SIGKILL'));
    const { code } = await process.terminate();
    cancel();
    // A process that hears SIGTERM before it listens for it ends by it, and has had nothing to lose.
    const isEarly = code === 'SIGTERM' && !pod.isReady;
    if (code !== 0 && !isEarly) this.faults.push(`${process.name} ended with ${code}\n${process.tail(5)}`);
  }
}

function median(values: readonly number[]): number | undefined {
  return values.toSorted((a, b) => a - b)[Math.floor(values.length / 2)];
}
