import { describe, expect, test } from '@jest/globals';
import {
  foreignLetter,
  LETTER_LIMITS,
  reducedLetter,
  refusedLetter,
  sort,
} from '../../../../services/dead-letter-handler/letters.ts';
import type { Sorted, Stray } from '../../../../services/dead-letter-handler/letters.ts';
import { encodeInvitation } from '../../../../shared/amqp/message.ts';
import { namesOf } from '../../../../shared/amqp/topology.ts';
import type { DeadMessage } from '../../../../shared/dead-letters/evidence.ts';
import { newId } from '../../../../shared/tasks/ids.ts';

const names = namesOf('warren');
const invitation = { taskId: newId() as string, type: 't', generation: 2 };

const aMessage = (body: Buffer | string, death?: Record<string, unknown>): DeadMessage => ({
  body: Buffer.from(body),
  exchange: names.dlx,
  routingKey: 'key',
  properties: {},
  headers: death === undefined ? {} : { 'x-death': [{ reason: 'rejected', 'routing-keys': ['key'], ...death }] },
});

function stray(message: DeadMessage): Stray {
  const sorted: Sorted = sort(message, names);
  return sorted.kind === 'invitation' ? { ...sorted, death: undefined } : sorted;
}

describe('a dead message', () => {
  const fromWork = { exchange: names.work, queue: names.queue('default') };

  test('that came through the work exchange and names a task is an invitation', () => {
    expect(sort(aMessage(encodeInvitation(invitation), fromWork), names)).toMatchObject({
      kind: 'invitation',
      invitation,
    });
  });

  test.each<[string, DeadMessage]>([
    ['names no task', aMessage('{}', fromWork)],
    ['came another way', aMessage(encodeInvitation(invitation), { exchange: 'other', queue: 'q' })],
    ['has no evidence of a death', aMessage(encodeInvitation(invitation))],
  ])('that %s is foreign', (_what, message) => {
    expect(sort(message, names).kind).toBe('foreign');
  });

  test('that died in the ingress queue was refused', () => {
    expect(sort(aMessage('{}', { exchange: names.tasks, queue: names.ingress }), names).kind).toBe('refused');
  });
});

describe('what is recorded', () => {
  test('of a refused message that would be accepted now is how it died', () => {
    const death = { exchange: names.tasks, queue: names.ingress };
    expect(refusedLetter(stray(aMessage('{}', death)), undefined)).toMatchObject({
      reason: 'rejected',
      errorCode: null,
    });
    const expired = aMessage('{}', { ...death, reason: 'expired' });
    expect(refusedLetter(stray(expired), undefined).reason).toBe('expired');
  });

  test('of a foreign message is where it died and how it had come there', () => {
    const message = aMessage('x', { exchange: 'shop', queue: 'orders', 'routing-keys': ['paid'], reason: 'maxlen' });
    expect(foreignLetter(stray(message))).toMatchObject({
      kind: 'foreign',
      reason: 'maxlen',
      type: null,
      queue: 'orders',
      exchange: 'shop',
      routingKey: 'paid',
    });
    expect(foreignLetter(stray(aMessage('x')))).toMatchObject({
      reason: 'unknown',
      queue: null,
      exchange: names.dlx,
      routingKey: 'key',
    });
  });

  test('of a body beyond what can be published again is its beginning and its size', () => {
    const { bodyBytes, keptBytes } = LETTER_LIMITS;
    const whole = foreignLetter(stray(aMessage(Buffer.alloc(bodyBytes))));
    expect(whole).toMatchObject({ reason: 'unknown', errorCode: null });
    expect(whole.body).toHaveLength(bodyBytes);
    const large = foreignLetter(stray(aMessage(Buffer.alloc(bodyBytes + 1))));
    expect(large).toMatchObject({ reason: 'unstorable', errorCode: 'body-too-large' });
    expect(large.errorMessage).toContain(`${bodyBytes + 1} bytes`);
    expect(large.body).toHaveLength(keptBytes);
  });

  test('of what Postgres refuses is its bytes and why', () => {
    const letter = foreignLetter(stray(aMessage('x', { queue: 'q' })));
    expect(reducedLetter(letter, 'bad \0 value')).toMatchObject({
      id: letter.id,
      key: letter.key,
      body: letter.body,
      reason: 'unstorable',
      properties: null,
      headers: null,
      xDeath: null,
      errorMessage: expect.stringContaining('bad \uFFFD value'),
    });
  });
});
