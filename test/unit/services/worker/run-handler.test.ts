import { access, readdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, expect, test } from '@jest/globals';
import { z } from 'zod';
import { defineTask } from '../../../../shared/tasks/define-task.ts';
import type { TaskContext, TaskType } from '../../../../shared/tasks/define-task.ts';
import { NonRetryable, RetryAfter } from '../../../../shared/tasks/handler-errors.ts';
import { newId } from '../../../../shared/tasks/ids.ts';
import type { RetryPolicy } from '../../../../shared/tasks/retry-policy.ts';
import { systemClock } from '../../../../shared/time/clock.ts';
import { openRunner } from '../../../support/runner.ts';

interface Parts {
  readonly timeoutMs?: number;
  readonly retry?: Partial<RetryPolicy>;
}

const typeOf = (run: (input: unknown, ctx: TaskContext) => unknown, parts: Parts = {}): TaskType =>
  defineTask({ name: 'test.type', input: z.unknown(), run, ...parts });

const never = (): Promise<never> => new Promise(() => undefined);

describe('outcomes', () => {
  test('a value becomes JSON bytes, nothing stays nothing, and null is a value', async () => {
    await using open = await openRunner();
    expect(
      await open.run(
        typeOf((input) => ({ got: input })),
        { a: 1 },
      ),
    ).toEqual({
      kind: 'succeeded',
      result: Buffer.from('{"got":{"a":1}}'),
    });
    expect(
      await open.run(
        typeOf(() => undefined),
        null,
      ),
    ).toEqual({ kind: 'succeeded', result: undefined });
    expect(
      await open.run(
        typeOf(() => null),
        null,
      ),
    ).toEqual({ kind: 'succeeded', result: Buffer.from('null') });
    expect(open.runner.running).toBe(0);
  });

  test('the handler gets what the schema made of the input', async () => {
    await using open = await openRunner();
    const type = defineTask({ name: 'a', input: z.object({ n: z.int().default(7) }), run: ({ n }) => n });
    expect(await open.run(type, {})).toEqual({ kind: 'succeeded', result: Buffer.from('7') });
  });

  test('input that the schema refuses dies as invalid_input, and the field is named', async () => {
    await using open = await openRunner();
    const type = defineTask({ name: 'a', input: z.object({ ids: z.array(z.int()) }), run: () => undefined });
    const outcome = await open.run(type, { ids: [1, 'x'] });
    expect(outcome).toMatchObject({
      kind: 'failed',
      reason: 'invalid_input',
      retryable: false,
      error: { code: 'input-invalid' },
    });
    expect(JSON.stringify(outcome)).toContain('input.ids[1]');
  });

  test('bytes that are no JSON, and a schema that throws, die as invalid_input', async () => {
    await using open = await openRunner();
    const broken = defineTask({
      name: 'a',
      input: z.unknown().transform(() => {
        throw new Error('schema bug');
      }),
      run: () => undefined,
    });
    expect(await open.run(broken, 1)).toMatchObject({ kind: 'failed', reason: 'invalid_input', retryable: false });
    const attempt = {
      type: typeOf(() => 1),
      taskId: newId(),
      attempt: 1,
      claimId: newId(),
      input: Buffer.from('{nope'),
    };
    expect(await open.runner.run(attempt)).toMatchObject({ kind: 'failed', reason: 'invalid_input' });
  });

  const cyclic: { self?: unknown } = {};
  cyclic.self = cyclic;
  const nested: unknown[] = [];
  let inner = nested;
  for (let level = 0; level < 100_000; level += 1) inner.push((inner = []));
  test.each([
    ['a BigInt', 1n],
    ['a cycle', cyclic],
    ['a function', never],
    ['a symbol', Symbol('x')],
    ['a throwing toJSON', { toJSON: () => JSON.parse('{') as unknown }],
    ['100 000 levels', nested],
  ])('a result that is %s dies as result_unstorable', async (_name, result) => {
    await using open = await openRunner();
    const outcome = await open.run(
      typeOf(() => result),
      null,
    );
    expect(outcome).toMatchObject({ kind: 'failed', reason: 'result_unstorable', retryable: false });
  });

  test('U+0000 and lone surrogates in a result are kept as JSON escapes', async () => {
    await using open = await openRunner();
    const outcome = await open.run(
      typeOf(() => '\0\ud800'),
      null,
    );
    expect(outcome).toEqual({ kind: 'succeeded', result: Buffer.from('"\\u0000\\ud800"') });
  });

  test('a result beyond the limit is refused, one at the limit is kept', async () => {
    await using open = await openRunner({ run: { resultMaxBytes: 10 } });
    expect(
      await open.run(
        typeOf(() => 'x'.repeat(8)),
        null,
      ),
    ).toMatchObject({ kind: 'succeeded' });
    expect(
      await open.run(
        typeOf(() => 'x'.repeat(9)),
        null,
      ),
    ).toMatchObject({
      kind: 'failed',
      reason: 'result_unstorable',
      error: { code: 'result-too-large' },
    });
  });
});

describe('what a handler throws', () => {
  const throwing = (thrown: unknown) => (): never => {
    throw thrown; // oxlint-disable-line typescript/only-throw-error -- handlers can throw anything
  };
  const evil = new Proxy(new Error('x'), {
    get: () => {
      throw new Error('getter');
    },
  });
  const sly = Object.defineProperty(new Error('seen'), 'stack', {
    get: () => {
      throw new Error('getter');
    },
  });

  test.each([
    ['undefined', undefined, 'thrown value: undefined'],
    ['a string', 'boom', 'thrown value: boom'],
    ['null', null, 'thrown value: null'],
    ['a symbol', Symbol('s'), 'thrown value: Symbol(s)'],
    ['a frozen error', Object.freeze(new Error('cold')), 'cold'],
    ['an object of throwing getters', evil, 'thrown value could not be read'],
    ['an error with a throwing stack', sly, 'seen'],
    ['an object without prototype', Object.create(null), 'thrown value could not be read'],
  ])('%s is a retryable failure', async (_name, thrown, message) => {
    await using open = await openRunner();
    expect(await open.run(typeOf(throwing(thrown)), null)).toMatchObject({
      kind: 'failed',
      reason: 'error',
      retryable: true,
      error: { message },
    });
    const rejecting = typeOf(() => Promise.reject(thrown as Error));
    expect(await open.run(rejecting, null)).toMatchObject({ kind: 'failed', retryable: true });
  });

  test('NonRetryable is for good, RetryAfter brings its delay, codes and names follow the policy', async () => {
    await using open = await openRunner();
    const coded = (code: string): Error => Object.assign(new Error(code), { code });
    const run = (thrown: unknown, retry: Partial<RetryPolicy> = {}) =>
      open.run(typeOf(throwing(thrown), { retry }), null);
    expect(await run(new NonRetryable('no'))).toMatchObject({ reason: 'non_retryable', retryable: false });
    expect(await run(new RetryAfter(5_000))).toMatchObject({ reason: 'error', retryable: true, delayMs: 5_000 });
    expect(await run(coded('ENOENT'), { neverOn: ['ENOENT'] })).toMatchObject({
      reason: 'non_retryable',
      retryable: false,
    });
    expect(await run(coded('EPIPE'), { retryOn: ['ENOENT'] })).toMatchObject({
      reason: 'non_retryable',
      retryable: false,
    });
    expect(await run(new TypeError('x'), { retryOn: ['TypeError'] })).toMatchObject({ retryable: true });
  });

  test('a retry rule that throws kills nothing and is logged', async () => {
    await using open = await openRunner();
    const retryOn = (): boolean => throwing(new Error('rule'))();
    expect(await open.run(typeOf(throwing(new Error('x')), { retry: { retryOn } }), null)).toMatchObject({
      retryable: true,
    });
    expect(open.lines).toMatchObject([
      { level: 'warn', message: 'retry rule of a task type threw', fields: { rule: 'retryOn' } },
    ]);
  });

  test('an error is stored without credentials, U+0000 and lone surrogates, bounded, with its causes', async () => {
    await using open = await openRunner();
    const cause = new Error('postgres://app:hunter2@db/x');
    const thrown = new Error(`\0\ud800${'x'.repeat(20_000)}`, { cause });
    const outcome = await open.run(typeOf(throwing(thrown)), null);
    const text = JSON.stringify(outcome);
    expect(text).not.toMatch(/hunter2|\\u0000|\\ud800/);
    expect(text.length).toBeLessThan(30_000);
    expect(outcome).toMatchObject({ error: { type: 'Error', causes: [{ message: 'postgres://***@db/x' }] } });
  });

  test('a deferral costs no attempt and is bounded from below', async () => {
    await using open = await openRunner();
    expect(
      await open.run(
        typeOf((_input, ctx) => ctx.defer(60_000)),
        null,
      ),
    ).toEqual({ kind: 'deferred', delayMs: 60_000, why: 'handler' });
    expect(
      await open.run(
        typeOf((_input, ctx) => ctx.defer(-5)),
        null,
      ),
    ).toEqual({ kind: 'deferred', delayMs: 100, why: 'handler' });
    expect(
      await open.run(
        typeOf((_input, ctx) => ctx.defer(Number.NaN)),
        null,
      ),
    ).toMatchObject({ kind: 'failed', error: { type: 'RangeError' } });
  });

  test('a thenable that settles twice, and one whose then throws, settle once', async () => {
    await using open = await openRunner();
    const twice = {
      // oxlint-disable-next-line unicorn/no-thenable -- that is what is tested
      then: (resolve: (value: string) => void, reject: (reason: Error) => void) => {
        resolve('first');
        reject(new Error('second'));
        throw new Error('third');
      },
    };
    expect(
      await open.run(
        typeOf(() => twice),
        null,
      ),
    ).toEqual({ kind: 'succeeded', result: Buffer.from('"first"') });
    // oxlint-disable-next-line unicorn/no-thenable -- that is what is tested
    const broken = Object.defineProperty({}, 'then', { get: throwing(new Error('no then')) });
    expect(
      await open.run(
        typeOf(() => broken),
        null,
      ),
    ).toMatchObject({ kind: 'failed', error: { message: 'no then' } });
  });
});

describe('timeouts and aborts', () => {
  test('a handler that heeds its signal at the timeout fails as timeout, and is not abandoned', async () => {
    await using open = await openRunner();
    const type = typeOf(
      async (_input, { signal }) => {
        await systemClock.sleep(60_000, signal);
        signal.throwIfAborted();
      },
      { timeoutMs: 20 },
    );
    const outcome = await open.run(type, null);
    expect(outcome).toMatchObject({
      kind: 'failed',
      reason: 'timeout',
      retryable: true,
      error: { code: 'attempt-timeout' },
    });
    expect(outcome).not.toHaveProperty('abandoned');
    expect(open.runner.abandonedCount).toBe(0);
  });

  test('one that ignores it is settled without, counted until it ends, and its late end is logged', async () => {
    await using open = await openRunner({ run: { abortGraceMs: 10, maxAbandoned: 1 } });
    const ends: (() => void)[] = [];
    const type = typeOf(() => new Promise<void>((resolve) => ends.push(resolve)), { timeoutMs: 10 });
    const outcomes = await Promise.all([open.run(type, null), open.run(type, null)]);
    expect(outcomes).toMatchObject([
      { reason: 'timeout', abandoned: true },
      { reason: 'timeout', abandoned: true },
    ]);
    expect(open.runner).toMatchObject({ running: 0, abandonedCount: 2 });
    expect(open.tooManyAbandoned).toEqual([2]);
    for (const end of ends) end();
    await new Promise(setImmediate);
    expect(open.runner.abandonedCount).toBe(0);
    expect(open.lines.filter(({ message }) => message === 'abandoned handler ended')).toHaveLength(2);
    expect(await open.metrics.render()).toContain(`warren_late_completions_total{task_type="${type.name}"} 2`);
  });

  test('an error after the abort that nobody hears reaches no one else', async () => {
    await using open = await openRunner({ run: { abortGraceMs: 5 } });
    let fail: (reason: Error) => void = () => undefined;
    const type = typeOf(() => new Promise((_resolve, reject) => (fail = reject)), { timeoutMs: 5 });
    expect(await open.run(type, null)).toMatchObject({ reason: 'timeout', abandoned: true });
    fail(new Error('late'));
    await new Promise(setImmediate);
    expect(open.runner.abandonedCount).toBe(0);
  });

  test('a run that finishes in its grace is not thrown away', async () => {
    await using open = await openRunner();
    const type = typeOf(
      async (_input, { signal }) => {
        await systemClock.sleep(60_000, signal);
        return 'saved';
      },
      { timeoutMs: 10 },
    );
    expect(await open.run(type, null)).toEqual({ kind: 'succeeded', result: Buffer.from('"saved"') });
  });

  test('a timeout is judged by the policy like any failure', async () => {
    await using open = await openRunner({ run: { abortGraceMs: 1 } });
    const type = typeOf(never, { timeoutMs: 5, retry: { neverOn: ['attempt-timeout'] } });
    expect(await open.run(type, null)).toMatchObject({ reason: 'timeout', retryable: false });
  });

  test.each(['shutdown', 'cancel', 'lease'] as const)(
    'an abort by %s interrupts, with the reason in the signal',
    async (by) => {
      await using open = await openRunner();
      const taskId = newId();
      const running = open.run(
        typeOf(async (_input, { signal }) => {
          await systemClock.sleep(60_000, signal);
          expect(signal.reason).toMatchObject({ code: 'attempt-interrupted', facts: { by } });
          signal.throwIfAborted();
        }),
        null,
        taskId,
      );
      expect(open.runner.runningIds()).toEqual([taskId]);
      expect(open.runner.abort(taskId, by)).toBe(true);
      expect(open.runner.abort(taskId, 'cancel')).toBe(true); // the first reason stays
      expect(await running).toEqual({ kind: 'interrupted', by });
      expect(open.runner.abort(taskId, by)).toBe(false);
    },
  );

  test('a signal that is first looked at after the abort is aborted', async () => {
    await using open = await openRunner();
    const taskId = newId();
    let go: () => void = () => undefined;
    const running = open.run(
      typeOf(async (_input, ctx) => {
        await new Promise<void>((resolve) => (go = resolve));
        ctx.signal.throwIfAborted();
      }),
      null,
      taskId,
    );
    await new Promise(setImmediate);
    open.runner.abort(taskId, 'cancel');
    go();
    expect(await running).toEqual({ kind: 'interrupted', by: 'cancel' });
  });

  test('stop waits for what runs, then aborts what is left', async () => {
    await using open = await openRunner({ run: { abortGraceMs: 20 } });
    const quick = open.run(
      typeOf(() => systemClock.sleep(20)),
      null,
    );
    const stuck = open.run(typeOf(never), null);
    await open.runner.stop(systemClock.monotonicMs() + 100);
    expect(await quick).toMatchObject({ kind: 'succeeded' });
    expect(await stuck).toEqual({ kind: 'interrupted', by: 'shutdown', abandoned: true });
  });
});

describe('the context', () => {
  test('carries task, attempt and fencing token; its functions may be taken off it', async () => {
    await using open = await openRunner();
    const taskId = newId();
    const type = typeOf((_input, { progress, log, attempt, fencingToken, ...rest }) => {
      progress(-1);
      progress(0.5, 'half');
      progress(7, `\0${'x'.repeat(300)}`);
      progress(Number.NaN);
      log.info('said by a handler');
      return [attempt, fencingToken, Object.keys(rest).includes('taskId')];
    });
    const outcome = await open.runner.run({ type, taskId, attempt: 3, claimId: newId(), input: Buffer.from('null') });
    expect(outcome).toEqual({ kind: 'succeeded', result: Buffer.from('[3,3,true]') });
    expect(open.progress).toMatchObject([{ taskId, fraction: 0 }, { fraction: 0.5, step: 'half' }, { fraction: 1 }]);
    expect(open.progress[2]?.step).toHaveLength(200);
    expect(open.lines).toMatchObject([
      { message: 'said by a handler', fields: { taskId, taskType: 'test.type', attempt: 3 } },
    ]);
  });

  test('a temporary directory is made once, at the first call, and is gone when the attempt is over', async () => {
    await using open = await openRunner();
    let seen = '';
    const type = typeOf(async (_input, { tempDir }) => {
      seen = await tempDir();
      expect(await tempDir()).toBe(seen);
      await writeFile(join(seen, 'x'), 'x');
      throw new Error('all the same');
    });
    expect(await open.run(type, null)).toMatchObject({ error: { message: 'all the same' } });
    expect(seen).toContain(open.tempRoot);
    await expect(access(seen)).rejects.toMatchObject({ code: 'ENOENT' });
    await open.run(
      typeOf(() => 1),
      null,
    );
    expect((await readdir(open.tempRoot, { recursive: true })).length).toBe(1); // the process's own, empty
  });

  test('while a breaker is open the task is deferred, and the function not called', async () => {
    await using open = await openRunner({ breaker: { volumeThreshold: 3, resetTimeoutMs: 10_000 } });
    let calls = 0;
    const type = typeOf((_input, { breaker }) =>
      breaker('smtp', async () => {
        calls += 1;
        throw await Promise.resolve(new Error('refused'));
      }),
    );
    const outcomes = [];
    for (let round = 0; round < 5; round += 1) outcomes.push(await open.run(type, null));
    expect(outcomes.map(({ kind }) => kind)).toEqual(['failed', 'failed', 'failed', 'deferred', 'deferred']);
    expect(calls).toBe(3);
    // the rest of the reset time, plus half of it as jitter by the random source of the test
    expect(outcomes[4]).toMatchObject({ why: 'breaker' });
    expect((outcomes[4] as { delayMs: number }).delayMs).toBeGreaterThan(14_000);
    expect((outcomes[4] as { delayMs: number }).delayMs).toBeLessThanOrEqual(15_000);
  });
});
