import { describe, expect, test } from '@jest/globals';
import { headersToStored } from '../../../../shared/amqp/headers.ts';
import { messageOf } from '../../../../shared/dead-letters/republish.ts';
import type { StoredLetter } from '../../../../shared/dead-letters/republish.ts';

const aLetter = (properties: Record<string, unknown>, headers: Record<string, unknown> = {}): StoredLetter => ({
  id: 'letter-1',
  body: Buffer.from('b'),
  properties: headersToStored(properties),
  headers: headersToStored(headers),
});
const to = { exchange: 'e', routingKey: 'k' };

describe('a replayed message', () => {
  test('keeps what its receiver needs, and is mandatory', () => {
    const kept = {
      messageId: 'm',
      correlationId: 'c',
      type: 't',
      contentType: 'application/json',
      contentEncoding: 'utf-8',
      replyTo: 'r',
      appId: 'a',
      priority: 0,
      timestamp: 7,
    };
    const message = messageOf(aLetter(kept), to);
    expect(message).toEqual({
      ...to,
      body: Buffer.from('b'),
      mandatory: true,
      properties: { ...kept, headers: { 'x-replay-of': 'letter-1' } },
    });
  });

  test('has no user_id, no expiration, no cluster id', () => {
    const { properties } = messageOf(aLetter({ userId: 'u', expiration: '5', clusterId: 'c', deliveryMode: 1 }), to);
    expect(Object.keys(properties).toSorted()).toEqual(['headers', 'messageId']);
  });

  test.each([[{}], [{ messageId: '' }], [{ messageId: 7 }]])("takes its letter's id where it came with %j", (given) => {
    expect(messageOf(aLetter(given), to).properties.messageId).toBe('letter-1');
  });

  test("loses the broker's evidence and keeps every other header", () => {
    const evidence = {
      'x-death': [],
      'x-first-death-reason': 'rejected',
      'x-last-death-queue': 'q',
      'x-delivery-count': 3,
      'x-acquired-count': 4,
      'x-opt-enqueue-time': 1,
      'x-replay-of': 'an earlier letter',
      CC: ['a'],
      BCC: ['b'],
    };
    const others = {
      'x-trace': 't',
      'x-death-note': 'n',
      list: [1, null],
      bytes: Buffer.from([0]),
      'warren-queue': 'q',
    };
    const again = { ...others, 'x-replay-of': 'letter-1' };
    expect(messageOf(aLetter({}, { ...evidence, ...others }), to).properties.headers).toEqual(again);
    const odd = { ...evidence, ...others, 'n\0': 's\0' };
    expect(messageOf(aLetter({}, odd), to).properties.headers).toEqual({ ...again, 'n\0': 's\0' });
  });
});
