/** `warren task history`, `logs`, `once` and `forget`, against answers that the test gives. */
import { expect, test } from '@jest/globals';
import { TASK_ID, answering, jsonAnswer, problem, taskInState, warren } from '../../support/cli-io.ts';

const AT = '2026-05-01T10:00:00.000Z';
const WORKER = '0198f3a2-7c10-7d3e-9a4b-2f6c1d8e5b71';

test('a history is a line an entry, with who caused it', async () => {
  const items = [
    { at: AT, kind: 'accepted', by: 'shop', door: 'http', until: AT },
    { at: AT, kind: 'started', attempt: 1, by: 'worker', worker: WORKER },
    {
      at: AT,
      kind: 'ended',
      attempt: 1,
      by: 'worker',
      worker: WORKER,
      outcome: 'failed',
      became: 'dead',
      error: { type: 'Error', message: 'no \u001b[31mluck' },
      hasLogs: true,
    },
    { at: AT, kind: 'died', attempt: 1, letterId: 'L', reason: 'non_retryable' },
    { at: AT, kind: 'replayed', by: 'ops', letterId: 'L', reason: 'mended', replayId: 'R' },
    { at: AT, kind: 'act', action: 'task.edit', by: 'ops', detail: { priority: 9 } },
    { at: AT, kind: 'finished', state: 'succeeded' },
    { at: AT, kind: 'of a newer service' },
  ];
  const { fetch, seen } = answering(jsonAnswer({ taskId: TASK_ID, state: 'succeeded', items, nextCursor: 'abc' }));
  const { exitCode, stdout, stderr } = await warren(['task', 'history', TASK_ID, '--limit', '7'], { fetch });
  expect(exitCode).toBe(0);
  expect(seen[0]?.url).toBe(`http://127.0.0.1:8080/v1/tasks/${TASK_ID}/history?limit=7`);
  const lines = stdout.split('\n').map((line) => line.replaceAll(/ {2,}/g, ' | '));
  expect(lines).toEqual([
    'AT | WHAT | BY | MORE',
    `${AT} | accepted | shop over http | waits until ${AT}`,
    `${AT} | attempt 1 started | ${WORKER}`,
    `${AT} | attempt 1 failed | ${WORKER} | became dead, Error: no \\u001b[31mluck, has logs`,
    `${AT} | died | non_retryable, dead letter L`,
    `${AT} | replayed | ops | mended, dead letter L, replay R`,
    `${AT} | task.edit | ops | {"priority":9}`,
    `${AT} | succeeded`,
    `${AT} | of a newer service`,
    '',
  ]);
  expect(stderr).toContain('--cursor abc');
});

test('lines of an attempt are shown with their fields, those of the last one where none is named', async () => {
  const lines = [
    { at: AT, level: 'warn', message: 'slow \u0007', fields: { ms: 7 } },
    { at: AT, level: 'info', message: 'long', cut: { characters: 9_000, start: '{"a' } },
  ];
  const logs = jsonAnswer({ taskId: TASK_ID, attempt: 1, outcome: 'failed', dropped: 3, lines });
  const { fetch, seen } = answering(taskInState('dead'), logs);
  const run = await warren(['task', 'logs', TASK_ID], { fetch });
  expect(seen.map(({ url }) => url.slice('http://127.0.0.1:8080'.length))).toEqual([
    `/v1/tasks/${TASK_ID}`,
    `/v1/tasks/${TASK_ID}/attempts/1/logs`,
  ]);
  expect(run.stdout).toBe(
    `${AT}  warn  slow \\u0007  {"ms":7}\n${AT}  info  long  {"characters":9000,"start":"{\\"a"}\n`,
  );
  expect(run.stderr).toBe('3 lines between the first and the last were not kept.\n');
});

test('an attempt without lines says why, and so does a task that has not started', async () => {
  const none = jsonAnswer({
    attempt: 2,
    outcome: 'lost',
    dropped: 0,
    lines: [],
    why: 'lost',
    note: 'The worker died.',
  });
  const lost = await warren(['task', 'logs', TASK_ID, '--attempt', '2'], { fetch: answering(none).fetch });
  expect(lost).toMatchObject({ exitCode: 0, stdout: '', stderr: 'Attempt 2 has no lines. The worker died.\n' });
  const waiting = await warren(['task', 'logs', TASK_ID], {
    fetch: answering(taskInState('pending', { attempt: 0 })).fetch,
  });
  expect(waiting).toMatchObject({ exitCode: 0, stderr: 'The task has not started yet.\n' });
  const json = await warren(['task', 'logs', TASK_ID, '--attempt', '2', '--json'], { fetch: answering(none).fetch });
  expect(json.json()).toMatchObject({ why: 'lost' });
});

test('what a task did once is a table, and forgetting asks for a reason', async () => {
  const items = [
    { key: 'charge', state: 'finished', attempt: 1, startedAt: AT, finishedAt: AT, result: { id: 7 } },
    { key: 'mail', state: 'begun', attempt: 2, startedAt: AT },
  ];
  const listed = await warren(['task', 'once', TASK_ID], {
    fetch: answering(jsonAnswer({ taskId: TASK_ID, items })).fetch,
  });
  expect(listed.stdout).toMatch(/charge +finished +1 .*\{"id":7\}\nmail +begun +2 /);
  const none = await warren(['task', 'once', TASK_ID], { fetch: answering(jsonAnswer({ items: [] })).fetch });
  expect(none).toMatchObject({ stdout: '', stderr: 'Nothing found.\n' });

  const { fetch, seen } = answering(jsonAnswer({ id: TASK_ID, key: 'mail', forgotten: true }));
  expect((await warren(['task', 'forget', TASK_ID, 'mail'], { fetch })).exitCode).toBe(2);
  expect((await warren(['task', 'forget', TASK_ID, 'mail', '--reason', 'r'], { fetch })).exitCode).toBe(0);
  expect(seen.map(({ url, body }) => [url.split('/').slice(-2).join('/'), body])).toEqual([
    ['once/forget', '{"key":"mail","reason":"r"}'],
  ]);
  const running = answering(problem('task-running', 409));
  expect((await warren(['task', 'forget', TASK_ID, 'mail', '--reason', 'r'], running)).exitCode).not.toBe(0);
});

test.each([
  ['history'],
  ['logs', TASK_ID, '--attempt', '0'],
  ['logs', TASK_ID, '--attempt', 'x'],
  ['history', TASK_ID, '--limit', '201'],
  ['once'],
  ['forget', TASK_ID],
])('%s %s %s %s is wrong use', async (...args) => {
  const { fetch, seen } = answering(jsonAnswer({}));
  expect((await warren(['task', ...args], { fetch })).exitCode).toBe(2);
  expect(seen).toEqual([]);
});
