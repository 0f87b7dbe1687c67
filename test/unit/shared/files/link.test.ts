/** A link is right in one form alone, for one file, until one instant. */
import { expect, test } from '@jest/globals';
import fc from 'fast-check';
import { signLink, verifyLink } from '../../../../shared/files/link.ts';

const SECRET = 'a-secret-of-a-test-long-enough-to-be-one';
const ID = '0198f3a2-7c10-7d3e-9a4b-2f6c1d8e5b70';
const NOW = new Date('2030-01-31T12:00:00.900Z');
const LATER = new Date('2030-01-31T13:00:00.900Z');

test('a link leads to its file until it expires, in whole seconds', () => {
  const link = signLink(SECRET, ID, LATER);
  expect(verifyLink(SECRET, link, NOW)).toBe(ID);
  expect(verifyLink(SECRET, link, new Date('2030-01-31T12:59:59.999Z'))).toBe(ID);
  expect(() => verifyLink(SECRET, link, new Date('2030-01-31T13:00:00.000Z'))).toThrow(
    expect.objectContaining({ code: 'link-expired', facts: { expiredAt: '2030-01-31T13:00:00.000Z' } }),
  );
});

test('a link of one file, one instant or one secret says nothing of another', () => {
  const link = signLink(SECRET, ID, LATER);
  const others = [
    signLink(`${SECRET}.`, ID, LATER),
    link.replace(ID, '0198f3a2-7c10-7d3e-9a4b-2f6c1d8e5b71'),
    link.replace(/expires=(\d+)/, (_whole, seconds: string) => `expires=${Number(seconds) + 1}`),
  ];
  for (const other of others)
    expect(() => verifyLink(SECRET, other, NOW)).toThrow(expect.objectContaining({ code: 'link-invalid' }));
});

test('every change of a character, and everything added or left out, is seen', () => {
  const link = signLink(SECRET, ID, LATER);
  const character = fc.string({ minLength: 0, maxLength: 3 });
  fc.assert(
    fc.property(fc.nat(link.length), fc.nat(2), character, (at, removed, added) => {
      const changed = link.slice(0, at) + added + link.slice(at + removed);
      fc.pre(changed !== link);
      expect(() => verifyLink(SECRET, changed, NOW)).toThrow(expect.objectContaining({ code: 'link-invalid' }));
    }),
    { numRuns: 2_000 },
  );
});
