import { expect, test } from '@jest/globals';
import fc from 'fast-check';
import { z } from 'zod';
import { callHandler } from '../../services/worker/call-handler.ts';
import { AttemptContext } from '../../services/worker/context.ts';
import { silentLogger } from '../../shared/observability/silent-log.ts';
import { defineTask } from '../../shared/tasks/define-task.ts';
import { newId } from '../../shared/tasks/ids.ts';
import { describeError } from '../../shared/tasks/outcome.ts';
import type { Outcome } from '../../shared/tasks/outcome.ts';

const MOST_BYTES = 1_000;
const anything = fc.anything({
  stringUnit: 'binary',
  withBigInt: true,
  withDate: true,
  withMap: true,
  withNullPrototype: true,
  withObjectString: true,
  withTypedArray: true,
  withSparseArray: true,
  key: fc.constantFrom('then', 'name', 'message', 'code', 'delayMs', 'toJSON', '__proto__', 'stack', 'cause', 'x'),
});
const named = fc.record({
  name: fc.constantFrom('NonRetryable', 'RetryAfter', 'Deferred', 'WarrenError'),
  message: fc.string(),
  delayMs: anything,
});

async function outcomeOf(run: () => unknown): Promise<Outcome> {
  const type = defineTask({ name: 'test.type', input: z.unknown(), run, retry: { neverOn: ['x'] } });
  const deps = {
    log: silentLogger,
    breakers: { run: () => Promise.reject(new Error('none')) },
    tempDirs: { make: () => Promise.reject(new Error('none')), remove: () => Promise.resolve() },
    saveFile: () => Promise.reject(new Error('none')),
    onProgress: () => undefined,
    once: { ask: () => Promise.reject(new Error('none')) },
    steps: { add: () => Promise.reject(new Error('none')) },
    stepReader: { read: () => Promise.reject(new Error('none')) },
    schema: 'warren',
    lineClock: undefined,
  };
  const identity = { type, taskId: newId(), attempt: 1, claimId: newId(), resultMaxBytes: MOST_BYTES };
  return await callHandler(type, Buffer.from('null'), new AttemptContext(deps, identity), MOST_BYTES);
}

test('whatever a handler returns is stored as JSON within the limit, or refused as unstorable', async () => {
  await fc.assert(
    fc.asyncProperty(anything, async (value) => {
      const outcome = await outcomeOf(() => ({ value }));
      const isStored = outcome.kind === 'succeeded' && outcome.result !== undefined;
      const bytes = isStored ? (outcome.result ?? Buffer.alloc(0)) : Buffer.from('{}');
      expect(
        isStored || (outcome.kind === 'failed' && outcome.reason === 'result_unstorable' && !outcome.retryable),
      ).toBe(true);
      expect(typeof JSON.parse(bytes.toString())).toBe('object');
      expect(bytes.length).toBeLessThanOrEqual(MOST_BYTES);
    }),
  );
});

test('whatever a handler throws becomes an outcome whose texts Postgres can hold', async () => {
  await fc.assert(
    fc.asyncProperty(fc.oneof(anything, named), async (thrown) => {
      const outcome = await outcomeOf(() => Promise.reject(thrown as Error));
      expect(['failed', 'deferred']).toContain(outcome.kind);
      // JSON.stringify writes U+0000 and lone surrogates, and only those and other controls, as \u escapes
      expect(JSON.stringify(outcome)).not.toMatch(/(?<!\\)(\\\\)*\\u(0000|d[89a-f])/);
      expect(structuredClone(outcome)).toEqual(outcome);
    }),
  );
});

test('an error is described within bounds and in little time, whatever its length', () => {
  const pieces = fc.constantFrom('a.', 'amqp://u:p@h ', 'x', '\0', '\ud800', '://', '@');
  fc.assert(
    fc.property(pieces, fc.integer({ min: 1, max: 1_000_000 }), (piece, times) => {
      const { message, stack = '' } = describeError(new Error(piece.repeat(times)));
      expect(message.length).toBeLessThanOrEqual(8_192);
      expect(stack.length).toBeLessThanOrEqual(16_384);
      expect(message).not.toMatch(/u:p|\0/);
    }),
    { numRuns: 50 },
  );
});
