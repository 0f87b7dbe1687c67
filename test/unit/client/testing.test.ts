/** `@warren/client/testing`: a task type runs inline, and a test sees what was enqueued. */
import { existsSync } from 'node:fs';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, expect, test } from '@jest/globals';
import { z } from 'zod';
import type { EnqueuedTask } from '../../../client/src/testing.ts';
import { createTestClient, runTask } from '../../../client/src/testing.ts';
import type { Enqueued, HttpClient, TaskRef } from '../../../client/src/client.ts';
import { defineTask } from '../../../shared/tasks/define-task.ts';
import { readSource } from '../../support/source-files.ts';
import { NonRetryable, RetryAfter } from '../../../shared/tasks/handler-errors.ts';

let seenDir = '';
const copy = defineTask({
  name: 'text.copy',
  input: z.object({ text: z.string(), times: z.int().default(2) }),
  run: async ({ text, times }, ctx) => {
    const { progress, tempDir, breaker, defer, log } = ctx;
    if (text === 'later') defer(50);
    if (text === 'never') throw new NonRetryable('gives up');
    if (text === 'soon') throw new RetryAfter(700);
    if (text === 'odd') throw new Error('once more');
    seenDir = await tempDir();
    await writeFile(join(seenDir, 'part'), text);
    progress(0.5, 'half');
    log.child({ part: 1 }).info('copied', { times });
    const said = await breaker('printer', async (signal) => await Promise.resolve(signal.aborted));
    return { text: text.repeat(times), at: new Date(0), attempt: ctx.attempt, said, nothing: undefined };
  },
});

describe('a task type that is run inline', () => {
  test('gets what its schema gives, and its result is what a caller would read', async () => {
    const run = await runTask(copy, { text: 'ab' }, { attempt: 3 });
    expect(run).toEqual({
      outcome: 'succeeded',
      result: { text: 'abab', at: '1970-01-01T00:00:00.000Z', attempt: 3, said: false },
      progress: [{ fraction: 0.5, step: 'half', message: undefined }],
      log: [{ level: 'info', message: 'copied', fields: { part: 1, times: 2 } }],
      breakers: ['printer'],
      done: {},
      files: {},
      added: [],
    });
    expect(seenDir).not.toBe('');
    expect(existsSync(seenDir)).toBe(false);
  });

  test.each([
    ['later', { outcome: 'deferred', delayMs: 100 }],
    ['never', { outcome: 'failed', retryable: false, error: { message: 'gives up' } }],
    ['soon', { outcome: 'failed', retryable: true, retryAfterMs: 700 }],
    ['odd', { outcome: 'failed', retryable: true, error: { message: 'once more' } }],
  ])('ends as its handler says: %s', async (text, outcome) => {
    expect(await runTask(copy, { text })).toMatchObject(outcome);
  });

  test('is deferred behind an open breaker, hears its abort, and fails where its schema refuses', async () => {
    expect(await runTask(copy, { text: 'a' }, { openBreakers: ['printer'] })).toMatchObject({ outcome: 'deferred' });
    const aborted = await runTask(copy, { text: 'a' }, { signal: AbortSignal.abort() });
    expect(aborted).toMatchObject({ outcome: 'succeeded', result: { said: true } });
    const refused = await runTask(copy, { text: 5 as unknown as string });
    expect(refused).toMatchObject({
      outcome: 'failed',
      retryable: false,
      error: { message: expect.stringMatching(/^input\.text /) },
    });
    await expect(runTask(copy, { text: new Date() as unknown as string })).rejects.toMatchObject({
      field: 'input.text',
    });
  });
});

test('a task type that is run inline does its side effects once, keeps files and settles', async () => {
  let calls = 0;
  const pay = defineTask({
    name: 'order.pay',
    input: z.object({ order: z.string() }),
    run: async ({ order }, { once, saveFile, settleWith, progress }) => {
      progress(0.1, 'paying', 'card');
      const charge = async (): Promise<{ at: Date }> => await Promise.resolve({ at: new Date((calls += 1)) });
      const [first, second] = await Promise.all([once('charge', charge), once('charge', charge)]);
      const receipt = await saveFile(Buffer.from(order), { name: 'receipt.txt', contentType: 'text/plain' });
      await settleWith({ query: async () => await Promise.resolve({ rows: [] }) } as never, { first, second, receipt });
      return 'after the settle';
    },
  });
  const run = await runTask(pay, { order: '1042' });
  const charged = { at: '1970-01-01T00:00:00.001Z' };
  expect(run).toMatchObject({
    outcome: 'succeeded',
    result: { first: charged, second: charged, receipt: { name: 'receipt.txt', bytes: 4 } },
    done: { charge: charged },
    progress: [{ fraction: 0.1, step: 'paying', message: 'card' }],
  });
  expect(Object.values(run.files).map(({ bytes }) => Buffer.from(bytes).toString())).toEqual(['1042']);
  // A later attempt is given what the first has done.
  await runTask(pay, { order: '1042' }, { attempt: 2, done: run.done });
  expect(calls).toBe(1);
});

test('a task type that is run inline adds steps, each once', async () => {
  const split = defineTask({
    name: 'video.split',
    input: z.object({ pieces: z.int() }),
    run: async ({ pieces }, { addStep }) => {
      const inputs = Array.from({ length: pieces }, (_each, n) => ({ n }));
      return await addStep('encode', { type: 'video.encode', inputs, priority: 2 });
    },
  });
  const run = await runTask(split, { pieces: 2 });
  const encode = { name: 'encode', type: 'video.encode', inputs: [{ n: 0 }, { n: 1 }], isGroup: true };
  expect(run).toMatchObject({
    outcome: 'succeeded',
    result: { taskIds: ['encode-0', 'encode-1'], duplicate: false },
    added: [{ ...encode, options: { priority: 2 } }],
  });
  const again = await runTask(split, { pieces: 2 }, { attempt: 2, added: run.added });
  expect(again).toMatchObject({ result: { duplicate: true }, added: run.added });
  expect(await runTask(split, { pieces: 3 }, { attempt: 2, added: run.added })).toMatchObject({ outcome: 'failed' });
});

test('a task type that is run inline reads the results that are given', async () => {
  const sum = defineTask({
    name: 'sum',
    input: z.object({ path: z.string().optional() }),
    run: async ({ path }, { stepResults }) => {
      const got: unknown[] = [];
      for await (const each of stepResults('encode', path === undefined ? {} : { path })) got.push(each);
      return got;
    },
  });
  const results = { encode: [{ n: 1, at: new Date(0) }, undefined, null, { 'a/b': [7] }] };
  expect(await runTask(sum, {}, { results })).toMatchObject({
    result: [{ n: 1, at: '1970-01-01T00:00:00.000Z' }, null, null, { 'a/b': [7] }],
  });
  expect(await runTask(sum, { path: '/a~1b/0' }, { results })).toMatchObject({ result: [null, null, null, 7] });
  expect(await runTask(sum, {}, { results: { encode: [] } })).toMatchObject({ result: [] });
  for (const failing of [await runTask(sum, {}), await runTask(sum, { path: 'n' }, { results })]) {
    expect(failing).toMatchObject({ outcome: 'failed', error: expect.any(TypeError) });
  }
});

test('the context of a test has every member of the real one', () => {
  const real = readSource('shared/tasks/define-task.ts');
  const body = /export interface TaskContext \{\n([\s\S]*?)^\}/m.exec(real)?.[1] ?? '';
  const members = [...body.matchAll(/^ {2}readonly (\w+):/gm)].map(([, name = '']) => name);
  const fake = readSource('client/src/testing-run.ts');
  expect(members.length).toBeGreaterThan(8);
  expect(members.filter((name) => !new RegExp(`^  readonly ${name}(:| =)`, 'm').test(fake))).toEqual([]);
});

describe('a client of a test', () => {
  test('keeps what was enqueued, by type, as the handler would read it', async () => {
    const client = createTestClient();
    const { id } = await client.enqueue(copy, { text: 'a' }, { priority: 9, runAt: new Date(0) });
    await client.enqueue('mail.send', { to: 'b' }, { idempotencyKey: 'k' });
    const [first] = client.enqueued(copy);
    expect(first).toEqual({
      id,
      type: 'text.copy',
      input: { text: 'a' },
      options: { priority: 9, runAt: '1970-01-01T00:00:00.000Z' },
    });
    expect(client.enqueued('mail.send')).toMatchObject([{ input: { to: 'b' }, options: { idempotencyKey: 'k' } }]);
    expect(client.enqueued()).toHaveLength(2);
    client.clear();
    expect(client.enqueued()).toEqual([]);
    await client.close();
  });

  test('refuses what the real ones refuse: inputs that JSON changes, and what the schema refuses', async () => {
    const client = createTestClient();
    await expect(client.enqueue(copy, { text: 'a', at: new Date() } as never)).rejects.toMatchObject({
      field: 'input.at',
    });
    await expect(client.enqueue(copy, { text: 1 } as never)).rejects.toMatchObject({
      code: 'input-invalid',
      field: 'input.text',
    });
    await expect(client.enqueue(copy, { text: 'a' }, { prio: 1 } as never)).rejects.toMatchObject({ field: 'prio' });
    const both = { unique: { key: 'a' }, throttle: { key: 'a', withinMs: 1 } };
    await expect(client.enqueue(copy, { text: 'a' }, both)).rejects.toMatchObject({ field: 'throttle' });
    expect(client.enqueued()).toEqual([]);
    const many = await client.enqueueMany([
      { type: copy, input: { text: 'a' } },
      { type: copy, input: { text: 1 } },
    ]);
    expect(many.map(({ kind }) => kind)).toEqual(['enqueued', 'refused']);
  });

  test('answers with the task that holds the key', async () => {
    const client = createTestClient();
    const rule = { unique: { key: 'one' } };
    const first = await client.enqueue(copy, { text: 'a' }, rule);
    expect(await client.enqueueIn(undefined, copy, { text: 'b' }, rule)).toEqual({ id: first.id, duplicate: true });
    const reject = { unique: { key: 'one', onConflict: 'reject' as const } };
    await expect(client.enqueue(copy, { text: 'c' }, reject)).rejects.toMatchObject({ code: 'unique-conflict' });
    expect(client.enqueued(copy)).toHaveLength(1);
    const debounce = { debounce: { key: 'typing', delayMs: 500 } };
    const typed = await client.enqueue(copy, { text: 'h' }, debounce);
    expect(await client.enqueue(copy, { text: 'hi' }, debounce)).toEqual({ id: typed.id, duplicate: true });
    expect(client.enqueued(copy).at(-1)).toMatchObject({ id: typed.id, input: { text: 'hi' } });
  });

  test('gives the results that the test says', async () => {
    const client = createTestClient();
    const { id } = await client.enqueue(copy, { text: 'a' });
    await expect(client.result(id)).rejects.toThrow('say what becomes of task');
    client.succeed(id, { text: 'aa', at: new Date(0), attempt: 1, said: false, nothing: undefined });
    expect((await client.result(id)).text).toBe('aa');
    client.fail(id, 'printer on fire');
    await expect(client.result(id)).rejects.toMatchObject({
      name: 'TaskDeadError',
      error: { message: 'printer on fire' },
    });
  });
});

/** True where two types are the same; whether it compiles is the test. */
type Same<A, B> = (<T>() => T extends A ? 1 : 2) extends <T>() => T extends B ? 1 : 2 ? true : false;

test('inputs and results are typed by the definition of the task', () => {
  const typed = (http: HttpClient): Record<string, unknown> => ({
    right: async () => {
      const enqueued = await http.enqueue(copy, { text: 'a' });
      const { text } = await http.result(enqueued.id);
      const isText: Same<typeof text, string> = true;
      return isText;
    },
    // @ts-expect-error -- times is a number
    wrongMember: async () => await http.enqueue(copy, { text: 'a', times: '2' }),
    // @ts-expect-error -- text is required
    missingMember: async () => await http.enqueue(copy, {}),
    // @ts-expect-error -- no such option
    wrongOption: async () => await http.enqueue(copy, { text: 'a' }, { prio: 1 }),
    byName: async (): Promise<Enqueued> => await http.enqueue('any.name', { anything: 1 }),
    refOf: (id: string): TaskRef<number> => id,
    seen: (client: { enqueued: (type: typeof copy) => readonly EnqueuedTask[] }) => client.enqueued(copy),
  });
  expect(typeof typed).toBe('function');
});
