/** `warren dead list|show|replay|discard`, against answers that the test gives. */
import { describe, expect, test } from '@jest/globals';
import { TASK_ID, answering, jsonAnswer, problem, sleepingClock, taskInState, warren } from '../../support/cli-io.ts';

describe('dead', () => {
  test.each([
    [['reason:timeout error:"no space" age:>1h'], 'reason:timeout error:"no space" age:>1h'],
    [['reason:timeout', 'tag:vip'], 'reason:timeout tag:vip'],
    [['--', '-tag:vip', 'age:>1h'], '-tag:vip age:>1h'],
    [[], null],
  ])('list %j asks for the filter %j', async (words, filter) => {
    const { fetch, seen } = answering(jsonAnswer({ items: [] }));
    expect((await warren(['dead', 'list', '--limit', '7', ...words], { fetch })).exitCode).toBe(0);
    const query = new URL(seen[0]?.url ?? '').searchParams;
    expect([query.get('filter'), query.get('limit')]).toEqual([filter, '7']);
  });

  test('list tells where a filter cannot be read', async () => {
    const { fetch } = answering(
      problem('field-invalid', 400, { field: 'filter', reason: 'at character 1: there is no key "x"' }),
    );
    const { exitCode, stderr } = await warren(['dead', 'list', 'x:y'], { fetch });
    expect(exitCode).toBe(65);
    expect(stderr).toMatch(/field +filter\n +reason +at character 1: there is no key "x"\n/);
  });

  test('replay sends the reason and follows the task', async () => {
    const { fetch, seen } = answering(
      jsonAnswer({ id: 'd1', state: 'replaying', taskId: TASK_ID }, 202),
      taskInState('succeeded'),
    );
    const run = await warren(['dead', 'replay', 'd1', '--reason', 'disk is free', '--wait'], {
      fetch,
      clock: sleepingClock(),
    });
    expect(run.exitCode).toBe(0);
    expect(seen.map(({ method, url, body }) => [method, url, body])).toEqual([
      ['POST', 'http://127.0.0.1:8081/v1/dead-letters/d1/replay', '{"reason":"disk is free"}'],
      ['GET', `http://127.0.0.1:8080/v1/tasks/${TASK_ID}`, ''],
    ]);
  });

  test('show tells why a task died, with its stack, its attempts and its input as it came', async () => {
    const letter = `{"id":"d1","kind":"task","state":"open","reason":"timeout","taskId":"${TASK_ID}","type":"x","diedAt":"2026-05-01T09:00:00.000Z","closedAt":null,
      "properties":null,"error":{"type":"TypeError","code":null,"message":"no\\u001b[2J","stack":"TypeError: no\\n    at f"},
      "attempts":[{"attempt":1,"outcome":"failed","error":{"type":null,"code":"E_DISK","message":null}}],"letters":[{},{}],"input":{ "price": 1.10 }}`;
    const { fetch } = answering(jsonAnswer(letter));
    const { stdout } = await warren(['dead', 'show', 'd1'], { fetch, clock: sleepingClock() });
    expect(stdout).toMatch(/died +2026-05-01T09:00:00.000Z \(1h ago\)\n/);
    expect(stdout).toMatch(/error +TypeError: no\\u001b\[2J\n/);
    expect(stdout).toMatch(/deaths +2 of this task\n/);
    expect(stdout).toMatch(/input +\{ "price": 1\.10 \}\n/);
    expect(stdout).toContain('\nTypeError: no\n    at f\n');
    expect(stdout).toMatch(/1 +failed .*E_DISK\n/);
    expect(stdout).not.toMatch(/null|properties|closed/);
  });

  test('show of a letter that never was a task shows its body as text, else as base64', async () => {
    const letter = {
      id: 'd1',
      kind: 'foreign',
      state: 'open',
      reason: 'maxlen',
      taskId: null,
      exchange: 'e',
      headers: { a: 1 },
      bodyBytes: 3,
      body: 'YWJj',
      text: 'a\u0007c',
    };
    const shown = async (of: object): Promise<string> =>
      (await warren(['dead', 'show', 'd1'], answering(jsonAnswer(of)))).stdout;
    expect(await shown(letter)).toMatch(/body +a\\u0007c\n/);
    expect(await shown({ ...letter, text: null })).toMatch(/body +YWJj\n/);
  });

  test('a replay to another place names it', async () => {
    const { fetch, seen } = answering(jsonAnswer({ id: 'd1', kind: 'foreign', state: 'replaying' }, 202));
    const { stdout, stderr } = await warren(['dead', 'replay', 'd1', '--to', 'orders/created', '--wait'], { fetch });
    expect(seen[0]?.body).toBe('{"destination":{"exchange":"orders","routingKey":"created"}}');
    expect({ stdout, stderr }).toEqual({
      stdout: 'Replayed.\n',
      stderr: 'RabbitMQ has not confirmed it yet; that is finished by itself.\n',
    });
  });

  test('a letter that is closed already is exit 1', async () => {
    const { fetch } = answering(problem('dead-letter-closed', 409));
    expect((await warren(['dead', 'discard', 'd1', '--reason', 'x'], { fetch })).exitCode).toBe(1);
  });

  test('discard wants a reason', async () => {
    const { fetch, seen } = answering(jsonAnswer({}));
    const { exitCode, stderr } = await warren(['dead', 'discard', 'd1'], { fetch });
    expect({ exitCode, sent: seen.length }).toEqual({ exitCode: 2, sent: 0 });
    expect(stderr).toContain("Required option '--reason <text>' not specified.");
  });
});
