import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterAll, beforeAll, expect, test } from '@jest/globals';
import { z } from 'zod';
import { loadRegistry } from '../../../../services/worker/registry.ts';
import type { Registry } from '../../../../services/worker/registry.ts';
import { defineTask } from '../../../../shared/tasks/define-task.ts';
import type { TaskType } from '../../../../shared/tasks/define-task.ts';

const baseDir = fileURLToPath(new URL('../../../support/task-modules/', import.meta.url));
const load = (modules: string[], builtIn: TaskType[] = [], from = baseDir): Promise<Registry> =>
  loadRegistry({ modules, baseDir: from, builtIn });

let project: string;
beforeAll(async () => {
  project = await mkdtemp(join(tmpdir(), 'warren-test-registry-'));
  const folder = join(project, 'node_modules', 'own-tasks');
  await mkdir(folder, { recursive: true });
  await writeFile(join(folder, 'package.json'), '{"name":"own-tasks","type":"module","exports":"./main.js"}');
  const type = `{warren:'task-type',name:'own.mail',run(){},input:{},retry:{}}`;
  await writeFile(join(folder, 'main.js'), `export const mail = ${type}; export const constructor = 1;`);
});
afterAll(() => rm(project, { recursive: true }));

test('every export made by defineTask is found by its name, with its module', async () => {
  const registry = await load(['./in-thread.ts']);
  expect(registry.all().map(({ name }) => name)).toEqual(expect.arrayContaining(['thread.echo', 'loop.echo']));
  expect(registry.find('loop.echo')).toMatchObject({ name: 'loop.echo', isolation: 'loop' });
  expect(registry.moduleOf('thread.echo')).toMatch(/^file:.*\/in-thread\.ts$/);
});

test('names that nobody registered are not there, also those that every object has', async () => {
  const registry = await load(['./in-thread.ts']);
  expect(['constructor', '__proto__', 'toString', 'nope'].map((name) => registry.find(name))).toEqual(
    Array(4).fill(undefined),
  );
});

test('modules are named by path, file URL or package; the same type found twice is one', async () => {
  const url = new URL('../../../support/task-modules/re-export.ts', import.meta.url).href;
  const registry = await load([url, join(baseDir, 're-export.ts'), 'in-thread.ts']);
  expect(registry.moduleOf('loop.echo')).toBe(url);
  expect((await load(['own-tasks'], [], project)).find('own.mail')).toBeDefined();
});

test('built-in types are there, and their names are taken', async () => {
  const builtIn = defineTask({ name: 'loop.echo', input: z.unknown(), run: () => 1 });
  expect((await load([], [builtIn])).find('loop.echo')).toBe(builtIn);
  await expect(load(['./same-name.ts'], [builtIn])).rejects.toMatchObject({ code: 'task-module-invalid' });
});

test.each([
  [['./empty.ts'], './empty.ts', 'exports nothing'],
  [['./in-thread.ts', './same-name.ts'], './same-name.ts', 'loop.echo is defined twice'],
  [['./broken.ts'], './broken.ts', 'cannot be loaded'],
  [['./missing.ts'], './missing.ts', 'cannot be loaded'],
  [['no-such-package'], 'no-such-package', 'no installed package'],
])('%j is refused, and the module named', async (modules, module, reason) => {
  await expect(load(modules)).rejects.toMatchObject({
    code: 'task-module-invalid',
    facts: { module, reason: expect.stringContaining(reason) as unknown },
  });
});
