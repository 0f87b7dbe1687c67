/** A private stack of its own: what servers do when they are killed, stopped and started again. */
import { mkdtemp, rm, stat, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import { greetBroker } from '../../deploy/local-stack/greeting.ts';
import { takeLock } from '../../deploy/local-stack/lock.ts';
import { answers, ensureDatabase } from '../../deploy/local-stack/named.ts';
import { findFreePort, isPortFree } from '../../deploy/local-stack/ports.ts';
import { resetStack, startStack } from '../../deploy/local-stack/stack.ts';
import type { Stack } from '../../deploy/local-stack/stack.ts';
import { readStatus } from '../../deploy/local-stack/status.ts';
import { aDatabase } from '../support/database.ts';
import { systemClock } from '../../shared/time/clock.ts';

/** An instance that no other test uses. */
const NAME = 'local-stack-test';
const START_MS = 180_000;

let stack: Stack;
const lines: string[] = [];

beforeAll(async () => {
  await resetStack({ name: NAME });
  stack = await startStack({ name: NAME, onlyPrivate: true, log: (line) => lines.push(line) });
}, START_MS);

afterAll(async () => {
  await resetStack({ name: NAME });
}, START_MS);

describe('a private stack', () => {
  test('both servers answer, and each step was a line', async () => {
    expect(await greetBroker(stack.amqpUrl, 5_000)).toMatchObject({
      product: 'RabbitMQ',
      version: stack.brokerVersion,
    });
    expect(await answers(stack.databaseUrl)).toBe(true);
    expect(stack.wasStarted).toBe(true);
    expect(lines.join('\n')).toMatch(/RabbitMQ [\d.]+ answers[\s\S]*Postgres [\d.]+ answers/);
  });

  test('a wrong password is refused by both', async () => {
    const wrong = new URL(stack.databaseUrl);
    wrong.password = 'wrong';
    expect(await answers(wrong.href)).toBe(false);
    if (stack.managementUrl === undefined) return;
    const management = new URL(stack.managementUrl);
    const whoami = async (user: string, password: string): Promise<number> => {
      const authorization = `Basic ${Buffer.from(`${user}:${password}`).toString('base64')}`;
      return (await fetch(`${management.origin}/api/whoami`, { headers: { authorization } })).status;
    };
    expect(await whoami(management.username, management.password)).toBe(200);
    expect(await whoami('guest', 'guest')).toBe(401);
  });

  test('rabbitmqctl reaches the private broker', async () => {
    expect(await stack.broker.ctl?.('eval', 'rabbit_misc:version().')).toContain(stack.brokerVersion);
  });

  test('a second start finds it running and says so', async () => {
    const again = await startStack({ name: NAME, onlyPrivate: true });
    expect(again.wasStarted).toBe(false);
    expect(again.amqpUrl).toBe(stack.amqpUrl);
    expect(again.broker.pid).toBe(stack.broker.pid);
  });

  test(
    'a killed broker comes back at the same URL',
    async () => {
      const { pid } = stack.broker;
      await stack.broker.kill();
      expect(await greetBroker(stack.amqpUrl, 1_000)).toBeUndefined();
      expect((await readStatus(NAME)).isRunning).toBe(false);
      expect(await stack.broker.start()).toBe(true);
      expect(await greetBroker(stack.amqpUrl, 5_000)).toBeDefined();
      expect(stack.broker.pid).not.toBe(pid);
    },
    START_MS,
  );

  test(
    'a killed database comes back with what was committed',
    async () => {
      await run(stack.databaseUrl, 'create table kept (n int4)');
      await run(stack.databaseUrl, 'insert into kept values (1)');
      await stack.database.kill();
      expect(await answers(stack.databaseUrl)).toBe(false);
      await stack.database.start();
      expect(await run(stack.databaseUrl, 'select n from kept')).toEqual([{ n: 1 }]);
    },
    START_MS,
  );

  test(
    'a stop leaves no process and no listener, and the next start keeps ports and passwords',
    async () => {
      const ports = [stack.amqpUrl, stack.databaseUrl].map((url) => Number(new URL(url).port));
      await stack.stop();
      expect(await Promise.all(ports.map(isPortFree))).toEqual([true, true]);
      expect(await readStatus(NAME)).toMatchObject({ isRunning: false });
      const again = await startStack({ name: NAME, onlyPrivate: true });
      expect([again.amqpUrl, again.databaseUrl]).toEqual([stack.amqpUrl, stack.databaseUrl]);
    },
    START_MS,
  );

  test('a user who may not create a database is told what would help', async () => {
    await run(stack.databaseUrl, `create role "limited user" login password 'limited'`);
    const url = new URL(stack.databaseUrl);
    url.username = 'limited user';
    url.password = 'limited';
    await expect(ensureDatabase(url.href, 'warren_other')).rejects.toMatchObject({
      message: expect.stringContaining('alter role "limited user" createdb;'),
      exitCode: 69,
    });
    expect(await ensureDatabase(stack.databaseUrl, 'warren_other')).toMatch(/\/warren_other$/);
  });
});

describe('the lock of a clone', () => {
  test('a second holder is refused with the pid of the first, and gets it afterwards', async () => {
    await using folder = await aFolder();
    const first = await takeLock({ notes: folder.path }, 'x', { waitMs: 0 });
    await expect(takeLock({ notes: folder.path }, 'x', { waitMs: 0 })).rejects.toMatchObject({
      message: expect.stringContaining(`pid ${process.pid}`),
      exitCode: 75,
    });
    await first.release();
    await using second = await takeLock({ notes: folder.path }, 'x', { waitMs: 0 });
    expect(second).toBeDefined();
  });

  test('a lock whose holder is gone does not bind', async () => {
    await using folder = await aFolder();
    await writeFile(join(folder.path, 'x.lock'), JSON.stringify({ pid: process.pid, began: 'before the last boot' }));
    await using lock = await takeLock({ notes: folder.path }, 'x', { waitMs: 5_000 });
    expect((await stat(join(folder.path, 'x.lock'))).isFile()).toBe(true);
    expect(lock).toBeDefined();
  });
});

test('a free port can be had and is outside the range of outgoing connections', async () => {
  const port = await findFreePort([]);
  expect(port).toBeLessThan(32_768);
  expect(await isPortFree(port)).toBe(true);
});

async function run(url: string, text: string): Promise<readonly unknown[]> {
  const database = aDatabase(url, { schema: 'public' });
  try {
    await database.connectOrThrow();
    return (await database.query({ text })).rows;
  } finally {
    await database.stop(systemClock.monotonicMs() + 1_000);
  }
}

async function aFolder(): Promise<AsyncDisposable & { readonly path: string }> {
  const path = await mkdtemp(join(tmpdir(), 'warren-lock-'));
  return { path, [Symbol.asyncDispose]: async () => await rm(path, { recursive: true }) };
}
