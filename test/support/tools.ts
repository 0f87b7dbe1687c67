/** Tools that a test needs and a machine may lack. Their tests are then skipped under a name that says which tool is missing. */
import { execFileSync } from 'node:child_process';
import { mkdtempSync, rmdirSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from '@jest/globals';

/** A tool, and where it was found. */
export interface Tool {
  /** Shown in the name of a skipped test. */
  readonly name: string;
  /** Path of the program; `undefined` where it is absent. */
  readonly path: string | undefined;
}

/** A Python with pika: `WARREN_TEST_PYTHON`, else the first of the usual ones that has it. */
export const pika: Tool = {
  name: 'python3 with pika',
  path: [process.env['WARREN_TEST_PYTHON'], '/usr/bin/python3', 'python3'].find((path) => hasPika(path)),
};

/** A Python, of whatever packages: `WARREN_TEST_PYTHON`, else the first of the usual ones. */
export const python: Tool = {
  name: 'python3',
  path: [process.env['WARREN_TEST_PYTHON'], '/usr/bin/python3', 'python3'].find(
    (path) => path !== undefined && answers(path, ['--version']),
  ),
};

/** curl. */
export const curl: Tool = { name: 'curl', path: answers('curl', ['--version']) ? 'curl' : undefined };

/** Postgres's psql. */
export const psql: Tool = { name: 'psql', path: answers('psql', ['--version']) ? 'psql' : undefined };

/** Postgres's pg_dump; its pg_restore comes with it. */
export const pgDump: Tool = { name: 'pg_dump', path: answers('pg_dump', ['--version']) ? 'pg_dump' : undefined };

/** PgBouncer. */
export const pgBouncer: Tool = {
  name: 'pgbouncer',
  path: ['pgbouncer', '/usr/sbin/pgbouncer'].find((path) => answers(path, ['--version'])),
};

/** Prometheus's promtool: `WARREN_TEST_PROMTOOL`, else the one on the path. */
export const promtool: Tool = {
  name: 'promtool',
  path: [process.env['WARREN_TEST_PROMTOOL'], 'promtool'].find(
    (path) => path !== undefined && answers(path, ['--version']),
  ),
};

/** A Prometheus: `WARREN_TEST_PROMETHEUS`, else the one on the path. */
export const prometheus: Tool = {
  name: 'prometheus',
  path: [process.env['WARREN_TEST_PROMETHEUS'], 'prometheus'].find(
    (path) => path !== undefined && answers(path, ['--version']),
  ),
};

/** Declares a test that needs a tool; `run` gets its path. Where the tool is absent the test is skipped, and its name says why. */
export function testWith(tool: Tool, name: string, run: (path: string) => Promise<void>, withinMs = 30_000): void {
  const { path } = tool;
  // oxlint-disable jest/no-disabled-tests, jest/expect-expect, jest/valid-title -- because a tool may be absent; the caller expects and names
  if (path === undefined) test.skip(`${name} [needs ${tool.name}]`, () => undefined);
  else test(name, async () => await run(path), withinMs);
  // oxlint-enable jest/no-disabled-tests, jest/expect-expect, jest/valid-title
}

/** Declares a test that mounts a small disk in memory. Where this user may not, the test is skipped, and its name says why. */
export function testWithMount(name: string, run: () => Promise<void>, withinMs: number): void {
  testWith({ name: 'the right to mount', path: canMount() ? 'mount' : undefined }, name, run, withinMs);
}

/** Declares a test that makes namespaces of its own for processes and mounts. Where this user may not, it is skipped under a name that says so. */
export function testWithNamespaces(name: string, run: () => Promise<void>, withinMs: number): void {
  const isAllowed =
    process.getuid?.() === 0 &&
    answers('unshare', ['--pid', '--fork', '--mount-proc', 'mount', '-o', 'remount,bind,ro', '/']) &&
    answers('setpriv', ['--version']);
  testWith({ name: 'the right to make namespaces', path: isAllowed ? 'unshare' : undefined }, name, run, withinMs);
}

function canMount(): boolean {
  if (process.platform !== 'linux' || process.getuid?.() !== 0) return false;
  const folder = mkdtempSync(join(tmpdir(), 'warren-mount-'));
  const isMounted = answers('mount', ['-t', 'tmpfs', '-o', 'size=1m', 'warren-mount', folder]);
  if (isMounted) execFileSync('umount', [folder]);
  rmdirSync(folder);
  return isMounted;
}

function hasPika(path: string | undefined): boolean {
  return path !== undefined && answers(path, ['-c', 'import pika']);
}

function answers(program: string, args: readonly string[]): boolean {
  try {
    execFileSync(program, args, { stdio: 'ignore', timeout: 20_000 });
    return true;
  } catch {
    return false; // no such program, or one without what was asked of it
  }
}
