/** Under which key an input counts towards a limit. */
import { expect, test } from '@jest/globals';
import { z } from 'zod';
import { defineTask } from '../../../../shared/tasks/define-task.ts';
import { limitKeyOf } from '../../../../shared/tasks/limit-key.ts';

test.each<[string | undefined, unknown, string]>([
  [undefined, { tenantId: 'a' }, ''],
  ['input.tenantId', { tenantId: 'a' }, 'a'],
  ['input.tenantId', { tenantId: 7 }, '7'],
  ['input.tenantId', { tenantId: false }, 'false'],
  ['input.tenantId', { tenantId: null }, ''],
  ['input.tenantId', {}, ''],
  ['input.tenantId', null, ''],
  ['input.user.id', { user: { id: 'u-1' } }, 'u-1'],
  ['input.user.id', { user: 'u-1' }, ''],
  ['input.user', { user: { id: 'u-1' } }, '{"id":"u-1"}'],
  ['input.constructor', {}, ''],
  ['input.__proto__.x', {}, ''],
  ['input.toString', { toString: 'own' }, 'own'],
])('the key %j of %j is %j', (path, input, key) => {
  expect(limitKeyOf(path, input)).toBe(key);
});

test('a long key is its digest, and two long ones differ', () => {
  const keyOf = (text: string): string => limitKeyOf('input.k', { k: text });
  expect(keyOf('x'.repeat(200))).toBe('x'.repeat(200));
  expect(keyOf('x'.repeat(201))).toMatch(/^[0-9a-f]{64}$/);
  expect(keyOf('x'.repeat(201))).not.toBe(keyOf('x'.repeat(202)));
});

test.each([
  [{ concurrency: { limit: 0 } }, 'concurrency.limit'],
  [{ concurrency: { limit: 1_001 } }, 'concurrency.limit'],
  [{ concurrency: { limit: 1.5 } }, 'concurrency.limit'],
  [{ concurrency: { limit: 1, key: 'tenantId' } }, 'concurrency.key'],
  [{ concurrency: { limit: 1, key: 'input' } }, 'concurrency.key'],
  [{ concurrency: { limit: 1, key: 'input..a' } }, 'concurrency.key'],
  [{ concurrency: 5 as unknown as { limit: number } }, 'concurrency'],
  [{ rate: { limit: 5, perMs: 99 } }, 'rate.perMs'],
  [{ rate: { limit: 5, perMs: 86_400_001 } }, 'rate.perMs'],
  [{ rate: { limit: 5, perMs: 1_000, key: 'output.x' } }, 'rate.key'],
])('a type with %j is refused', (limits, field) => {
  const define = (): unknown => defineTask({ name: 'a', input: z.object({}), run: () => undefined, ...limits });
  expect(define).toThrow(
    expect.objectContaining({ code: 'task-module-invalid', facts: expect.objectContaining({ field }) }),
  );
});
