/** Processes that outlive us: started apart, recognised later, and ended only when they are still the ones we started. */
import { execFile, spawn } from 'node:child_process';
import { open, readFile, rename } from 'node:fs/promises';
import { promisify } from 'node:util';
import { codeOf } from '../../shared/errors/to-error.ts';
import { systemClock } from '../../shared/time/clock.ts';
import { StackFailure } from './failure.ts';
import type { ServerUser } from './server-user.ts';

const run = promisify(execFile);
const POLL_MS = 50;

/** A process and the moment it began: a pid alone may be somebody else's by now. */
export interface ProcessIdentity {
  readonly pid: number;
  /** When it began, in words of the system (boot and clock ticks on Linux, a date elsewhere). Compared, never read. */
  readonly began: string;
}

/** What to start. */
export interface ServerCommand {
  readonly file: string;
  readonly args: readonly string[];
  readonly cwd: string;
  /** The whole environment; nothing is inherited. */
  readonly env: Readonly<Record<string, string>>;
  /** Standard output and error. The log of the run before is kept as `<logFile>.1`. */
  readonly logFile: string;
  /** `undefined`: as ourselves. */
  readonly user: ServerUser | undefined;
}

/** Starts a process in a session of its own, so that neither our end nor Ctrl-C reaches it. */
export async function startDetached(command: ServerCommand): Promise<ProcessIdentity> {
  await rename(command.logFile, `${command.logFile}.1`).catch(() => undefined); // there is none the first time
  const log = await open(command.logFile, 'w', 0o600);
  try {
    const child = spawn(command.file, [...command.args], {
      cwd: command.cwd,
      env: { ...command.env },
      detached: true,
      stdio: ['ignore', log.fd, log.fd],
      ...(command.user === undefined ? {} : { uid: command.user.uid, gid: command.user.gid }),
    });
    await new Promise<void>((resolve, reject) => {
      child.once('spawn', resolve);
      child.once('error', reject);
    });
    child.unref();
    const pid = child.pid ?? 0;
    return { pid, began: (await beganOf(pid)) ?? 'ended at once' };
  } finally {
    await log.close();
  }
}

/** Our own identity, for locks. */
export async function identityOfSelf(): Promise<ProcessIdentity> {
  return { pid: process.pid, began: (await beganOf(process.pid)) ?? 'unknown' };
}

/** True while the process that bears this identity, and no other of its pid, runs. */
export async function isRunning(identity: ProcessIdentity | undefined): Promise<boolean> {
  return identity !== undefined && (await beganOf(identity.pid)) === identity.began;
}

/** Sends `signal` to the process if it is still ours, and waits for its end. False when it did not end in time. */
export async function endProcess(
  identity: ProcessIdentity | undefined,
  signal: NodeJS.Signals,
  withinMs: number,
): Promise<boolean> {
  if (identity === undefined || !(await isRunning(identity))) return true;
  try {
    process.kill(identity.pid, signal);
    process.kill(identity.pid, 'SIGCONT'); // one that was stopped would not hear it
  } catch (thrown) {
    if (codeOf(thrown) !== 'ESRCH') throw thrown;
  }
  return await waitFor(async () => !(await isRunning(identity)), withinMs);
}

/** Asks again every 50 ms until `check` says true. False after `withinMs` milliseconds. */
export async function waitFor(check: () => Promise<boolean>, withinMs: number): Promise<boolean> {
  const until = systemClock.monotonicMs() + withinMs;
  while (!(await check())) {
    if (systemClock.monotonicMs() >= until) return false;
    await systemClock.sleep(POLL_MS);
  }
  return true;
}

/** Waits until `isReady`. Throws with the end of the server's own log when it ends or is late. */
export async function waitUntilReady(
  what: string,
  server: { readonly identity: ProcessIdentity; readonly logFile: string; readonly isReady: () => Promise<boolean> },
  withinMs: number,
): Promise<void> {
  let hasEnded = false;
  const isReady = await waitFor(async () => {
    hasEnded = !(await isRunning(server.identity));
    return hasEnded || (await server.isReady());
  }, withinMs);
  if (isReady && !hasEnded) return;
  const how = hasEnded ? 'ended while starting' : `did not answer within ${withinMs / 1_000} s`;
  throw new StackFailure(`${what} ${how}; the end of ${server.logFile}:\n${await tailOf(server.logFile)}`);
}

/** The last 20 lines of a file, indented; empty when there is none. */
export async function tailOf(file: string): Promise<string> {
  const text = await readFile(file, 'utf8').catch(() => '');
  const lines = text.trimEnd().split('\n').slice(-20);
  return lines.map((line) => `    ${line}`).join('\n');
}

async function beganOf(pid: number): Promise<string | undefined> {
  if (process.platform === 'linux') {
    const [stat, boot] = await Promise.all([
      readFile(`/proc/${pid}/stat`, 'utf8').catch(() => ''),
      readFile('/proc/sys/kernel/random/boot_id', 'utf8').catch(() => ''),
    ]);
    return beganFromStat(stat, boot.trim());
  }
  const { stdout } = await run('ps', ['-o', 'lstart=', '-p', String(pid)]).catch(() => ({ stdout: '' }));
  return stdout.trim() === '' ? undefined : stdout.trim();
}

/**
 * The beginning of a process from the text of `/proc/<pid>/stat`; `undefined` when it is gone or only waits to be reaped.
 * The command's name stands in brackets and may hold anything, so fields count from the last bracket. Source: proc(5).
 */
export function beganFromStat(stat: string, bootId: string): string | undefined {
  const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
  const [state] = fields;
  const ticks = fields[19];
  if (ticks === undefined || state === 'Z' || state === 'X') return undefined;
  return `${bootId}/${ticks}`;
}
