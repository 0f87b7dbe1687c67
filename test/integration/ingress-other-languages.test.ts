/** A publisher in another language: Python with pika, and a shell with curl. */
import { execFile } from 'node:child_process';
import { fileURLToPath } from 'node:url';
// oxlint-disable jest/no-standalone-expect -- because testWith declares the tests
import { afterAll, beforeAll, expect } from '@jest/globals';
import { headersFromStored } from '../../shared/amqp/headers.ts';
import { AMQP_URL } from '../support/broker.ts';
import { eventually } from '../support/eventually.ts';
import { openFrontDoor } from '../support/front-door.ts';
import type { TestFrontDoor } from '../support/front-door.ts';
import { aType, openTaskApi } from '../support/task-api.ts';
import { curl, pika, testWith } from '../support/tools.ts';

const SCHEMA = { type: 'object', properties: { text: { type: 'string' } }, required: ['text'] };
const pathOf = (file: string): string => fileURLToPath(new URL(`../../${file}`, import.meta.url));

let door: TestFrontDoor;
beforeAll(async () => {
  door = await openFrontDoor([aType('text.digest', { inputSchema: SCHEMA }), aType('mail.send')]);
});
afterAll(async () => await door[Symbol.asyncDispose]());

interface Ended {
  readonly code: number;
  readonly stdout: string;
  readonly stderr: string;
}

async function runProgram(program: string, args: readonly string[], env: Record<string, string> = {}): Promise<Ended> {
  return await new Promise((resolve) => {
    const options = { env: { PATH: '/usr/local/bin:/usr/bin:/bin', ...env }, timeout: 20_000 };
    execFile(program, args, options, (error, stdout, stderr) => {
      const code = typeof error?.code === 'number' ? error.code : error === null ? 0 : -1;
      resolve({ code, stdout, stderr });
    });
  });
}

const publish = async (python: string, ...args: readonly string[]): Promise<Ended> =>
  await runProgram(python, [pathOf('examples/publishers/publish.py'), ...args], {
    AMQP_URL,
    WARREN_PREFIX: door.broker.prefix,
  });

testWith(
  pika,
  'a Python publisher is told the id of its task; the same message id is the same task',
  async (python) => {
    const args = [
      'text.digest',
      '{ "text": "h\u00e9llo" }',
      '--message-id',
      'py-1',
      '--priority',
      '7',
      '--business-key',
      'py',
    ];
    const first = await publish(python, ...args);
    expect(first).toMatchObject({ code: 0, stderr: '' });
    const { accepted } = JSON.parse(first.stdout) as { accepted: { id: string } };
    const rows = await door.rows(
      `select id, priority, external_id, publisher, convert_from(input, 'UTF8') as input from tasks where business_key = 'py'`,
    );
    const input = '{ "text": "h\u00e9llo" }';
    expect(rows).toEqual([{ id: accepted.id, priority: 7, external_id: 'py-1', publisher: 'publish.py', input }]);
    const again = await publish(python, ...args);
    expect(JSON.parse(again.stdout)).toEqual({ accepted: { id: accepted.id, duplicate: true } });
  },
  30_000,
);

testWith(
  pika,
  'a Python publisher is told which field was refused and why',
  async (python) => {
    const wrong = await publish(python, 'text.digest', '{"text": 7}');
    expect(wrong.code).toBe(1);
    expect(JSON.parse(wrong.stdout)).toMatchObject({
      refused: { code: 'input-invalid', field: 'input.text', reason: 'must be string' },
    });
    const tooHigh = await publish(python, 'text.digest', '{"text": ""}', '--priority', '10');
    expect(JSON.parse(tooHigh.stdout)).toMatchObject({ refused: { code: 'field-invalid', field: 'priority' } });
    // Letters of a quorum queue come in no certain order.
    const dead = [await door.nextDead(), await door.nextDead()];
    const seen = dead.map(({ message, faults }) => `${message.content.toString()} ${faults[0]?.field ?? ''}`);
    expect(new Set(seen)).toEqual(new Set(['{"text": 7} input.text', '{"text": ""} priority']));
  },
  30_000,
);

testWith(
  pika,
  'headers of every type that Python sends are read or kept',
  async (python) => {
    const script = pathOf('test/integration/python/foreign_headers.py');
    const ended = await runProgram(python, [script, AMQP_URL, door.names.tasks, 'mail.send', 'py-headers']);
    expect(ended).toEqual({ code: 0, stdout: '', stderr: '' });
    const [task] = await eventually(async () => {
      const found = await door.rows<Record<string, unknown>>(
        `select id, state::text as state, tags, max_attempts, run_at from tasks where business_key = 'py-headers'`,
      );
      expect(found).toHaveLength(1);
      return found;
    });
    expect(task).toMatchObject({
      state: 'scheduled',
      tags: ['x', 'y'],
      max_attempts: 3,
      run_at: new Date('2099-01-01T00:00:00Z'),
    });
    const [origin] = await door.rows<{ headers: Record<string, unknown> }>(
      `select headers from origins where task_id = '${String(task?.['id'])}'`,
    );
    expect(headersFromStored(origin?.headers ?? {})).toMatchObject({
      text: '\u00e9',
      small: 1,
      long: 2 ** 40,
      negative: -5,
      yes: true,
      void: null,
      bytes: Buffer.from([0, 255]),
      list: ['a', 1, [true, null], { deep: 'er' }],
      table: { a: { b: 1 } },
      at: { '!': 'timestamp', value: 1_700_000_000 },
      money: { '!': 'decimal', value: { places: 2, digits: 1_234 } },
    });
  },
  30_000,
);

testWith(
  curl,
  'a shell with curl submits a task and sees it; a refusal shows the field',
  async () => {
    await using api = await openTaskApi([aType('text.digest', { inputSchema: SCHEMA })], {
      tokens: [{ name: 'shell', role: 'operator', token: 'shell-token-0123456789' }],
    });
    const env = { WARREN_URL: api.url, WARREN_TOKEN: 'shell-token-0123456789' };
    const script = pathOf('examples/publishers/curl.sh');
    const good = await runProgram('sh', [script, 'text.digest', '{ "text": "x" }'], env);
    expect(good).toMatchObject({ code: 0, stderr: '' });
    const [accepted, shown] = good.stdout.trim().split('\n');
    expect(JSON.parse(accepted ?? '')).toMatchObject({ type: 'text.digest', state: 'pending' });
    expect(shown).toContain('"input":{ "text": "x" }');
    const bad = await runProgram('sh', [script, 'text.digest', '{}'], env);
    expect(bad.code).toBe(22);
    expect(JSON.parse(bad.stdout)).toMatchObject({ type: 'input-invalid', field: 'input.text' });
  },
  30_000,
);
