/**
 * Starts the services of Warren as separate processes, each with a log file of its own, and ends them again. Used by the
 * demo, by `make up`, by the benchmark and by tests that go through real processes. Runs what `npm run build` made.
 */
import { spawn } from 'node:child_process';
import type { ChildProcess } from 'node:child_process';
import { closeSync, mkdirSync, openSync } from 'node:fs';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { systemClock } from '../shared/time/clock.ts';

/** A service that can be started. */
export type ServiceName = 'producer' | 'worker' | 'dead-letter-handler';

/** What one process is started with. */
export interface ProcessOptions {
  /** The folder of the repository, in which `dist` lies. */
  readonly root: string;
  readonly service: ServiceName;
  /** Name in the fleet and of its log file: `worker-1`. */
  readonly name: string;
  readonly logDir: string;
  /** Added to the environment of this process. */
  readonly env: Readonly<Record<string, string>>;
  /** True: it outlives its parent. */
  readonly isDetached?: boolean;
}

/** One running service. */
export interface ServiceProcess {
  readonly name: string;
  readonly service: ServiceName;
  readonly pid: number;
  readonly logFile: string;
  /** Its HTTP address, `http://127.0.0.1:41234`. */
  readonly url: string;
  /** The exit code, or the signal's name, once it has ended. */
  readonly exited: Promise<number | string>;
  /** SIGTERM, then SIGKILL after `graceMs`. Resolves with how it ended. */
  stop(graceMs?: number): Promise<number | string>;
  kill(signal: NodeJS.Signals): void;
}

/**
 * Flags of node for most services: a small young generation, and an old one that grows by a third before it is collected.
 * A worker at full speed then has 119 MB instead of 160 (RSS, two cores, 2026-11), at no cost that the benchmark could tell.
 */
const SMALL = ['--enable-source-maps', '--max-semi-space-size=8', '--heap-growing-percent=30'];
/**
 * A producer is there once or twice, and makes much that lives as long as a request: with a young generation that holds it, a
 * batch costs it half of the processor time (40 to 50 ms per 500 tasks at 32 to 64 MB against 75 to 92 at 8; two cores, 2026-11).
 */
const NODE_FLAGS: Readonly<Record<ServiceName, readonly string[]>> = {
  producer: ['--enable-source-maps', '--max-semi-space-size=32'],
  worker: SMALL,
  'dead-letter-handler': SMALL,
};
const START_WITHIN_MS = 30_000;
const STOP_WITHIN_MS = 40_000;

/** Starts one service and waits until it is ready. Throws with the end of its log where it does not become so. */
export async function startProcess(options: ProcessOptions): Promise<ServiceProcess> {
  const { service, name, root, logDir } = options;
  mkdirSync(logDir, { recursive: true });
  const logFile = join(logDir, `${name}.log`);
  const output = openSync(logFile, 'w');
  const child = spawn(process.execPath, [...NODE_FLAGS[service], join(root, 'dist', 'services', service, 'main.js')], {
    cwd: root,
    env: { ...process.env, ...options.env },
    stdio: ['ignore', output, output],
    detached: options.isDetached === true,
  });
  closeSync(output);
  if (options.isDetached === true) child.unref();
  const exited = new Promise<number | string>((resolve) => {
    child.once('exit', (code, signal) => resolve(code ?? signal ?? 'unknown'));
    child.once('error', (error) => resolve(error.message));
  });
  const url = await whenReady(child, name, logFile);
  return {
    name,
    service,
    pid: child.pid ?? 0,
    logFile,
    url,
    exited,
    kill: (signal) => child.kill(signal),
    stop: async (graceMs = STOP_WITHIN_MS) => await endProcess(child, exited, graceMs),
  };
}

async function whenReady(child: ChildProcess, name: string, logFile: string): Promise<string> {
  const untilMs = systemClock.monotonicMs() + START_WITHIN_MS;
  while (systemClock.monotonicMs() < untilMs && child.exitCode === null && child.signalCode === null) {
    const url = addressIn(await readFile(logFile, 'utf8'));
    if (url !== undefined && (await isReady(url))) return url;
    await systemClock.sleep(50);
  }
  const ended = child.exitCode ?? child.signalCode;
  child.kill('SIGKILL');
  const tail = (await readFile(logFile, 'utf8')).split('\n').slice(-15).join('\n');
  throw new Error(
    `${name} ${ended === null ? 'did not become ready' : `ended (${ended})`}; its log ${logFile}:\n${tail}`,
  );
}

/** The address in the line with which a service says that it has started. */
function addressIn(log: string): string | undefined {
  for (const line of log.split('\n')) {
    if (!line.includes('"service started"')) continue;
    const { address } = JSON.parse(line) as { readonly address?: string };
    return address;
  }
  return undefined;
}

async function isReady(url: string): Promise<boolean> {
  try {
    return (await fetch(`${url}/readyz`, { signal: AbortSignal.timeout(2_000) })).ok;
  } catch {
    return false; // not listening yet
  }
}

async function endProcess(
  child: ChildProcess,
  exited: Promise<number | string>,
  graceMs: number,
): Promise<number | string> {
  child.kill('SIGTERM');
  const race = new AbortController();
  const late = systemClock.sleep(graceMs, race.signal).then(() => 'late' as const);
  const first = await Promise.race([exited, late]);
  race.abort();
  if (first !== 'late') return first;
  child.kill('SIGKILL');
  return await exited;
}
