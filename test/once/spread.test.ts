/** A batch whose tasks start spread over a time, over a real database. */
import { afterAll, beforeAll, expect, test } from '@jest/globals';
import { aType, openTaskApi } from '../support/task-api.ts';
import type { Answer, TestTaskApi } from '../support/task-api.ts';

let api: TestTaskApi;
beforeAll(async () => {
  api = await openTaskApi([aType('mail.send')]);
});
afterAll(async () => await api[Symbol.asyncDispose]());

interface Result {
  readonly status: number;
  readonly task?: { readonly id: string; readonly acceptedAt: string; readonly runAt?: string };
  readonly problem?: Readonly<Record<string, unknown>>;
}

const items = (count: number): string =>
  Array.from({ length: count }, (_each, n) => `{"type":"mail.send","input":{"n":${n}}}`).join(',');
const post = async (body: string, headers: Record<string, string> = {}): Promise<Answer> =>
  await api.post('/v1/tasks/batch', body, headers);
const resultsOf = (answer: Answer): readonly Result[] => answer.json['results'] as readonly Result[];
const delaysOf = (answer: Answer): readonly number[] =>
  resultsOf(answer).map(
    ({ task }) => Date.parse(task?.runAt ?? task?.acceptedAt ?? '') - Date.parse(task?.acceptedAt ?? ''),
  );

test.each([
  ['after the tasks', (tasks: string) => `{"tasks":[${tasks}],"spreadMs":600000}`],
  ['before the tasks', (tasks: string) => ` { "spreadMs" : 600000 , "tasks" : [ ${tasks} ] } `],
])('tasks of a batch with spreadMs %s start in their order, one in each share of the time', async (_name, render) => {
  const answer = await post(render(items(100)));
  expect(answer.status).toBe(200);
  const delays = delaysOf(answer);
  expect(delays.map((delayMs) => Math.floor(delayMs / 6_000))).toEqual(Array.from({ length: 100 }, (_each, n) => n));
  // Somewhere in its share each, not at its beginning.
  expect(new Set(delays.map((delayMs) => delayMs % 6_000)).size).toBeGreaterThan(50);
});

test('a batch that comes again under its key is answered with the same instants', async () => {
  const body = `{"tasks":[${items(20)}],"spreadMs":60000}`;
  const first = await post(body, { 'idempotency-key': 'spread-1' });
  const again = await post(body, { 'idempotency-key': 'spread-1' });
  expect(again.text).toBe(first.text);
  expect(delaysOf(first).at(-1)).toBeGreaterThan(50_000);
});

test('a task that says itself when it is to run is refused in such a batch, and the others are accepted', async () => {
  const own = ',"delayMs":5},{"type":"mail.send","input":{},"runAt":"2099-01-01T00:00:00Z"}';
  const answer = await post(`{"spreadMs":1000,"tasks":[${items(1)},{"type":"mail.send","input":{}${own}]}`);
  expect(answer.status).toBe(207);
  expect(resultsOf(answer).map(({ status, problem }) => [status, problem?.['type'], problem?.['field']])).toEqual([
    [202, undefined, undefined],
    [400, 'field-invalid', 'delayMs'],
    [400, 'field-invalid', 'runAt'],
  ]);
});

test.each(['0', '-1', '1.5', '"5"', 'null', '1e15', '[]'])('spreadMs of %s is refused', async (value) => {
  const answer = await post(`{"tasks":[${items(1)}],"spreadMs":${value}}`);
  expect([answer.status, answer.json['type'], answer.json['field']]).toEqual([400, 'field-invalid', 'spreadMs']);
});

test.each(['spreadMs', 'tasks'])('%s given twice is refused', async (name) => {
  const answer = await post(
    `{"spreadMs":10,"tasks":[${items(1)}],"${name}":${name === 'tasks' ? `[${items(1)}]` : '20'}}`,
  );
  expect([answer.status, answer.json['reason']]).toEqual([400, 'is given twice']);
});
