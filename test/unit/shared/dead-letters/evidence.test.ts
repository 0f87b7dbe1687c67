import { describe, expect, test } from '@jest/globals';
import { evidenceKeyOf, evidenceOf, messageKeyOf } from '../../../../shared/dead-letters/evidence.ts';
import type { DeadMessage } from '../../../../shared/dead-letters/evidence.ts';

const aMessage = (changes: Partial<DeadMessage> = {}): DeadMessage => ({
  body: Buffer.from('b'),
  exchange: 'e',
  routingKey: 'k',
  properties: { messageId: 'm', priority: 4, headers: { a: 1 }, expiration: undefined },
  headers: { a: 1, 'x-death': [{ reason: 'rejected', count: 1 }] },
  ...changes,
});
const keyOf = (changes: Partial<DeadMessage>): string => evidenceKeyOf(aMessage(changes)).toString('hex');

describe('evidence', () => {
  test('keeps properties, headers and x-death apart', () => {
    const { properties, headers, xDeath } = evidenceOf(aMessage());
    expect(JSON.parse(properties)).toEqual({ messageId: 'm', priority: 4 });
    expect(JSON.parse(headers)).toEqual({ a: 1 });
    expect(JSON.parse(xDeath ?? '')).toEqual([{ reason: 'rejected', count: 1 }]);
  });

  test('has no x-death where there is none', () => {
    expect(evidenceOf(aMessage({ headers: {} })).xDeath).toBeUndefined();
  });

  test('finds x-death among headers of odd names', () => {
    const { headers, xDeath } = evidenceOf(aMessage({ headers: { 'n\0': 1, 'x-death': [7] } }));
    expect(headers).not.toContain('x-death');
    expect(xDeath).toBe('[7]');
  });
});

describe('the key', () => {
  test('is the same for the same message, in whatever order its headers come and however often it was delivered', () => {
    const headers = { 'x-death': [{ count: 1, reason: 'rejected' }], a: 1 };
    expect(keyOf({ headers })).toBe(keyOf({}));
    expect(keyOf({ headers: { ...headers, 'x-delivery-count': 3, 'x-acquired-count': 4 } })).toBe(keyOf({}));
    const odd = { 'n\0': 1, 'x-death': [7] };
    expect(keyOf({ headers: { ...odd, 'x-delivery-count': 3 } })).toBe(keyOf({ headers: odd }));
  });

  test.each<[string, Partial<DeadMessage>]>([
    ['body', { body: Buffer.from('c') }],
    ['properties', { properties: { messageId: 'n', priority: 4 } }],
    ['headers', { headers: { a: 2, 'x-death': [{ reason: 'rejected', count: 1 }] } }],
    ['x-death', { headers: { a: 1, 'x-death': [{ reason: 'rejected', count: 2 }] } }],
    ['absence of x-death', { headers: { a: 1 } }],
  ])('differs by %s', (_what, changes) => {
    expect(keyOf(changes)).not.toBe(keyOf({}));
  });
});

describe('the key of a message with an id', () => {
  const keyOfMessage = (changes: Partial<DeadMessage>): string | undefined =>
    messageKeyOf(aMessage(changes))?.toString('hex');

  test('says nothing of when and how often it died', () => {
    const again = {
      a: 1,
      'x-death': [{ reason: 'rejected', count: 2 }],
      'x-first-death-queue': 'q',
      'x-last-death-reason': 'r',
    };
    expect(keyOfMessage({ headers: again })).toBe(keyOfMessage({}));
    expect(keyOfMessage({ headers: { ...again, 'x-delivery-count': 1 } })).toBe(keyOfMessage({}));
  });

  test.each<[string, Partial<DeadMessage>]>([
    ['body', { body: Buffer.from('c') }],
    ['id', { properties: { messageId: 'n', priority: 4 } }],
    ['headers of its publisher', { headers: { a: 2 } }],
    ['way back from a letter', { headers: { a: 1, 'x-replay-of': 'l' } }],
  ])('differs by its %s', (_what, changes) => {
    expect(keyOfMessage(changes)).not.toBe(keyOfMessage({}));
  });

  test.each([undefined, ''])('is absent without an id', (messageId) => {
    expect(keyOfMessage({ properties: { messageId } })).toBeUndefined();
  });
});
