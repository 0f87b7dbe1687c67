/** One service process that is started anew whenever it ends, as an orchestrator would, with links of its own to both servers. */
import type { ServiceName } from '../../scripts/fleet.ts';
import { systemClock } from '../../shared/time/clock.ts';
import type { FaultyProxy } from '../support/faulty-proxy.ts';
import { ServiceProcess } from '../support/service-process.ts';

/** How one process ended. */
export interface ProcessEnd {
  /** Name of its place: `worker-1`. */
  readonly name: string;
  readonly pid: number;
  /** Exit code, or name of the signal. */
  readonly code: number | string;
  /** What a fault, or the end of the run, did to end it; absent: it ended by itself. */
  readonly asked?: 'kill' | 'terminate';
  /** False where it ended before it had come to anything: nobody hears a signal then. */
  readonly hadBegun: boolean;
  /** The last lines of its log. */
  readonly tail: string;
}

/** What a place is made of. */
export interface SupervisedOptions {
  readonly service: ServiceName;
  readonly name: string;
  readonly env: Readonly<Record<string, string>>;
  readonly broker: FaultyProxy;
  readonly postgres: FaultyProxy;
}

const RESTART_AFTER_MS = 200;
const END_WITHIN_MS = 25_000;
/** So many in a row that ended by themselves before they had come to anything: the next will not do better. */
const MOST_FAILED_STARTS = 3;

/** A place in the fleet. */
export class Supervised {
  readonly service: ServiceName;
  readonly name: string;
  readonly broker: FaultyProxy;
  readonly postgres: FaultyProxy;
  readonly ends: ProcessEnd[] = [];
  /** All that ran here, in order; the last one is the present one. */
  readonly processes: ServiceProcess[] = [];
  readonly #env: Readonly<Record<string, string>>;
  readonly #asked = new Map<ServiceProcess, 'kill' | 'terminate'>();
  #isStopping = false;
  #loop: Promise<void> | undefined;

  constructor({ service, name, env, broker, postgres }: SupervisedOptions) {
    this.service = service;
    this.name = name;
    this.broker = broker;
    this.postgres = postgres;
    this.#env = env;
  }

  start(): void {
    this.#loop ??= this.#keep();
  }

  /** The present process; it may have ended a moment ago. */
  get process(): ServiceProcess {
    const process = this.processes.at(-1);
    if (process === undefined) throw new Error(`${this.name} was not started`);
    return process;
  }

  /** Its HTTP address while it is up. */
  get url(): string | undefined {
    const { process } = this;
    return process.exitCode === undefined && process.logged('service started').length > 0 ? process.url : undefined;
  }

  /** Resolves once the present process, whichever that is by then, is ready. Throws where that takes too long. */
  async ready(withinMs: number): Promise<void> {
    const untilMs = systemClock.monotonicMs() + withinMs;
    for (;;) {
      try {
        await this.process.ready(Math.max(1, untilMs - systemClock.monotonicMs()));
        return;
      } catch (thrown) {
        const last = this.ends.slice(-MOST_FAILED_STARTS);
        const isHopeless = last.every(({ hadBegun, asked }) => !hadBegun && asked === undefined);
        if (last.length === MOST_FAILED_STARTS && isHopeless)
          throw new Error(`${this.name} cannot start: ${last[0]?.tail ?? ''}`);
        if (systemClock.monotonicMs() >= untilMs) throw thrown;
        await systemClock.sleep(RESTART_AFTER_MS); // it ended; another is about to start
      }
    }
  }

  /** SIGKILL. */
  async kill(): Promise<void> {
    const { process } = this;
    this.#asked.set(process, 'kill');
    await process.kill();
  }

  /** SIGTERM, and SIGKILL where that does not end it in time. */
  async terminate(): Promise<void> {
    const { process } = this;
    this.#asked.set(process, 'terminate');
    process.thaw(); // a frozen one hears nothing
    const cancel = systemClock.after(END_WITHIN_MS, () => process.signal('SIGKILL'));
    await process.terminate();
    cancel();
  }

  /** Ends what runs here for good. */
  async stop(): Promise<void> {
    this.#isStopping = true;
    if (this.processes.length > 0) await this.terminate();
    await this.#loop;
  }

  async #keep(): Promise<void> {
    while (!this.#isStopping) {
      const process = new ServiceProcess(this.service, this.name, this.#env);
      this.processes.push(process);
      const code = await process.exited;
      const asked = this.#asked.get(process);
      const how = asked === undefined ? {} : { asked };
      const hadBegun = process.lines.length > 0;
      this.ends.push({ name: this.name, pid: process.pid, code, hadBegun, tail: process.tail(6), ...how });
      if (!this.#isStopping) await systemClock.sleep(RESTART_AFTER_MS);
    }
  }
}
