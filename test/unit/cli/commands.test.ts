/** Commands that speak HTTP, against answers that the test gives. */
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, expect, test } from '@jest/globals';
import { answering, jsonAnswer, sleepingClock, warren } from '../../support/cli-io.ts';

const ID = '0198f3a2-7c10-7d3e-9a4b-2f6c1d8e5b70';
const accepted = jsonAnswer(
  { id: ID, type: 'report.csv', state: 'pending', acceptedAt: '2026-05-01T10:00:00.000Z' },
  202,
);
const inState = (state: string, more: object = {}): (() => Response) =>
  jsonAnswer({ id: ID, type: 'report.csv', state, attempt: 1, acceptedAt: '2026-05-01T09:59:00.000Z', ...more });
const problem = (type: string, status: number, more: object = {}): (() => Response) =>
  jsonAnswer({ type, title: `Title of ${type}.`, status, ...more }, status);

describe('task submit', () => {
  test('sends the input byte for byte as given', async () => {
    const { fetch, seen } = answering(accepted);
    const input = '{ "big": 9007199254740993,  "price": 1.10, "a": "\\u00e9" }';
    const run = await warren(
      [
        'task',
        'submit',
        'report.csv',
        '--input',
        input,
        '--priority',
        '9',
        '--delay',
        '10s',
        '--tag',
        'a',
        '--tag',
        'b',
      ],
      { fetch },
    );
    expect(run).toMatchObject({ exitCode: 0, stdout: `${ID}\n` });
    expect(seen[0]?.method).toBe('POST');
    expect(seen[0]?.url).toBe('http://127.0.0.1:8080/v1/tasks');
    expect(seen[0]?.body).toBe(`{"type":"report.csv","priority":9,"delayMs":10000,"tags":["a","b"],"input":${input}}`);
  });

  test('takes the input from standard input', async () => {
    const { fetch, seen } = answering(accepted);
    const readStdin = async (): Promise<Buffer> => await Promise.resolve(Buffer.from('{"n": 1}\n'));
    expect((await warren(['task', 'submit', 'x', '--input-file', '-'], { fetch, readStdin })).exitCode).toBe(0);
    expect(seen[0]?.body).toBe('{"type":"x","input":{"n": 1}\n}');
  });

  test.each(['1,"priority":9', '{"a":1}}', '', '\ufeff{}', '{a:1}', "{'a':1}"])(
    'refuses the input %j, which would not stay one value',
    async (input) => {
      const { fetch, seen } = answering(accepted);
      const { exitCode, stderr } = await warren(['task', 'submit', 'x', '--input', input], { fetch });
      expect({ exitCode, sent: seen.length }).toEqual({ exitCode: 65, sent: 0 });
      expect(stderr).toMatch(/field +input/);
    },
  );

  test.each([
    [['--priority', '10']],
    [['--priority', '-1']],
    [['--priority', '1.5']],
    [['--delay', '-1']],
    [['--delay', 'abc']],
    [['--delay', '1e15']],
    [['--delay', '1s', '--run-at', '2030-01-01T00:00:00Z']],
    [['--input', '{}', '--input-file', 'x']],
    [['--max-attempts', '101']],
    [['--unknown']],
    [['one argument too many']],
  ])('%j is wrong use', async (more) => {
    const { fetch, seen } = answering(accepted);
    expect((await warren(['task', 'submit', 'x', ...more], { fetch })).exitCode).toBe(2);
    expect(seen).toEqual([]);
  });

  test('a refusal is told in plain words, with the field, and is exit 65', async () => {
    const { fetch } = answering(
      problem('input-invalid', 422, {
        field: 'input.rows',
        reason: 'must be \u001b[31man integer',
        detail: 'input.rows: must be \u001b[31man integer',
      }),
    );
    const { exitCode, stdout, stderr } = await warren(['task', 'submit', 'x'], { fetch });
    expect({ exitCode, stdout }).toEqual({ exitCode: 65, stdout: '' });
    expect(stderr).toBe(
      'error: Title of input-invalid. (input-invalid)\n  field   input.rows\n  reason  must be \\u001b[31man integer\n',
    );
  });

  test('several faults are a list', async () => {
    const faults = [
      { code: 'field-invalid', field: 'priority', reason: 'must be an integer from 0 to 9' },
      { code: 'field-invalid', field: 'tags[0]', reason: 'must be a text' },
    ];
    const { fetch } = answering(problem('field-invalid', 400, { ...faults[0], faults }));
    expect((await warren(['task', 'submit', 'x'], { fetch })).stderr).toBe(
      'error: Title of field-invalid. (field-invalid)\n  - priority: must be an integer from 0 to 9\n  - tags[0]: must be a text\n',
    );
  });

  test('with --json the refusal is one JSON document on stderr', async () => {
    const { fetch } = answering(problem('task-type-unknown', 422, { field: 'type' }));
    const { stderr, stdout } = await warren(['task', 'submit', 'x', '--json'], { fetch });
    expect(stdout).toBe('');
    expect(JSON.parse(stderr)).toMatchObject({ code: 'task-type-unknown', field: 'type', status: 422, exitCode: 65 });
  });

  test('--wait follows the task to its end and shows it', async () => {
    const { fetch, seen } = answering(
      accepted,
      inState('pending', { attempt: 0 }),
      inState('running', { progress: { fraction: 0.459, step: 'writing' } }),
      inState('succeeded', { result: { rows: 3 } }),
    );
    const { exitCode, stdout, stderr } = await warren(['task', 'submit', 'report.csv', '--wait'], {
      fetch,
      clock: sleepingClock(),
    });
    expect(exitCode).toBe(0);
    expect(stderr).toBe(`Accepted as ${ID}.\npending\nrunning, attempt 1, 45% writing\n`);
    expect(stdout).toMatch(/state +succeeded\n/);
    expect(stdout).toMatch(/result +\{"rows":3\}\n/);
    expect(seen.map(({ method }) => method)).toEqual(['POST', 'GET', 'GET', 'GET']);
  });

  test('--wait --json prints the ended task alone', async () => {
    const { fetch } = answering(accepted, inState('running'), inState('dead'));
    const run = await warren(['task', 'submit', 'report.csv', '--wait', '--json'], { fetch, clock: sleepingClock() });
    expect(run).toMatchObject({ exitCode: 1, stderr: '' });
    expect(run.json()).toMatchObject({ id: ID, state: 'dead' });
  });

  test('on a terminal progress is one line that is written over, and gone at the end', async () => {
    const { fetch } = answering(accepted, inState('running'), inState('succeeded'));
    const { stderr } = await warren(['task', 'submit', 'x', '--wait'], { fetch, clock: sleepingClock(), isTTY: true });
    expect(stderr).toBe(`Accepted as ${ID}.\n\r\u001b[Krunning, attempt 1  0ms\r\u001b[K`);
  });
});

describe('task get', () => {
  test.each([
    ['succeeded', 0],
    ['dead', 1],
    ['cancelled', 1],
    ['expired', 1],
  ])('--wait for a task that ends %s is exit %d', async (state, exitCode) => {
    const { fetch } = answering(inState(state));
    expect((await warren(['task', 'get', ID, '--wait'], { fetch })).exitCode).toBe(exitCode);
  });

  test('--timeout ends the wait with 75 and says that the task goes on', async () => {
    const { fetch, seen } = answering(inState('running'));
    const clock = sleepingClock();
    const { exitCode, stderr } = await warren(['task', 'get', ID, '--wait', '--timeout', '5s'], { fetch, clock });
    expect(exitCode).toBe(75);
    expect(stderr).toContain(`The task goes on. \`warren task get ${ID} --wait\` waits again`);
    expect(clock.monotonicMs()).toBe(5_000);
    expect(seen.length).toBeLessThan(20);
  });

  test('Ctrl-C ends the wait with 130 and says that the task goes on', async () => {
    const interruption = new AbortController();
    const { fetch } = answering(() => {
      interruption.abort();
      return inState('running')();
    });
    const { exitCode, stderr } = await warren(['task', 'get', ID, '--wait'], {
      fetch,
      clock: sleepingClock(),
      interrupted: interruption.signal,
    });
    expect(exitCode).toBe(130);
    expect(stderr).toContain('Interrupted.\n');
    expect(stderr).toContain('The task goes on.');
  });

  test('a wait outlives a restart of the service', async () => {
    const away = problem('database-unavailable', 503);
    const { fetch } = answering(inState('running'), away, away, inState('succeeded'));
    const { exitCode, stderr } = await warren(['task', 'get', ID, '--wait'], { fetch, clock: sleepingClock() });
    expect(exitCode).toBe(0);
    expect(stderr).toBe('running, attempt 1\nthe service does not answer; trying on\n');
  });

  test('a wait ends with 69 when the service stays away for a minute', async () => {
    const { fetch } = answering(inState('running'), problem('database-unavailable', 503));
    const clock = sleepingClock();
    expect((await warren(['task', 'get', ID, '--wait'], { fetch, clock })).exitCode).toBe(69);
    expect(clock.monotonicMs()).toBeGreaterThanOrEqual(60_000);
  });

  test('input and result are shown as they came, with --json byte for byte', async () => {
    const body = `{"id":"${ID}","type":"x","state":"succeeded","input":{ "price": 1.10 },"result":[1.0]}`;
    const { fetch } = answering(jsonAnswer(body));
    expect((await warren(['task', 'get', ID, '--json'], { fetch })).stdout).toBe(`${body}\n`);
    const { stdout } = await warren(['task', 'get', ID], { fetch });
    expect(stdout).toMatch(/input +\{ "price": 1\.10 \}\n/);
    expect(stdout).toMatch(/result +\[1\.0\]\n/);
  });

  test('nothing that a task holds reaches the terminal as a command', async () => {
    const hostile = '\u001b]0;owned\u0007\u009b2J\r\u202e';
    const { fetch } = answering(
      inState('dead', {
        type: hostile,
        queue: hostile,
        tags: [hostile],
        businessKey: hostile,
        input: { x: hostile },
        attempts: [{ attempt: 1, outcome: hostile, error: { type: hostile, message: hostile, code: hostile } }],
        progress: { fraction: 1, step: hostile },
      }),
    );
    for (const args of [
      ['task', 'get', ID],
      ['task', 'get', ID, '--json'],
      ['task', 'get', ID, '--wait'],
    ]) {
      const { stdout, stderr } = await warren(args, { fetch });
      // oxlint-disable-next-line no-control-regex -- these are what must not be there
      expect(stdout + stderr).not.toMatch(/[\u0000-\u0009\u000b-\u001f\u007f-\u009f\u202e]/);
    }
  });

  test('an id is one step of the path, whatever it holds', async () => {
    const { fetch, seen } = answering(problem('task-not-found', 404));
    expect((await warren(['task', 'get', '../tasks?x#y'], { fetch })).exitCode).toBe(1);
    expect(seen[0]?.url).toBe('http://127.0.0.1:8080/v1/tasks/..%2Ftasks%3Fx%23y');
    await warren(['task', 'get', '..'], { fetch });
    expect(seen[1]?.url).toBe('http://127.0.0.1:8080/v1/tasks/%2E%2E');
  });
});

describe('task list', () => {
  const page = (id: string, next?: string): (() => Response) =>
    jsonAnswer(
      `{"items":[{"id":"${id}","state":"dead","price":1.10}]${next === undefined ? '' : `,"nextCursor":"${next}"`}}`,
    );

  test('passes the filters on and says how to go on', async () => {
    const { fetch, seen } = answering(page('a', 'c1'));
    const run = await warren(
      [
        'task',
        'list',
        '--state',
        'dead,expired',
        '--type',
        't',
        '--tag',
        'x y',
        '--business-key',
        'k&',
        '--after',
        '2h',
        '--limit',
        '5',
      ],
      { fetch, clock: sleepingClock() },
    );
    expect(Object.fromEntries(new URL(seen[0]?.url ?? '').searchParams)).toEqual({
      state: 'expired',
      type: 't',
      tag: 'x y',
      businessKey: 'k&',
      acceptedAfter: '2026-05-01T08:00:00.000Z',
      limit: '5',
    });
    expect(new URL(seen[0]?.url ?? '').searchParams.getAll('state')).toEqual(['dead', 'expired']);
    expect(run.stdout.split('\n')[1]).toMatch(/^a +dead/);
    expect(run.stderr).toBe('More: add --cursor c1, or --all for the whole list.\n');
  });

  test('a page larger than the API gives is refused before it is asked for', async () => {
    const { fetch, seen } = answering();
    const run = await warren(['task', 'list', '--limit', '201'], { fetch });
    expect(run).toMatchObject({ exitCode: 2, stdout: '' });
    expect(run.stderr).toContain(`argument '201' is invalid. It must be an integer from 1 to 200.`);
    expect(seen).toEqual([]);
  });

  test('--all --json is one document of all pages, each item as it came', async () => {
    const { fetch, seen } = answering(page('a', 'c1'), page('b', 'c2'), page('c'));
    const run = await warren(['task', 'list', '--all', '--json'], { fetch });
    expect(run.stdout).toBe(
      '{"items":[{"id":"a","state":"dead","price":1.10},{"id":"b","state":"dead","price":1.10},{"id":"c","state":"dead","price":1.10}]}\n',
    );
    expect(seen.map(({ url }) => new URL(url).searchParams.get('cursor'))).toEqual([null, 'c1', 'c2']);
  });

  test('a page that leads to itself does not go on for ever', async () => {
    const { fetch, seen } = answering(page('a', 'c1'));
    await warren(['task', 'list', '--all'], { fetch });
    expect(seen).toHaveLength(2);
  });

  test('an empty list is an empty document, and a remark to people', async () => {
    const { fetch } = answering(jsonAnswer({ items: [] }));
    expect((await warren(['task', 'list', '--json'], { fetch })).stdout).toBe('{"items":[]}\n');
    expect(await warren(['task', 'list'], { fetch })).toMatchObject({
      exitCode: 0,
      stdout: '',
      stderr: 'Nothing found.\n',
    });
  });
});

describe('dead', () => {
  test('replay sends the reason and follows the task', async () => {
    const { fetch, seen } = answering(
      jsonAnswer({ id: 'd1', state: 'replaying', taskId: ID }, 202),
      inState('succeeded'),
    );
    const run = await warren(['dead', 'replay', 'd1', '--reason', 'disk is free', '--wait'], {
      fetch,
      clock: sleepingClock(),
    });
    expect(run.exitCode).toBe(0);
    expect(seen.map(({ method, url, body }) => [method, url, body])).toEqual([
      ['POST', 'http://127.0.0.1:8081/v1/dead-letters/d1/replay', '{"reason":"disk is free"}'],
      ['GET', `http://127.0.0.1:8080/v1/tasks/${ID}`, ''],
    ]);
  });

  test('show tells why a task died, with its stack, its attempts and its input as it came', async () => {
    const letter = `{"id":"d1","kind":"task","state":"open","reason":"timeout","taskId":"${ID}","type":"x","diedAt":"2026-05-01T09:00:00.000Z","closedAt":null,
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

describe('who calls, and where', () => {
  const ok = jsonAnswer({ items: [] });

  test('the token comes from WARREN_TOKEN, or from a file, which is told by an option or by WARREN_TOKEN_FILE', async () => {
    const folder = await mkdtemp(join(tmpdir(), 'warren-cli-'));
    const file = join(folder, 'token');
    await writeFile(file, 'from-a-file-0123456789\n');
    const sentBy = async (args: readonly string[], env: Record<string, string>): Promise<string | null | undefined> => {
      const { fetch, seen } = answering(ok);
      await warren(['task', 'list', ...args], { fetch, env });
      return seen[0]?.headers.get('authorization');
    };
    expect(await sentBy([], {})).toBeNull();
    expect(await sentBy([], { WARREN_TOKEN: 'from-the-environment' })).toBe('Bearer from-the-environment');
    expect(await sentBy([], { WARREN_TOKEN_FILE: file })).toBe('Bearer from-a-file-0123456789');
    expect(await sentBy(['--token-file', file], { WARREN_TOKEN: 'x' })).toBe('Bearer from-a-file-0123456789');
    await rm(folder, { recursive: true });
  });

  test('a token that cannot be read is exit 78, and nothing is sent', async () => {
    const { fetch, seen } = answering(ok);
    const { exitCode, stderr } = await warren(['task', 'list', '--token-file', '/nowhere/token'], { fetch });
    expect({ exitCode, sent: seen.length }).toEqual({ exitCode: 78, sent: 0 });
    expect(stderr).toContain('ENOENT');
  });

  test.each([
    [401, 'token-missing'],
    [401, 'token-invalid'],
    [403, 'role-insufficient'],
  ])('%d %s is exit 77 and says what to do', async (status, type) => {
    const { fetch } = answering(problem(type, status));
    const { exitCode, stderr } = await warren(['task', 'list'], { fetch });
    expect(exitCode).toBe(77);
    expect(stderr.split('\n').length).toBeGreaterThan(2);
  });

  test.each(['ftp://127.0.0.1', 'nonsense', 'http://user:secret@127.0.0.1', 'http://127.0.0.1/?x=1'])(
    '%s is no address of a service: exit 78, and no password is shown',
    async (url) => {
      const { fetch, seen } = answering(ok);
      const { exitCode, stderr } = await warren(['task', 'list'], { fetch, env: { WARREN_URL: url } });
      expect({ exitCode, sent: seen.length }).toEqual({ exitCode: 78, sent: 0 });
      expect(stderr).not.toContain('secret');
    },
  );

  test.each([
    ['a web page', () => new Response('<html>', { status: 200 })],
    ['a redirect', () => new Response(null, { status: 302, headers: { location: 'http://192.0.2.1/' } })],
    ['a proxy without a server', () => new Response('Bad Gateway', { status: 502 })],
    ['JSON that is no problem', jsonAnswer('[]', 400)],
  ])('%s is no Warren service: exit 69', async (_what, answer) => {
    const { fetch, seen } = answering(answer);
    const { exitCode, stderr } = await warren(['task', 'list'], { fetch });
    expect({ exitCode, sent: seen.length }).toEqual({ exitCode: 69, sent: 1 });
    expect(stderr).toContain('no Warren service');
  });
});

describe('wrong use', () => {
  test.each([[[]], [['task']], [['nonsense']], [['task', 'sumbit']], [['task', 'get']], [['--nonsense']]])(
    '%j is exit 2',
    async (args) => {
      const { exitCode, stderr } = await warren(args);
      expect(exitCode).toBe(2);
      expect(stderr).toContain('error: ');
    },
  );

  test('a misspelt command is answered with the right one', async () => {
    expect((await warren(['task', 'sumbit'])).stderr).toContain('Did you mean submit?');
  });

  test('with --json it is a JSON document too', async () => {
    expect(JSON.parse((await warren(['task', 'get', '--json'])).stderr)).toMatchObject({ code: 'usage', exitCode: 2 });
  });
});

describe('ledger', () => {
  const line = (type: string, hour: string, more: object = {}): object => ({
    type,
    hour,
    accepted: 10,
    succeeded: 7,
    dead: 1,
    cancelled: 0,
    expired: 0,
    inProgress: 2,
    difference: 0,
    ...more,
  });
  const [first, second] = ['2026-05-01T08:00:00.000Z', '2026-05-01T09:00:00.000Z'];
  const items = [line('b.mail', second), line('a.report', second), line('b.mail', first)];
  const totals = { accepted: 30, succeeded: 21, dead: 3, cancelled: 0, expired: 0, inProgress: 6, difference: 0 };
  const books = jsonAnswer({ items, totals, comparedAt: '2026-05-01T09:59:55.000Z' });
  const clock = sleepingClock();

  test('shows a line an hour and type with their sum, and exits 0 where they balance', async () => {
    const { fetch, seen } = answering(books);
    const { exitCode, stdout } = await warren(['ledger', '--from', '3h', '--type', 'x'], { fetch, clock });
    expect(exitCode).toBe(0);
    expect(seen[0]?.url).toBe('http://127.0.0.1:8080/v1/ledger?from=2026-05-01T07%3A00%3A00.000Z&type=x');
    expect(stdout.split('\n')).toEqual([
      'HOUR              ACCEPTED  SUCCEEDED  DEAD  CANCELLED  EXPIRED  IN PROGRESS  DIFFERENCE  TYPE',
      '2026-05-01 09:00        10          7     1          0        0            2           0  b.mail',
      '2026-05-01 09:00        10          7     1          0        0            2           0  a.report',
      '2026-05-01 08:00        10          7     1          0        0            2           0  b.mail',
      'total                   30         21     3          0        0            6           0',
      '',
      'Every line was compared with the tasks, the first of them 5.0s ago.',
      '',
    ]);
  });

  test.each([
    ['type', [/^ACCEPTED.*TYPE$/, /^ +10 .* a\.report$/, /^ +20 .* b\.mail$/, /^ +30 .* total$/]],
    ['hour', [/^HOUR.*DIFFERENCE$/, /^2026-05-01 09:00 +20 /, /^2026-05-01 08:00 +10 /, /^total +30 /]],
  ])('sums up by %s', async (by, expected) => {
    const { stdout } = await warren(['ledger', '--by', by], { fetch: answering(books).fetch, clock });
    for (const [index, pattern] of expected.entries()) expect(stdout.split('\n')[index]).toMatch(pattern);
  });

  test('exits 1 at a difference, and says what the tasks say instead', async () => {
    const found = { succeeded: 6, dead: 1, cancelled: 0, expired: 0, inProgress: 3 };
    const differing = jsonAnswer({
      items: [line('b.mail', second, { difference: 1, found })],
      totals: { ...totals, difference: 1 },
    });
    const { fetch } = answering(differing);
    const { exitCode, stdout } = await warren(['ledger'], { fetch, clock });
    expect(exitCode).toBe(1);
    expect(stdout).toContain('2026-05-01 09:00 b.mail: succeeded 7 but 6 found, in progress 2 but 3 found\n');
    expect(stdout).toContain('Not every line has been compared with the tasks yet.');
    const json = await warren(['ledger', '--json'], { fetch: answering(differing).fetch, clock });
    expect([json.exitCode, json.json<{ totals: object }>().totals]).toEqual([1, { ...totals, difference: 1 }]);
  });

  test('says so where nothing was accepted', async () => {
    const { fetch } = answering(jsonAnswer({ items: [], totals: {} }));
    expect(await warren(['ledger'], { fetch, clock })).toMatchObject({
      exitCode: 0,
      stdout: 'Nothing was accepted in this time.\n',
    });
  });
});
