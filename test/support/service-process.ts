/** A service as a process of its own, whose log lines are the probe of the test that started it. */
import { spawn } from 'node:child_process';
import type { ChildProcess } from 'node:child_process';
import { join } from 'node:path';
import { findRoot } from '../../deploy/local-stack/stack.ts';
import type { ServiceName } from '../../scripts/fleet.ts';
import { systemClock } from '../../shared/time/clock.ts';
import { eventually } from './eventually.ts';

/** One line of a log. */
export type LogLine = Readonly<Record<string, unknown>> & {
  readonly level: string;
  readonly message: string;
};

/** How a process ended. */
export interface Ended {
  /** Exit code, or name of the signal that killed it. */
  readonly code: number | string;
  /** Milliseconds from the call that asked for it. */
  readonly afterMs: number;
  /** The errors that it logged on the way, so that a test that fails says why. */
  readonly errors: readonly LogLine[];
}

const ROOT = findRoot();
/** Settings of the shell that runs the tests must not reach what they start. */
const NOT_HANDED_ON = /^(AMQP_URL|DATABASE_URL|PG[A-Z]+|WARREN_(?!TEST_LONG$).*|NODE_OPTIONS|JEST_.*)$/;
const alive = new Set<ChildProcess>();
process.once('exit', () => {
  for (const child of alive) child.kill('SIGKILL');
});

/** A process of a service, from its start on. Runs what `npm run build` made. */
export class ServiceProcess {
  readonly service: ServiceName;
  readonly name: string;
  readonly lines: LogLine[] = [];
  /** What it wrote that is no log line. */
  stray = '';
  /** The exit code, or the signal's name. */
  readonly exited: Promise<number | string>;
  /** Undefined while it runs. */
  exitCode: number | string | undefined;
  /** True once the test asked for an end that is not an orderly one. */
  isKilled = false;
  readonly #child: ChildProcess;

  constructor(service: ServiceName, name: string, env: Readonly<Record<string, string>>, args: readonly string[] = []) {
    this.service = service;
    this.name = name;
    const inherited = Object.entries(process.env).filter(([key]) => !NOT_HANDED_ON.test(key));
    const main = join(ROOT, 'dist/services', service, 'main.js');
    this.#child = spawn(process.execPath, [main, ...args], {
      cwd: ROOT,
      env: { ...Object.fromEntries(inherited), ...env },
      stdio: ['ignore', 'pipe', 'pipe'],
    });
    alive.add(this.#child);
    this.#read(this.#child);
    this.exited = new Promise((resolve) => {
      const end = (code: number | string): void => {
        alive.delete(this.#child);
        this.exitCode = code;
        resolve(code);
      };
      this.#child.once('close', (code, signal) => end(code ?? signal ?? 'unknown'));
      this.#child.once('error', (error) => end(error.message));
    });
  }

  get pid(): number {
    return this.#child.pid ?? 0;
  }

  /** Its HTTP address. Throws before it has started. */
  get url(): string {
    const started = this.lines.find(({ message }) => message === 'service started');
    if (started === undefined) throw new Error(`${this.name} has not started`);
    return String(started['address']);
  }

  /** Resolves once it is ready, and lacks nothing that it could do without; throws with the end of its log where it ends or does not become so. */
  async ready(withinMs = 40_000): Promise<this> {
    try {
      await eventually(
        async () => {
          if (this.exitCode !== undefined) return;
          const answer = await fetch(`${this.url}/readyz`, { signal: AbortSignal.timeout(2_000) });
          const body = await answer.text();
          if (!answer.ok || body.includes('"degraded"')) throw new Error(body);
        },
        { withinMs },
      );
    } catch (thrown) {
      throw new Error(`${this.name} is not ready:\n${this.tail()}`, { cause: thrown });
    }
    if (this.exitCode !== undefined) throw new Error(`${this.name} ended (${this.exitCode}):\n${this.tail()}`);
    return this;
  }

  /** Log lines so far with this message and these fields. */
  logged(message: string, fields: Readonly<Record<string, unknown>> = {}): readonly LogLine[] {
    return this.lines.filter(
      (line) => line.message === message && Object.entries(fields).every(([name, value]) => line[name] === value),
    );
  }

  /** The first log line with this message and these fields, be it there or still to come. */
  async next(message: string, fields: Readonly<Record<string, unknown>> = {}, withinMs = 30_000): Promise<LogLine> {
    return await eventually(
      () => {
        const [line] = this.logged(message, fields);
        if (line === undefined) throw new Error(`${this.name} has not logged "${message}":\n${this.tail()}`);
        return line;
      },
      { withinMs },
    );
  }

  /** Nobody reads its log any more, until `readAgain`. */
  stopReading(): void {
    this.#child.stdout?.pause();
  }

  readAgain(): void {
    this.#child.stdout?.resume();
  }

  /** SIGSTOP. */
  freeze(): void {
    this.#child.kill('SIGSTOP');
  }

  /** SIGCONT. */
  thaw(): void {
    this.#child.kill('SIGCONT');
  }

  /** SIGKILL, and waits for the end. */
  async kill(): Promise<void> {
    this.isKilled = true;
    this.#child.kill('SIGKILL');
    await this.exited;
  }

  /** Sends a signal and goes on. */
  signal(signal: NodeJS.Signals): void {
    this.#child.kill(signal);
  }

  /** SIGTERM, and waits for the end. */
  async terminate(): Promise<Ended> {
    const startMs = systemClock.monotonicMs();
    const linesBefore = this.lines.length;
    this.#child.kill('SIGTERM');
    const code = await this.exited;
    const errors = this.lines.slice(linesBefore).filter(({ level }) => level === 'error');
    return { code, afterMs: systemClock.monotonicMs() - startMs, errors };
  }

  /** The last lines of its log, for a failure. */
  tail(count = 15): string {
    return [...this.lines.slice(-count).map((line) => JSON.stringify(line)), this.stray.slice(-2_000)].join('\n');
  }

  #read(child: ChildProcess): void {
    let rest = '';
    child.stdout?.setEncoding('utf8').on('data', (chunk: string) => {
      const whole = (rest + chunk).split('\n');
      rest = whole.pop() ?? '';
      for (const text of whole) this.#take(text);
    });
    child.stderr?.setEncoding('utf8').on('data', (chunk: string) => {
      this.stray += chunk;
    });
  }

  #take(text: string): void {
    try {
      this.lines.push(JSON.parse(text) as LogLine);
    } catch {
      this.stray += `${text}\n`; // cut short by a kill, or not ours
    }
  }
}
