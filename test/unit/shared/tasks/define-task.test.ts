import { describe, expect, test } from '@jest/globals';
import { z } from 'zod';
import { defineTask, describeTask, isName, isTaskType } from '../../../../shared/tasks/define-task.ts';
import type { TaskType } from '../../../../shared/tasks/define-task.ts';
import { checkInput } from '../../../../shared/tasks/input.ts';
import type { StandardSchema } from '../../../../shared/tasks/standard-schema.ts';

const right = { name: 'report.csv', input: z.object({ rows: z.int() }), run: () => 1 };

test('what is left out gets the documented defaults, and the type is frozen', () => {
  const type = defineTask(right);
  expect(type).toMatchObject({
    name: 'report.csv',
    queue: 'default',
    priority: 4,
    timeoutMs: 900_000,
    isolation: 'loop',
    keepLogs: false,
    retry: { maxAttempts: 5, firstDelayMs: 1_000, maxDelayMs: 3_600_000 },
  });
  expect(Object.isFrozen(type)).toBe(true);
  expect(Object.isFrozen(type.retry)).toBe(true);
});

describe('each rule has its message', () => {
  const wrong: [field: string, change: object][] = [
    ['name', { name: '' }],
    ['name', { name: 'Report' }],
    ['name', { name: 'a..b' }],
    ['name', { name: '1a' }],
    ['name', { name: 'a.' }],
    ['name', { name: '__proto__' }],
    ['name', { name: 'constructor' }],
    ['name', { name: 'prototype' }],
    ['name', { name: 'a\n' }],
    ['name', { name: 'a'.repeat(101) }],
    ['name', { name: 7 }],
    ['queue', { queue: 'High' }],
    ['queue', { queue: 'constructor' }],
    ['priority', { priority: 10 }],
    ['priority', { priority: -1 }],
    ['priority', { priority: 1.5 }],
    ['priority', { priority: '5' }],
    ['timeoutMs', { timeoutMs: 0 }],
    ['timeoutMs', { timeoutMs: 2_592_000_001 }],
    ['timeoutMs', { timeoutMs: Number.NaN }],
    ['isolation', { isolation: 'process' }],
    ['keepLogs', { keepLogs: 'yes' }],
    ['run', { run: 'x' }],
    ['input', { input: {} }],
    ['input', { input: { '~standard': { validate: 1 } } }],
    ['retry.maxAttempts', { retry: { maxAttempts: 0 } }],
    ['retry.maxAttempts', { retry: { maxAttempts: 101 } }],
    ['retry.firstDelayMs', { retry: { firstDelayMs: -1 } }],
    ['retry.firstDelayMs', { retry: { firstDelayMs: 86_400_001, maxDelayMs: 86_400_001 } }],
    ['retry.maxDelayMs', { retry: { firstDelayMs: 10, maxDelayMs: 9 } }],
    ['retry.retryOn', { retry: { retryOn: 'ENOENT' } }],
    ['retry.neverOn', { retry: { neverOn: [1] } }],
  ];
  test.each(wrong)('%s of %j is refused', (field, change) => {
    const facts = { field, reason: expect.any(String) as unknown };
    expect(() => defineTask({ ...right, ...change } as typeof right)).toThrow(
      expect.objectContaining({
        code: 'task-module-invalid',
        facts: expect.objectContaining(facts) as unknown,
      }) as unknown as Error,
    );
  });
});

test('names of task types', () => {
  expect(['a', 'report.csv', 'a-b_c.d9', 'x'.repeat(100)].every((name) => isName(name))).toBe(true);
});

test('a type is known by its mark, also when another copy of the code made it', () => {
  expect(isTaskType(defineTask(right))).toBe(true);
  expect(isTaskType({ ...defineTask(right) })).toBe(true);
  expect([undefined, null, 1, {}, () => 1, { warren: 'task-type' }].some((value) => isTaskType(value))).toBe(false);
});

describe('the announced description', () => {
  test('holds the input as JSON Schema 2020-12, defaults optional', () => {
    const type = defineTask({ ...right, input: z.object({ a: z.int(), b: z.string().default('x') }), queue: 'high' });
    expect(describeTask(type)).toMatchObject({
      name: 'report.csv',
      queue: 'high',
      retry: { maxAttempts: 5, firstDelayMs: 1_000, maxDelayMs: 3_600_000 },
      inputSchema: { $schema: 'https://json-schema.org/draft/2020-12/schema', type: 'object', required: ['a'] },
    });
    expect(JSON.parse(JSON.stringify(describeTask(type)))).toEqual(describeTask(type));
  });

  test('has no schema where the library makes none, or where it goes beyond JSON', () => {
    expect(describeTask(defineTask({ ...right, input: handMade() })).inputSchema).toBeUndefined();
    expect(describeTask(defineTask({ ...right, input: z.date() })).inputSchema).toBeUndefined();
  });

  test('asks another library for its own', () => {
    const type = defineTask({ ...right, input: handMade({ type: 'string' }) });
    expect(describeTask(type).inputSchema).toEqual({ type: 'string' });
  });
});

describe('input', () => {
  test('a Standard Schema of any library checks it, also an asynchronous one', async () => {
    const type = defineTask({ ...right, input: handMade() });
    expect(await checkInput(type, 'yes')).toEqual({ kind: 'ok', value: 'YES' });
    expect(await checkInput(type, 7)).toEqual({
      kind: 'refused',
      faults: [{ field: 'input.list[0]["odd key"]', reason: 'must be a text' }],
    });
  });

  test('a schema that throws or rejects refuses', async () => {
    const failing = (validate: () => never | Promise<never>): TaskType =>
      defineTask({ ...right, input: { '~standard': { version: 1, vendor: 'x', validate } } as StandardSchema });
    const refused = { kind: 'refused', faults: [{ field: 'input', reason: 'the schema failed: bug' }] };
    const bug = (): never => {
      throw new Error('bug');
    };
    expect(checkInput(failing(bug), 1)).toEqual(refused);
    expect(
      await checkInput(
        failing(() => Promise.reject(new Error('bug'))),
        1,
      ),
    ).toEqual(refused);
  });

  test('prototype names in input are data to the schema', () => {
    const type = defineTask({ ...right, input: z.record(z.string(), z.unknown()) });
    const input: unknown = JSON.parse('{"__proto__":{"admin":true},"constructor":1}');
    expect(checkInput(type, input)).toMatchObject({ kind: 'ok' });
    expect(({} as Record<string, unknown>)['admin']).toBeUndefined();
  });
});

function handMade(jsonSchema?: Record<string, unknown>): StandardSchema<string> {
  return {
    '~standard': {
      version: 1,
      vendor: 'hand-made',
      validate: (value) =>
        Promise.resolve(
          typeof value === 'string'
            ? { value: value.toUpperCase() }
            : { issues: [{ message: 'must be a text', path: ['list', { key: 0 }, 'odd key'] }] },
        ),
      ...(jsonSchema === undefined ? {} : { jsonSchema: { input: () => jsonSchema } }),
    },
  };
}
