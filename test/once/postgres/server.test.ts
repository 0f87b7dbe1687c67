/** A Postgres of our own that restarts, crashes, and runs out of disk: what waits for it goes on by itself. */
import { execFileSync } from 'node:child_process';
import { chown, mkdir, mkdtemp, rm, stat, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from '@jest/globals';
import { resetStack, startStack } from '../../../deploy/local-stack/stack.ts';
import type { Stack } from '../../../deploy/local-stack/stack.ts';
import { migrate } from '../../../shared/postgres/migrate.ts';
import type { Database } from '../../../shared/postgres/pool.ts';
import { silentLogger } from '../../../shared/observability/silent-log.ts';
import { systemClock } from '../../../shared/time/clock.ts';
import { addTask, addTasks, openWorker, readTask } from '../../support/core.ts';
import { MIGRATIONS_DIR, aDatabase } from '../../support/database.ts';
import { eventually } from '../../support/eventually.ts';
import { testWithMount } from '../../support/tools.ts';

/** An instance that no other test uses. */
const NAME = 'postgres-server';
const START_MS = 180_000;
const SMALL_MB = 40;

let stack: Stack;
beforeAll(async () => {
  await resetStack({ name: NAME });
  stack = await startStack({ name: NAME, onlyPrivate: true, only: 'database' });
}, START_MS);
afterAll(async () => await resetStack({ name: NAME }), START_MS);

async function openMigrated(url: string): Promise<Database & AsyncDisposable> {
  const database = aDatabase(url, { max: 4, connectTimeoutMs: 1_000, statementTimeoutMs: 5_000 });
  await database.connectOrThrow();
  await migrate(database, { dir: MIGRATIONS_DIR, log: silentLogger });
  const dispose = async (): Promise<void> => await database.stop(systemClock.monotonicMs() + 2_000);
  return Object.assign(database, { [Symbol.asyncDispose]: dispose });
}

test.each(['stop', 'kill'] as const)(
  'a %s of the server costs no claim and no settle, and the process goes on',
  async (how) => {
    await using db = await openMigrated(stack.databaseUrl);
    const worker = await openWorker(db);
    const running = await worker.win(await addTask(db));
    const waiting = await addTask(db);
    await stack.database[how]();
    const settled = worker.settles.succeed(running, undefined);
    const won = worker.win(waiting);
    await eventually(() => expect(db.isAvailable).toBe(false));
    await stack.database.start();
    expect(await settled).toBe('succeeded');
    expect(await won).toMatchObject({ taskId: waiting, attempt: 1 });
  },
  60_000,
);

// oxlint-disable jest/no-standalone-expect -- because testWithMount declares the test
testWithMount(
  'a full disk is an outage: nothing is promised, a finished run is kept, and all goes on once there is room',
  async () => {
    await using disk = await mountSmall();
    await using admin = await openMigrated(stack.databaseUrl);
    await admin.query({ text: `create tablespace small location '${disk.folder}'` });
    await admin.query({ text: 'create database small tablespace small' });
    const url = new URL(stack.databaseUrl);
    url.pathname = '/small';
    {
      await using db = await openMigrated(url.href);
      const worker = await openWorker(db);
      const claim = await worker.win(await addTask(db));
      await disk.fill();
      const full: unknown = await eventually(async () => {
        const thrown: unknown = await addTasks(db, 500).then(
          () => undefined,
          (refusal: unknown) => refusal,
        );
        expect(thrown).toBeDefined();
        return thrown;
      });
      expect(full).toMatchObject({
        code: 'database-unavailable',
        facts: { reason: expect.stringContaining('53100') },
      });
      // Larger than any room that is left on a page.
      const settled = worker.settles.succeed(claim, Buffer.from(JSON.stringify('x'.repeat(200_000))));
      await eventually(() => expect(db.isAvailable).toBe(false));
      expect(await readTask(db, claim.taskId)).toMatchObject({ state: 'running' });
      await disk.free();
      expect(await settled).toBe('succeeded');
      await addTasks(db, 500);
    }
    await admin.query({ text: 'drop database small with (force)' });
    await admin.query({ text: 'drop tablespace small' });
  },
  60_000,
);

// oxlint-enable jest/no-standalone-expect

interface SmallDisk extends AsyncDisposable {
  /** A folder that the server owns. */
  readonly folder: string;
  fill(): Promise<void>;
  free(): Promise<void>;
}

/** Mounts a disk in memory that is soon full. */
async function mountSmall(): Promise<SmallDisk> {
  const mount = await mkdtemp(join(tmpdir(), 'warren-small-'));
  execFileSync('mount', ['-t', 'tmpfs', '-o', `size=${SMALL_MB}m,mode=0755`, 'warren-small', mount]);
  const folder = join(mount, 'data');
  await mkdir(folder, { mode: 0o700 });
  const { uid, gid } = await stat(`/proc/${stack.database.pid}`);
  await chown(folder, uid, gid);
  const ballast = join(mount, 'ballast');
  return {
    folder,
    fill: async () => {
      // As much as there is room for; the rest fails, and what was written stays.
      await writeFile(ballast, Buffer.alloc(SMALL_MB * 1_048_576)).catch(() => undefined);
    },
    free: async () => await rm(ballast),
    [Symbol.asyncDispose]: async () => {
      execFileSync('umount', ['--lazy', mount]); // where the test failed, the server still has files there
      await rm(mount, { recursive: true, force: true });
    },
  };
}
