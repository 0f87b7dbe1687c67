import { expect, test } from '@jest/globals';
import fc from 'fast-check';
import { parseExact, sliceMember } from '../../shared/tasks/json.ts';

const LIMITS = { maxDepth: 64, maxBytes: 1_048_576 };

test('every JSON value without U+0000 and lone surrogates is accepted, and each member of an object is cut out exactly', () => {
  fc.assert(
    fc.property(
      fc.jsonValue({ stringUnit: 'binary', maxDepth: 8 }),
      fc.constantFrom(undefined, 1, '\t'),
      (value, space) => {
        const text = JSON.stringify(value, undefined, space);
        const isTiny = /\\u0000|\de-3\d\d/.test(text) || text.includes('\\ud');
        fc.pre(!isTiny);
        const bytes = Buffer.from(text);
        const answer = parseExact(bytes, LIMITS);
        if (answer.kind === 'fault') {
          // the only other thing to refuse in what JSON.stringify writes: integers beyond a double's exact range
          expect(answer.code).toBe('number-not-exact');
          return;
        }
        expect(answer.value).toEqual(JSON.parse(text));
        for (const [name, span] of answer.members) {
          const member: unknown = JSON.parse(sliceMember(bytes, span).toString());
          expect(member).toEqual((answer.value as Record<string, unknown>)[name]);
        }
        if (typeof value === 'object' && value !== null && !Array.isArray(value)) {
          expect([...answer.members.keys()].toSorted()).toEqual(Object.keys(answer.value as object).toSorted());
        }
      },
    ),
  );
});

test('any bytes get an answer, and what JSON.parse refuses is refused', () => {
  const bytes = fc.oneof(
    fc.uint8Array({ maxLength: 200 }),
    fc.string({ unit: fc.constantFrom(...'{}[]",:\\u0189aeE+-. tfn') }).map((text) => Buffer.from(text)),
  );
  fc.assert(
    fc.property(bytes, (array) => {
      const answer = parseExact(Buffer.from(array), LIMITS);
      if (answer.kind === 'ok') expect(JSON.parse(Buffer.from(array).toString())).toEqual(answer.value);
    }),
    { numRuns: 1_000 },
  );
});

test('an integer literal is accepted exactly where a double keeps it', () => {
  fc.assert(
    fc.property(fc.bigInt({ min: -(2n ** 70n), max: 2n ** 70n }), (integer) => {
      const answer = parseExact(Buffer.from(`{"n":${integer}}`), LIMITS);
      expect(answer.kind === 'ok').toBe(Number.isSafeInteger(Number(integer)));
      if (answer.kind === 'ok') expect(BigInt((answer.value as { n: number }).n)).toBe(integer);
    }),
  );
});
