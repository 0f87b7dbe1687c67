import { expect, test } from '@jest/globals';
import fc from 'fast-check';
import { conditionOf, isEmpty, parseLetterFilter } from '../../services/dead-letter-handler/letter-filter.ts';
import { LETTER_KEYS, LETTER_LANGUAGE } from '../../shared/dead-letters/letter-keys.ts';
import { parseFilter } from '../../shared/filter/filter.ts';

const pieces = [
  ...Object.keys(LETTER_KEYS).map((key) => `${key}:`),
  ...Array.from(' "\\:,.*-<>=.%_\'$'),
  'input.a',
  '..',
  '>=',
  '1h',
  '42',
  '2026-01-01',
  'open',
  'true',
  'x',
  'ü',
  '\ud800',
  '\0',
  "'; drop table x",
];
const text = fc.oneof(
  fc.string({ unit: 'binary' }),
  fc.array(fc.constantFrom(...pieces), { maxLength: 30 }).map((parts) => parts.join('')),
);

test('any text either parses or gives a fault with its place and what is allowed there', () => {
  fc.assert(
    fc.property(text, (given) => {
      const parsed = parseFilter(given, LETTER_LANGUAGE);
      const isUnderstood =
        parsed.kind === 'ok'
          ? parsed.terms.every(({ values }) => values.length > 0)
          : parsed.position >= 0 && parsed.position <= given.length && parsed.reason.length > 10;
      expect({ given, isUnderstood }).toEqual({ given, isUnderstood: true });
    }),
    { numRuns: 3_000 },
  );
});

test('no condition holds anything that a user wrote: values are parameters, one for each place', () => {
  fc.assert(
    fc.property(text, (given) => {
      const parsed = parseFilter(given, LETTER_LANGUAGE);
      fc.pre(parsed.kind === 'ok');
      const filter = parseLetterFilter(given);
      const values: unknown[] = ['before'];
      const condition = conditionOf(filter, values);
      expect(condition).toMatch(/^[a-z0-9_.()$:'[\]<>=@?#* \n,|+-]*$/);
      // Literals are of the program alone.
      for (const literal of condition.match(/'[^']*'/g) ?? []) {
        expect(["'open'", "'1 ms'", "'0'", "'70008000000000000000'"]).toContain(literal);
      }
      const places = new Set([...condition.matchAll(/\$(\d+)/g)].map(([, place]) => Number(place)));
      expect([...places].toSorted((a, b) => a - b)).toEqual(values.slice(1).map((_, index) => index + 2));
      expect(typeof isEmpty(filter)).toBe('boolean');
    }),
    { numRuns: 3_000 },
  );
});
