/** Task types that one process announces are known to another. */
import { afterAll, beforeAll, expect, test } from '@jest/globals';
import { z } from 'zod';
import { isWarrenError } from '../../shared/errors/warren-error.ts';
import { silentLogger } from '../../shared/observability/silent-log.ts';
import { announceQueues, announceTypes } from '../../shared/tasks/announce.ts';
import { defineTask, describeTask } from '../../shared/tasks/define-task.ts';
import type { TaskTypeDescription } from '../../shared/tasks/define-task.ts';
import { TypeCatalog } from '../../shared/tasks/type-catalog.ts';
import { systemClock } from '../../shared/time/clock.ts';
import { aDatabase, openDatabase } from '../support/database.ts';
import type { TestDatabase } from '../support/database.ts';

let db: TestDatabase;
beforeAll(async () => {
  db = await openDatabase();
});
afterAll(async () => await db[Symbol.asyncDispose]());

const aCatalog = (): TypeCatalog =>
  new TypeCatalog(
    { db: db.database, clock: systemClock, log: silentLogger, random: () => 0.5 },
    { refreshMs: 3_600_000, missGapMs: 50 },
  );

const aType = (name: string, changes: Partial<TaskTypeDescription> = {}): TaskTypeDescription => ({
  ...describeTask(
    defineTask({ name, input: z.object({ to: z.email(), page: z.url().optional() }), queue: 'mail', run: () => null }),
  ),
  ...changes,
});

test('an announced type is known with its queue, its policy and its schema', async () => {
  await announceTypes(db.database, [aType('mail.send', { priority: 7 }), aType('mail.send', { priority: 8 })], 'v1');
  const catalog = aCatalog();
  await catalog.start();
  expect(catalog.find('mail.send')).toMatchObject({
    queue: 'mail',
    priority: 8,
    maxAttempts: 5,
    timeoutMs: 900_000,
    isolation: 'loop',
    retry: { maxAttempts: 5, firstDelayMs: 1_000 },
    codeVersion: 'v1',
  });
  expect(catalog.hasQueue('mail')).toBe(true);
  const check = catalog.find('mail.send')?.checkInput;
  expect(check?.({ to: 'a@example.com', page: 'http://example.com/' })).toEqual([]);
  expect(check?.({ to: 'nobody', page: 'no url' }).map(({ field }) => field)).toEqual(['input.to', 'input.page']);
  for (const name of ['__proto__', 'constructor', 'mail']) expect(catalog.find(name)).toBeUndefined();
  await catalog.stop(0);
});

test('a miss finds what was announced a moment ago, and misses share their looks', async () => {
  const catalog = aCatalog();
  await catalog.start();
  await announceTypes(db.database, [aType('mail.later')], 'v1');
  await announceQueues(db.database, ['bulk', 'bulk']);
  expect(catalog.find('mail.later')).toBeUndefined();
  await Promise.all(Array.from({ length: 50 }, async () => await catalog.refreshAfterMiss()));
  expect(catalog.find('mail.later')).toBeDefined();
  expect(catalog.queues()).toEqual(expect.arrayContaining(['bulk', 'mail']));
  await catalog.stop(0);
});

test('a later announcement replaces the earlier one, schema included', async () => {
  const catalog = aCatalog();
  await catalog.start();
  await announceTypes(db.database, [aType('mail.old', { inputSchema: { required: ['x'] } })], 'v1');
  await catalog.refresh();
  expect(catalog.find('mail.old')?.checkInput?.({})).toHaveLength(1);
  await announceTypes(db.database, [aType('mail.old', { inputSchema: undefined, queue: 'other' })], 'v2');
  await catalog.refresh();
  expect(catalog.find('mail.old')).toMatchObject({ queue: 'other', checkInput: undefined, codeVersion: 'v2' });
  await catalog.stop(0);
});

test('a schema that cannot be compiled lets every input pass', async () => {
  await announceTypes(db.database, [aType('mail.odd', { inputSchema: { $ref: 'https://example.com/x' } })], 'v1');
  const catalog = aCatalog();
  await catalog.start();
  expect(catalog.find('mail.odd')?.checkInput?.({})).toEqual([]);
  await catalog.stop(0);
});

test('without Postgres the catalog starts empty, says so, and a miss is no verdict', async () => {
  const away = aDatabase('postgres://postgres@127.0.0.1:1/none', { connectTimeoutMs: 200 });
  await away.start();
  const catalog = new TypeCatalog(
    { db: away, clock: systemClock, log: silentLogger, random: () => 0.5 },
    { refreshMs: 3_600_000, missGapMs: 10 },
  );
  await catalog.start();
  expect(catalog.isLoaded).toBe(false);
  const failure = await catalog.refreshAfterMiss().catch((thrown: unknown) => thrown);
  expect(isWarrenError(failure, 'database-unavailable')).toBe(true);
  await catalog.stop(0);
  await away.stop(0);
});

test('workers that announce the same types at once do not deadlock', async () => {
  const names = Array.from({ length: 20 }, (_, n) => `mail.t${n}`);
  const announcing = Array.from({ length: 8 }, async (_, n) => {
    const order = n % 2 === 0 ? names : names.toReversed();
    await announceTypes(
      db.database,
      order.map((name) => aType(name)),
      `v${n}`,
    );
  });
  expect(await Promise.all(announcing)).toHaveLength(8);
});
