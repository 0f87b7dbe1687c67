/** Steps of the test run that are programs: a checker, or jest with one of its projects. */
import { spawn } from 'node:child_process';
import { mkdir, open, readFile, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { systemClock } from '../shared/time/clock.ts';
import { EMPTY_TALLY, parseJestReport } from './jest-report.ts';
import type { Tally } from './jest-report.ts';

/** Lines of a program's output that are shown when it fails and says nothing better. */
const SHOWN_LINES = 60;
/** Settings of a developer's shell must not change what is tested. */
const NOT_HANDED_ON = /^(AMQP_URL|DATABASE_URL|MANAGEMENT_URL|PG[A-Z]+|WARREN_(?!TEST_|STACK_|RABBITMQ43_).*)$/;

/** Test files of a project at once. Two projects run at a time, so that is four fleets: with more, what kills or waits is late on two cores. */
const WORKERS = 2;

/** Exit code of a program that could not do its checks here; its log says what is missing. */
const CANNOT_RUN = 2;

/** How a checker is run. */
export interface CommandOptions {
  readonly root: string;
  readonly withinMs: number;
  /** Added to the environment. */
  readonly env?: Readonly<Record<string, string>>;
  /** True where exit 2 means that it could not run: skipped, not failed. */
  readonly canBeSkipped?: boolean;
}

/** Runs a checker; its exit code is the test. */
export async function runCommand(name: string, command: readonly string[], options: CommandOptions): Promise<Tally> {
  const { root, env = {}, withinMs, canBeSkipped } = options;
  const { code, log } = await run(name, command, root, env, withinMs);
  if (code === 0) return { ...EMPTY_TALLY, passed: 1 };
  if (code === CANNOT_RUN && canBeSkipped === true) {
    const reason = (await readFile(log, 'utf8')).trimEnd().split('\n').at(-1) ?? '';
    return { ...EMPTY_TALLY, skipped: [`${name}: ${reason}`] };
  }
  return { ...EMPTY_TALLY, failed: [name], details: [await endOf(log)] };
}

/** Runs the tests of one jest project. */
export async function runJest(
  project: string,
  options: {
    /** Name of its report and log under `.warren/test`. */
    readonly name: string;
    readonly root: string;
    readonly env: Readonly<Record<string, string>>;
    readonly withinMs: number;
  },
): Promise<Tally> {
  const { name, root, env, withinMs } = options;
  const report = join(root, '.warren/test', `${name}.json`);
  await rm(report, { force: true });
  const { code, log } = await run(
    name,
    [
      process.execPath,
      '--experimental-vm-modules',
      '--no-warnings',
      'node_modules/jest/bin/jest.js',
      '--selectProjects',
      project,
      '--maxWorkers',
      String(WORKERS),
      // Where a single test file is run, in this process, a handle left open would hang it.
      ...(['faults', 'once', 'release'].includes(project) ? ['--forceExit'] : []),
      '--passWithNoTests',
      '--json',
      '--outputFile',
      report,
    ],
    root,
    env,
    withinMs,
  );
  const text = await readFile(report, 'utf8').catch(() => undefined);
  if (text === undefined) return { ...EMPTY_TALLY, failed: [project], details: [await endOf(log)] };
  const tally = parseJestReport(text, root);
  if (code === 0 || tally.failed.length > 0) return tally;
  return { ...tally, failed: [`${project}: jest ended with ${code}`], details: [await endOf(log)] };
}

async function run(
  name: string,
  [file = '', ...args]: readonly string[],
  root: string,
  env: Readonly<Record<string, string>>,
  withinMs: number,
): Promise<{ readonly code: number; readonly log: string }> {
  await mkdir(join(root, '.warren/test'), { recursive: true });
  const log = join(root, '.warren/test', `${name}.log`);
  const output = await open(log, 'w');
  const inherited = Object.entries(process.env).filter(([key]) => !NOT_HANDED_ON.test(key));
  try {
    const child = spawn(file, args, {
      cwd: root,
      env: { ...Object.fromEntries(inherited), ...env },
      stdio: ['ignore', output.fd, output.fd],
    });
    const cancel = systemClock.after(withinMs, () => child.kill('SIGKILL'));
    const code = await new Promise<number>((resolve, reject) => {
      child.once('error', reject);
      child.once('exit', (exitCode) => resolve(exitCode ?? 1));
    });
    cancel();
    return { code, log };
  } finally {
    await output.close();
  }
}

async function endOf(log: string): Promise<string> {
  const lines = (await readFile(log, 'utf8')).trimEnd().split('\n');
  const shown = lines.slice(-SHOWN_LINES).map((line) => `    ${line}`);
  return lines.length > SHOWN_LINES ? `${shown.join('\n')}\n    (the whole output: ${log})` : shown.join('\n');
}
