import { execFileSync } from 'node:child_process';
import { mkdir, mkdtemp, readdir, rm, stat, writeFile } from 'node:fs/promises';
import { hostname, tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from '@jest/globals';
import { TempDirs } from '../../../../services/worker/temp-dirs.ts';
import { silentLogger } from '../../../../shared/observability/silent-log.ts';

let root: string;
beforeEach(async () => {
  root = await mkdtemp(join(tmpdir(), 'warren-test-temp-'));
});
afterEach(() => rm(root, { recursive: true, force: true }));

const open = (at = root): TempDirs => new TempDirs({ log: silentLogger }, { root: at });
const deadPid = (): string => execFileSync(process.execPath, ['-p', 'process.pid'], { encoding: 'utf8' }).trim();

test('what a killed worker left is removed at the next start; what lives or is of another host stays', async () => {
  const own = await open().make();
  const left = [`worker_${hostname()}_${deadPid()}_123`, `worker_${hostname()}_${process.pid}_1`];
  const stays = [`worker_elsewhere_${deadPid()}_123`, 'something-else', `worker_${hostname()}_1_`];
  for (const name of [...left, ...stays]) {
    await mkdir(join(root, name, 'deep'), { recursive: true });
    await writeFile(join(root, name, 'deep', 'file'), 'x');
  }
  await open().start();
  const [ownName = ''] = own.slice(root.length + 1).split('/');
  expect((await readdir(root)).toSorted()).toEqual([...stays, ownName].toSorted());
  expect((await stat(own)).isDirectory()).toBe(true);
});

test('each directory is new and for this user alone, and all go at the stop', async () => {
  const dirs = open();
  const [one, other] = [await dirs.make(), await dirs.make()];
  expect(one).not.toBe(other);
  expect(((await stat(one)).mode & 0o777).toString(8)).toBe('700');
  await dirs.remove(one);
  await dirs.remove(one); // twice is harmless
  await dirs.stop(0);
  await dirs.stop(0);
  expect(await readdir(root)).toEqual([]);
});

test('a root that does not exist yet is no fault', async () => {
  const dirs = open(join(root, 'a', 'b'));
  await dirs.start();
  await dirs.make();
  await dirs.stop(0);
  expect(await readdir(join(root, 'a', 'b'))).toEqual([]);
});
