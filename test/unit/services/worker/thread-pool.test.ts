import { access } from 'node:fs/promises';
import { describe, expect, test } from '@jest/globals';
import { newId } from '../../../../shared/tasks/ids.ts';
import type { Outcome } from '../../../../shared/tasks/outcome.ts';
import * as types from '../../../support/task-modules/in-thread.ts';
import { eventually } from '../../../support/eventually.ts';
import { openRunner } from '../../../support/runner.ts';
import type { TestRunner } from '../../../support/runner.ts';

const module = new URL('../../../support/task-modules/in-thread.ts', import.meta.url).href;
const open = (threads = {}, breaker = {}): Promise<TestRunner> =>
  openRunner({ module, threads: { maxThreads: 2, ...threads }, breaker, run: { abortGraceMs: 50 } });

const valueOf = (outcome: Outcome): unknown =>
  outcome.kind === 'succeeded' && outcome.result !== undefined ? JSON.parse(outcome.result.toString()) : outcome;

describe('a handler in a thread', () => {
  test('gets input and context, and its result comes back as bytes', async () => {
    await using runner = await open();
    const taskId = newId();
    const outcome = await runner.run(types.echo, { n: 1 }, taskId);
    expect(valueOf(outcome)).toEqual({ input: { n: 1 }, isMainThread: false, taskId, fencingToken: 1 });
    expect(Buffer.isBuffer((outcome as { result: unknown }).result)).toBe(true);
  });

  test('errors keep what they say: NonRetryable, RetryAfter, deferral, and rules of the policy', async () => {
    await using runner = await open();
    const run = (input: string): Promise<Outcome> => runner.run(types.throws, input);
    expect(await run('boom')).toMatchObject({
      kind: 'failed',
      reason: 'error',
      retryable: true,
      error: { message: 'boom' },
    });
    expect(await run('never')).toMatchObject({ kind: 'failed', reason: 'non_retryable', retryable: false });
    expect(await run('non-retryable')).toMatchObject({ kind: 'failed', reason: 'non_retryable' });
    expect(await run('later')).toMatchObject({ kind: 'failed', retryable: true, delayMs: 1_234 });
    expect(await run('defer')).toEqual({ kind: 'deferred', delayMs: 4_321, why: 'handler' });
  });

  test('says progress and log lines, redacted, and has a directory that is gone afterwards', async () => {
    await using runner = await open();
    const taskId = newId();
    const outcome = await runner.run(types.busy, null, taskId);
    await expect(access(String(valueOf(outcome)))).rejects.toMatchObject({ code: 'ENOENT' });
    // a burst is cut to its first and its last word
    expect(runner.progress.map(({ step }) => step)).toEqual(['step 1', 'step 5']);
    const fields = { taskId, taskType: 'thread.busy', part: 'inner', password: '***', fn: '[function]' };
    expect(runner.lines).toMatchObject([{ level: 'warn', message: 'said in a thread', fields }]);
  });

  test('hears its signal, and is not killed when it heeds it', async () => {
    await using runner = await openRunner({ module, run: { abortGraceMs: 5_000 } });
    const outcome = await runner.run(types.sleeper, null);
    expect(outcome).toMatchObject({ kind: 'failed', reason: 'timeout', error: { code: 'attempt-timeout' } });
    expect(runner.lines.map(({ message }) => message)).toEqual(['heeded']);
  });
});

describe('a handler in a thread that cannot be reasoned with', () => {
  test('is killed at its timeout while it blocks, and the next one runs', async () => {
    await using runner = await open({ maxThreads: 1 });
    const [blocked, after] = await Promise.all([runner.run(types.block, null), runner.run(types.echo, 1)]);
    expect(blocked).toMatchObject({ kind: 'failed', reason: 'timeout', retryable: true });
    expect(blocked).not.toHaveProperty('abandoned');
    expect(after.kind).toBe('succeeded');
    expect(runner.runner).toMatchObject({ running: 0, abandonedCount: 0 });
  });

  test('is cancelled while it blocks, and while it waits for a thread', async () => {
    await using runner = await open({ maxThreads: 1 });
    const [first, second] = [newId(), newId()];
    const running = [runner.run(types.block, null, first), runner.run(types.echo, null, second)];
    runner.runner.abort(first, 'cancel');
    runner.runner.abort(second, 'lease');
    expect(await Promise.all(running)).toEqual([
      { kind: 'interrupted', by: 'cancel' },
      { kind: 'interrupted', by: 'lease' },
    ]);
    expect((await runner.run(types.echo, 1)).kind).toBe('succeeded');
  });

  test('takes only its thread with it when it allocates without end', async () => {
    await using runner = await open({ maxHeapMegabytes: 32 });
    const outcome = await runner.run(types.greedy, null);
    expect(outcome).toMatchObject({
      kind: 'failed',
      reason: 'error',
      retryable: true,
      error: { code: 'thread-lost', message: expect.stringContaining('out of memory, maxHeapMegabytes: 32') },
    });
    expect((await runner.run(types.echo, 1)).kind).toBe('succeeded');
  });

  test('takes only its thread with it when it calls process.exit or leaves a rejection unhandled', async () => {
    await using runner = await open({ maxThreads: 1 });
    expect(await runner.run(types.exits, null)).toMatchObject({
      kind: 'failed',
      reason: 'error',
      retryable: true,
      error: { code: 'thread-lost', message: expect.stringContaining('exited with 3') },
    });
    expect(await runner.run(types.throws, 'unhandled')).toMatchObject({ error: { message: 'nobody hears this' } });
    const many = await Promise.all([1, 2, 3, 4].map((n) => runner.run(n % 2 === 0 ? types.exits : types.echo, n)));
    expect(many.map(({ kind }) => kind)).toEqual(['succeeded', 'failed', 'succeeded', 'failed']);
  });
});

test('calls wait their turn, and one that is cancelled while it waits lets nobody past', async () => {
  await using runner = await open({ maxThreads: 1 });
  const ids = Array.from({ length: 6 }, () => newId());
  const running = ids.map((taskId, index) => runner.run(index === 0 ? types.block : types.echo, index, taskId));
  for (const taskId of ids.slice(1, 3)) runner.runner.abort(taskId, 'cancel');
  const kinds = (await Promise.all(running)).map(({ kind }) => kind);
  expect(kinds).toEqual(['failed', 'interrupted', 'interrupted', 'succeeded', 'succeeded', 'succeeded']);
});

test('breakers are the process’s own, also for calls in threads', async () => {
  await using runner = await open({}, { volumeThreshold: 3 });
  expect(valueOf(await runner.run(types.calls, 'ok'))).toBe('called');
  expect(await runner.run(types.calls, 'wrong')).toMatchObject({ kind: 'failed', reason: 'non_retryable' });
  for (let round = 0; round < 3; round += 1) expect((await runner.run(types.calls, 'fail')).kind).toBe('failed');
  expect(runner.breakers.states()).toEqual(new Map([['dependency', 'open']]));
  expect(await runner.run(types.calls, 'ok')).toMatchObject({ kind: 'deferred', why: 'breaker' });
});

test('a probe from a thread that fails, or takes too long, is deferred too, and the next one closes the breaker', async () => {
  await using runner = await open({}, { volumeThreshold: 1, resetTimeoutMs: 20, callTimeoutMs: 200 });
  const isHalfOpen = (): void => expect(runner.breakers.states().get('dependency')).toBe('half-open');
  expect((await runner.run(types.calls, 'fail')).kind).toBe('failed');
  for (const input of ['fail', 'hang']) {
    await eventually(isHalfOpen);
    expect(await runner.run(types.calls, input)).toMatchObject({ kind: 'deferred', why: 'breaker' });
  }
  await eventually(isHalfOpen);
  expect(valueOf(await runner.run(types.calls, 'ok'))).toBe('called');
  expect(runner.breakers.states().get('dependency') ?? 'closed').toBe('closed');
});

test('a type whose module no longer exports it fails, and does not hang', async () => {
  await using runner = await open();
  const gone = { ...types.echo, name: 'thread.gone' };
  expect(await runner.run(gone, 1)).toMatchObject({ kind: 'failed', error: { code: 'task-module-invalid' } });
});

test('a call behind a breaker that ends with its thread is no late success', async () => {
  await using runner = await open({ maxThreads: 1 }, { callTimeoutMs: 50 });
  expect(valueOf(await runner.run(types.calls, 'ok'))).toBe('called'); // the thread is there
  const blocks = { ...types.calls, timeoutMs: 400 };
  expect(await runner.run(blocks, 'block')).toMatchObject({ kind: 'failed', reason: 'timeout' });
  expect(runner.lateCalls).toEqual([]);
  expect(runner.breakers.states()).toEqual(new Map([['dependency', 'closed']]));
});
