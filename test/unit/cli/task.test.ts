/** `warren task …`, against answers that the test gives. */
import { describe, expect, test } from '@jest/globals';
import {
  TASK_ID,
  answering,
  jsonAnswer,
  problem,
  sleepingClock,
  taskAccepted,
  taskInState,
  warren,
} from '../../support/cli-io.ts';

describe('task submit', () => {
  test('sends the input byte for byte as given', async () => {
    const { fetch, seen } = answering(taskAccepted);
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
    expect(run).toMatchObject({ exitCode: 0, stdout: `${TASK_ID}\n` });
    expect(seen[0]?.method).toBe('POST');
    expect(seen[0]?.url).toBe('http://127.0.0.1:8080/v1/tasks');
    expect(seen[0]?.body).toBe(`{"type":"report.csv","priority":9,"delayMs":10000,"tags":["a","b"],"input":${input}}`);
  });

  test('sends a unique key and an idempotency key, and says that the task was there before', async () => {
    const { fetch, seen } = answering(jsonAnswer({ id: TASK_ID, state: 'pending', duplicate: true }));
    const unique = ['--unique-key', 'k', '--unique-within', '1m', '--on-conflict', 'reject'];
    const run = await warren(['task', 'submit', 'x', ...unique, '--idempotency-key', 'i'], { fetch });
    expect(run).toMatchObject({ exitCode: 0, stdout: `${TASK_ID}\n` });
    expect(run.stderr).toContain('Was there already.');
    expect(JSON.parse(seen[0]?.body ?? '')).toEqual({
      type: 'x',
      unique: { key: 'k', withinMs: 60_000, onConflict: 'reject' },
      input: {},
    });
    expect(seen[0]?.headers.get('idempotency-key')).toBe('i');
  });

  test('takes the input from standard input', async () => {
    const { fetch, seen } = answering(taskAccepted);
    const readStdin = async (): Promise<Buffer> => await Promise.resolve(Buffer.from('{"n": 1}\n'));
    expect((await warren(['task', 'submit', 'x', '--input-file', '-'], { fetch, readStdin })).exitCode).toBe(0);
    expect(seen[0]?.body).toBe('{"type":"x","input":{"n": 1}\n}');
  });

  test.each(['1,"priority":9', '{"a":1}}', '', '\ufeff{}', '{a:1}', "{'a':1}"])(
    'refuses the input %j, which would not stay one value',
    async (input) => {
      const { fetch, seen } = answering(taskAccepted);
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
    [['--unique-key', 'k', '--unique-while', 'waiting', '--unique-within', '1m']],
    [['--unique-key', 'k', '--on-conflict', 'ignore']],
    [['--on-conflict', 'reject']],
    [['--unknown']],
    [['one argument too many']],
  ])('%j is wrong use', async (more) => {
    const { fetch, seen } = answering(taskAccepted);
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
      taskAccepted,
      taskInState('pending', { attempt: 0 }),
      taskInState('running', { progress: { fraction: 0.459, step: 'writing' } }),
      taskInState('succeeded', { result: { rows: 3 } }),
    );
    const { exitCode, stdout, stderr } = await warren(['task', 'submit', 'report.csv', '--wait'], {
      fetch,
      clock: sleepingClock(),
    });
    expect(exitCode).toBe(0);
    expect(stderr).toBe(`Accepted as ${TASK_ID}.\npending\nrunning, attempt 1, 45% writing\n`);
    expect(stdout).toMatch(/state +succeeded\n/);
    expect(stdout).toMatch(/result +\{"rows":3\}\n/);
    expect(seen.map(({ method }) => method)).toEqual(['POST', 'GET', 'GET', 'GET']);
  });

  test('--wait --json prints the ended task alone', async () => {
    const { fetch } = answering(taskAccepted, taskInState('running'), taskInState('dead'));
    const run = await warren(['task', 'submit', 'report.csv', '--wait', '--json'], { fetch, clock: sleepingClock() });
    expect(run).toMatchObject({ exitCode: 1, stderr: '' });
    expect(run.json()).toMatchObject({ id: TASK_ID, state: 'dead' });
  });

  test('on a terminal progress is one line that is written over, and gone at the end', async () => {
    const { fetch } = answering(taskAccepted, taskInState('running'), taskInState('succeeded'));
    const { stderr } = await warren(['task', 'submit', 'x', '--wait'], { fetch, clock: sleepingClock(), isTTY: true });
    expect(stderr).toBe(`Accepted as ${TASK_ID}.\n\r\u001b[Krunning, attempt 1  0ms\r\u001b[K`);
  });
});

describe('task get', () => {
  test.each([
    ['succeeded', 0],
    ['dead', 1],
    ['cancelled', 1],
    ['expired', 1],
  ])('--wait for a task that ends %s is exit %d', async (state, exitCode) => {
    const { fetch } = answering(taskInState(state));
    expect((await warren(['task', 'get', TASK_ID, '--wait'], { fetch })).exitCode).toBe(exitCode);
  });

  test('--timeout ends the wait with 75 and says that the task goes on', async () => {
    const { fetch, seen } = answering(taskInState('running'));
    const clock = sleepingClock();
    const { exitCode, stderr } = await warren(['task', 'get', TASK_ID, '--wait', '--timeout', '5s'], { fetch, clock });
    expect(exitCode).toBe(75);
    expect(stderr).toContain(`The task goes on. \`warren task get ${TASK_ID} --wait\` waits again`);
    expect(clock.monotonicMs()).toBe(5_000);
    expect(seen.length).toBeLessThan(20);
  });

  test('Ctrl-C ends the wait with 130 and says that the task goes on', async () => {
    const interruption = new AbortController();
    const { fetch } = answering(() => {
      interruption.abort();
      return taskInState('running')();
    });
    const { exitCode, stderr } = await warren(['task', 'get', TASK_ID, '--wait'], {
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
    const { fetch } = answering(taskInState('running'), away, away, taskInState('succeeded'));
    const { exitCode, stderr } = await warren(['task', 'get', TASK_ID, '--wait'], { fetch, clock: sleepingClock() });
    expect(exitCode).toBe(0);
    expect(stderr).toBe('running, attempt 1\nthe service does not answer; trying on\n');
  });

  test('a wait ends with 69 when the service stays away for a minute', async () => {
    const { fetch } = answering(taskInState('running'), problem('database-unavailable', 503));
    const clock = sleepingClock();
    expect((await warren(['task', 'get', TASK_ID, '--wait'], { fetch, clock })).exitCode).toBe(69);
    expect(clock.monotonicMs()).toBeGreaterThanOrEqual(60_000);
  });

  test('input and result are shown as they came, with --json byte for byte', async () => {
    const body = `{"id":"${TASK_ID}","type":"x","state":"succeeded","input":{ "price": 1.10 },"result":[1.0]}`;
    const { fetch } = answering(jsonAnswer(body));
    expect((await warren(['task', 'get', TASK_ID, '--json'], { fetch })).stdout).toBe(`${body}\n`);
    const { stdout } = await warren(['task', 'get', TASK_ID], { fetch });
    expect(stdout).toMatch(/input +\{ "price": 1\.10 \}\n/);
    expect(stdout).toMatch(/result +\[1\.0\]\n/);
  });

  test('nothing that a task holds reaches the terminal as a command', async () => {
    const hostile = '\u001b]0;owned\u0007\u009b2J\r\u202e';
    const { fetch } = answering(
      taskInState('dead', {
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
      ['task', 'get', TASK_ID],
      ['task', 'get', TASK_ID, '--json'],
      ['task', 'get', TASK_ID, '--wait'],
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
