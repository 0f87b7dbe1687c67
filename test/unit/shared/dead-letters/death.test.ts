import { describe, expect, test } from '@jest/globals';
import { readDeath } from '../../../../shared/dead-letters/death.ts';

describe('the last death', () => {
  test('is the first of the list', () => {
    const last = { reason: 'expired', queue: 'q2', exchange: '', 'routing-keys': ['k2', 'cc'], count: 1 };
    const first = { reason: 'rejected', queue: 'q1', exchange: 'e1', 'routing-keys': ['k1'], count: 3 };
    expect(readDeath({ 'x-death': [last, first] })).toEqual({
      reason: 'expired',
      queue: 'q2',
      exchange: '',
      routingKey: 'k2',
    });
  });

  test.each(['rejected', 'expired', 'maxlen', 'delivery_limit'])('keeps the reason %s', (reason) => {
    expect(readDeath({ 'x-death': [{ reason }] })).toEqual({ reason });
  });

  test.each([['Rejected'], ['__proto__'], [''], [7], [null], [undefined], [{}]])(
    'calls the reason %j unknown',
    (reason) => {
      expect(readDeath({ 'x-death': [{ reason }] })?.reason).toBe('unknown');
    },
  );

  test.each([[undefined], [null], ['text'], [7], [[]], [{}], [[null]], [['text']], [[[]]], [[Buffer.from('x')]]])(
    'is absent where x-death is %j',
    (xDeath) => {
      expect(readDeath({ 'x-death': xDeath })).toBeUndefined();
    },
  );

  test('is absent without the header, also where it is inherited', () => {
    expect(readDeath({})).toBeUndefined();
    expect(
      readDeath(Object.create({ 'x-death': [{ reason: 'rejected' }] }) as Record<string, unknown>),
    ).toBeUndefined();
  });

  test('leaves names out that are no texts or longer than AMQP allows', () => {
    const odd = { reason: 'rejected', queue: ['q'], exchange: 7, 'routing-keys': 'k' };
    expect(readDeath({ 'x-death': [odd] })).toEqual({ reason: 'rejected' });
    expect(readDeath({ 'x-death': [{ reason: 'rejected', queue: 'ä'.repeat(128) }] })).toEqual({ reason: 'rejected' });
  });
});
