/** The client in Python, which stands on its standard library alone, against a whole fleet. */
import { execFile } from 'node:child_process';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { fileURLToPath } from 'node:url';
// oxlint-disable jest/no-standalone-expect -- because testWith declares the tests
import { afterAll, beforeAll, expect } from '@jest/globals';
import { openFleet } from '../support/fleet.ts';
import type { Fleet } from '../support/fleet.ts';
import { python, testWith } from '../support/tools.ts';

const PROGRAM = fileURLToPath(new URL('../../examples/publishers/warren.py', import.meta.url));
const TOKEN = 'a-token-for-python';

let fleet: Fleet;
beforeAll(async () => {
  const tokens = JSON.stringify([{ name: 'python', role: 'operator', token: TOKEN }]);
  fleet = await openFleet({ env: { WARREN_TOKENS: tokens } });
});
afterAll(async () => await fleet[Symbol.asyncDispose]());

interface Ended {
  readonly code: number;
  readonly stdout: string;
  readonly stderr: string;
}

async function run(path: string, args: readonly string[], env: Record<string, string> = {}): Promise<Ended> {
  return await new Promise((resolve) => {
    const given = { PATH: '/usr/bin:/bin', WARREN_URL: fleet.producer().url, WARREN_TOKEN: TOKEN, ...env };
    execFile(path, args, { env: given, timeout: 40_000 }, (error, stdout, stderr) => {
      resolve({ code: typeof error?.code === 'number' ? error.code : error === null ? 0 : -1, stdout, stderr });
    });
  });
}

const input = (more: object = {}): string => JSON.stringify({ journal: fleet.journal, ...more });

testWith(
  python,
  'Python submits a task and waits for its result; the same key is the same task',
  async (path) => {
    const args = [
      PROGRAM,
      'submit',
      'fault.step',
      input({ failures: 1 }),
      '--option',
      'priority=7',
      '--option',
      'businessKey=py',
    ];
    const first = await run(path, [...args, '--key', 'import "7"', '--wait', '30']);
    expect(first).toEqual({ code: 0, stdout: '{"attempt": 2}\n', stderr: '' });
    const again = await run(path, [...args, '--key', 'import "7"']);
    const { id } = JSON.parse(again.stdout) as { id: string };
    expect(await run(path, [PROGRAM, 'result', id])).toMatchObject({ code: 0, stdout: '{"attempt": 2}\n' });
    const tasks = (await fleet.tasks()).filter((task) => task.id === id);
    expect([tasks.length, (await fleet.tasks()).length]).toEqual([1, 1]);
  },
  60_000,
);

testWith(
  python,
  'Python is told what was refused, how a task died, and that one is still under way',
  async (path) => {
    const refused = await run(path, [PROGRAM, 'submit', 'fault.step', '{"wrong":1}']);
    expect(refused).toMatchObject({
      code: 1,
      stdout: '',
      stderr: expect.stringMatching(/^warren.py: The input does not fit .* input/),
    });
    const unknown = await run(path, [PROGRAM, 'submit', 'no.such', '{}']);
    expect(unknown).toMatchObject({
      code: 1,
      stderr: expect.stringContaining('No worker has announced this task type'),
    });
    const dead = await run(path, [
      PROGRAM,
      'submit',
      'fault.step',
      input({ failures: 9 }),
      '--option',
      'maxAttempts=1',
      '--wait',
      '30',
    ]);
    expect(dead).toMatchObject({ code: 1, stderr: expect.stringMatching(/is dead fails in attempt 1\n$/) });
    const later = await run(path, [
      PROGRAM,
      'submit',
      'fault.step',
      input(),
      '--option',
      'delayMs=60000',
      '--wait',
      '0.2',
    ]);
    expect(later).toMatchObject({ code: 3, stderr: expect.stringContaining('it is scheduled') });
    const stranger = await run(path, [PROGRAM, 'submit', 'fault.step', input()], {
      WARREN_TOKEN: 'not-a-token-of-this-fleet',
    });
    expect(stranger).toMatchObject({ code: 1, stderr: expect.stringContaining('bearer token') });
  },
  60_000,
);

testWith(
  python,
  'Python sends again what was not answered, under the same key',
  async (path) => {
    const keys: unknown[] = [];
    const server = createServer((request, response) => {
      keys.push(request.headers['idempotency-key']);
      if (keys.length === 1) request.socket.destroy();
      else if (keys.length === 2)
        response.writeHead(503, { 'retry-after': '0' }).end('{"type":"outbox-full","title":"Full."}');
      else response.writeHead(202, { 'content-type': 'application/json' }).end('{"id":"x","state":"pending"}');
    });
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
    const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
    const sent = await run(path, [PROGRAM, 'submit', 'mail.send', '{}'], { WARREN_URL: url });
    server.close();
    expect(sent).toEqual({ code: 0, stdout: '{"id": "x", "state": "pending"}\n', stderr: '' });
    expect([keys.length, new Set(keys).size]).toEqual([3, 1]);
    const script = `import sys; sys.path.insert(0, sys.argv[1]); from warren import Warren, Unreachable
try: Warren(sys.argv[2], timeout=0.3).task("x")
except Unreachable as error: print("unreachable", error)`;
    const gone = await run(path, ['-B', '-c', script, PROGRAM.replace(/\/[^/]+$/, ''), url]);
    expect(gone.stdout).toMatch(/^unreachable http:\/\/127\.0\.0\.1:\d+: /);
  },
  60_000,
);
