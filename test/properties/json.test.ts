import { expect, test } from '@jest/globals';
import fc from 'fast-check';
import { parseExact, sliceMember } from '../../shared/tasks/json.ts';

const LIMITS = { maxDepth: 64, maxBytes: 1_048_576 };

test('every JSON value without U+0000 and lone surrogates is accepted, and each member of an object is cut out exactly', () => {
  const indent = fc.constantFrom(undefined, 1, '\t');
  fc.assert(
    fc.property(fc.jsonValue({ stringUnit: 'binary', maxDepth: 8 }), indent, (value, space) => {
      const text = JSON.stringify(value, undefined, space);
      // what JSON.stringify writes and Warren refuses: see the unit tests
      fc.pre(!/\\u0000|\\ud|\d{16,}(?![\d.e])|e-3\d\d/.test(text));
      const bytes = Buffer.from(text);
      const answer = parseExact(bytes, LIMITS);
      const parsed: unknown = JSON.parse(text);
      expect(answer).toMatchObject({ kind: 'ok', value: parsed });
      const members = answer.kind === 'ok' ? [...answer.members] : [];
      const cut = members.map(([name, span]): [string, unknown] => [
        name,
        JSON.parse(sliceMember(bytes, span).toString()),
      ]);
      expect(new Map(cut)).toEqual(new Map(isObject(parsed) ? Object.entries(parsed) : []));
    }),
  );
});

test('any bytes get an answer, and what JSON.parse refuses is refused', () => {
  const bytes = fc.oneof(
    fc.uint8Array({ maxLength: 200 }),
    fc.string({ unit: fc.constantFrom(...Array.from('{}[]",:\\u0189aeE+-. tfn')) }).map((text) => Buffer.from(text)),
  );
  fc.assert(
    fc.property(bytes, (array) => {
      const answer = parseExact(Buffer.from(array), LIMITS);
      const parsed: unknown = answer.kind === 'ok' ? JSON.parse(Buffer.from(array).toString()) : undefined;
      expect(answer.kind === 'ok' ? answer.value : undefined).toEqual(parsed);
    }),
    { numRuns: 1_000 },
  );
});

test('an integer literal is accepted exactly where a double keeps it', () => {
  fc.assert(
    fc.property(fc.bigInt({ min: -(2n ** 70n), max: 2n ** 70n }), (integer) => {
      const answer = parseExact(Buffer.from(`{"n":${integer}}`), LIMITS);
      const kept = answer.kind === 'ok' ? BigInt((answer.value as { n: number }).n) : 'refused';
      expect(kept).toBe(Number.isSafeInteger(Number(integer)) ? integer : 'refused');
    }),
  );
});

const isObject = (value: unknown): value is object =>
  typeof value === 'object' && value !== null && !Array.isArray(value);
