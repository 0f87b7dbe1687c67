/** What handlers return and throw, however odd, is written down the first time it is tried, and comes back as it was. */
import { afterAll, beforeAll, expect, test } from '@jest/globals';
import { z } from 'zod';
import { defineTask } from '../../shared/tasks/define-task.ts';
import type { TaskContext } from '../../shared/tasks/define-task.ts';
import type { TaskId } from '../../shared/tasks/ids.ts';
import { addTask, openFaulty, readTask, rows } from '../support/core.ts';
import type { FaultyDatabase } from '../support/core.ts';
import { eventually } from '../support/eventually.ts';
import { inviteTask, openIntake } from '../support/intake.ts';
import type { TestIntake } from '../support/intake.ts';
import { openRunner } from '../support/runner.ts';
import type { TestRunner } from '../support/runner.ts';
import { openWork } from '../support/work.ts';
import type { TestWork } from '../support/work.ts';

let work: TestWork;
let faulty: FaultyDatabase & AsyncDisposable;
let runner: TestRunner;
let open: TestIntake;
let handler: (input: unknown, ctx: TaskContext) => unknown = () => undefined;
beforeAll(async () => {
  work = await openWork();
  faulty = await openFaulty(work.db);
  runner = await openRunner({ run: { abortGraceMs: 50 } });
  const type = defineTask({
    name: 'test.noop',
    input: z.unknown(),
    timeoutMs: 200,
    retry: { maxAttempts: 3 },
    run: (input, ctx) => handler(input, ctx),
  });
  open = await openIntake(
    { ...work, db: faulty },
    {
      handlers: {
        'test.noop': async ({ taskId, attempt, claimId, input }) =>
          await runner.runner.run({ type, taskId: taskId as TaskId, attempt, claimId, input }),
      },
      concurrency: 2,
    },
  );
});
afterAll(async () => {
  await open[Symbol.asyncDispose]();
  await runner[Symbol.asyncDispose]();
  await faulty[Symbol.asyncDispose]();
  await work[Symbol.asyncDispose]();
});

/** Runs one task and gives its state; each settle must have been written with its first statement. */
async function runOnce(input = '{}'): Promise<{ readonly id: string; readonly state: string }> {
  const from = faulty.sent.length;
  const id = await addTask(work.db);
  await work.db.query({ text: 'update tasks set input = $2 where id = $1', values: [id, Buffer.from(input)] });
  await work.backbone.invite({ taskId: id, type: 'test.noop', queue: 'default', priority: 4, generation: 1 });
  await eventually(() => expect(open.settled.has(id)).toBe(true));
  expect(faulty.sent.slice(from).filter((name) => name.startsWith('settle'))).toHaveLength(1);
  return { id, state: open.settled.get(id) ?? '' };
}

test.each([
  ['U+0000 and lone surrogates', { 'k\0': ['\0', '\ud800', { deep: ['\udfff\0'] }] }],
  ['a backslash before u0000', { text: '\\u0000 \\\\u0000' }],
  ['names of prototypes', JSON.parse('{"__proto__":{"x":1},"constructor":{"prototype":{"y":2}}}') as unknown],
  ['the largest whole number that is kept', Number.MAX_SAFE_INTEGER],
  ['null', null],
])('a result with %s is stored and comes back as it was', async (_what, result) => {
  handler = () => result;
  const { id, state } = await runOnce();
  expect(state).toBe('succeeded');
  const stored = (await readTask(work.db, id)).result?.toString() ?? '';
  expect(stored).toBe(JSON.stringify(result));
  expect(({} as Record<string, unknown>)['x']).toBeUndefined();
});

test.each([
  ['undefined', undefined],
  ['a string', 'no'],
  ['a text of U+0000 and lone surrogates', new Error('\0 \ud800 \\u0000')],
  ['a frozen object', Object.freeze({ message: 'cold' })],
  ['an error of a megabyte', new Error('x'.repeat(1_000_000))],
  [
    'an error whose message getter throws',
    Object.defineProperty(new Error('x'), 'message', {
      get: () => {
        throw new Error('getter');
      },
    }),
  ],
])('%s that is thrown is written into the history, and the task is tried again', async (_what, thrown) => {
  handler = () => {
    throw thrown; // oxlint-disable-line typescript/only-throw-error -- handlers can throw anything
  };
  const { id, state } = await runOnce();
  expect(state).toBe('retrying');
  const [attempt] = await rows<{ outcome: string; error_message: string }>(
    work.db,
    'select outcome, error_message from attempts where task_id = $1',
    id,
  );
  expect(attempt).toMatchObject({ outcome: 'failed', error_message: expect.stringMatching(/^[^\0\ud800]+$/) });
  expect(attempt?.error_message.length).toBeLessThan(10_000);
});

test.each([
  ['never settles and hears nothing', () => new Promise(() => undefined)],
  ['settles twice', (): unknown => new Promise((resolve, reject) => (resolve(1), reject(new Error('second'))))],
  ['returns what is no JSON', () => 1n],
])('a handler that %s gives its slot back', async (what, badly) => {
  handler = badly;
  const expected = { 'never settles and hears nothing': 'retrying', 'settles twice': 'succeeded' }[what] ?? 'dead';
  const results = await Promise.all([runAlong(), runAlong(), runAlong()]);
  expect(results).toEqual([expected, expected, expected]);
  handler = () => 'well';
  expect((await runOnce()).state).toBe('succeeded');
  expect(open.intake.lines).toMatchObject([{ taken: 0, waiting: 0 }]);
});

async function runAlong(): Promise<string> {
  const id = await inviteTask(work);
  await eventually(() => expect(open.settled.has(id)).toBe(true));
  return open.settled.get(id) ?? '';
}

test('the input reaches the handler as it was sent: prototypes are data, numbers keep their value', async () => {
  let seen: unknown;
  handler = (input) => {
    seen = input;
  };
  const input = '{"__proto__":{"isAdmin":true},"n":9007199254740991,"d":1.10e2,"t":"\\\\u0000"}';
  expect((await runOnce(input)).state).toBe('succeeded');
  expect(JSON.stringify(seen)).toBe('{"__proto__":{"isAdmin":true},"n":9007199254740991,"d":110,"t":"\\\\u0000"}');
  expect(({} as Record<string, unknown>)['isAdmin']).toBeUndefined();
});
