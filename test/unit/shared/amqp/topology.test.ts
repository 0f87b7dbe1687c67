import { describe, expect, test } from '@jest/globals';
import { isQueueName, namesOf, topologyOf } from '../../../../shared/amqp/topology.ts';

describe('the topology', () => {
  test.each(['classic', 'quorum'] as const)(
    'of type %s lets everything that dies reach the dead queue',
    (queueType) => {
      const { exchanges, queues, bindings } = topologyOf({ prefix: 'w', queues: ['a', 'b'], queueType });
      const working = queues.filter(({ name }) => name !== 'w.dead');
      expect(working.map(({ name }) => name)).toEqual(['w.ingress', 'w.q.a', 'w.q.b']);
      expect(working.map((queue) => queue.arguments['x-dead-letter-exchange'])).toEqual(['w.dlx', 'w.dlx', 'w.dlx']);
      expect(bindings).toContainEqual({ exchange: 'w.dlx', queue: 'w.dead', routingKey: '#' });
      expect(exchanges).toContainEqual({ name: 'w.dlx', type: 'topic' });
      const dead = queues.find(({ name }) => name === 'w.dead');
      expect(dead?.arguments).not.toHaveProperty('x-dead-letter-exchange');
    },
  );

  test('on quorum the broker removes nothing by itself, on classic there are ten priorities', () => {
    const quorum = topologyOf({ prefix: 'w', queues: ['a'], queueType: 'quorum' });
    for (const queue of quorum.queues) {
      expect(queue.arguments).toMatchObject({ 'x-delivery-limit': -1 });
      expect(queue.arguments).not.toHaveProperty('x-max-priority');
    }
    const classic = topologyOf({ prefix: 'w', queues: ['a'], queueType: 'classic' });
    expect(classic.queues[1]?.arguments).toMatchObject({ 'x-max-priority': 10 });
  });

  test('has each queue once', () => {
    const { queues } = topologyOf({ prefix: 'w', queues: ['a', 'a'], queueType: 'classic' });
    expect(queues.map(({ name }) => name)).toEqual(['w.ingress', 'w.q.a', 'w.dead']);
  });

  test.each(['', ' ', 'a b', '.a', 'a.', '#', 'a*', 'ü', 'a'.repeat(101), 'a\u0000'])(
    'refuses the queue name "%s"',
    (queue) => {
      expect(isQueueName(queue)).toBe(false);
      expect(() => topologyOf({ prefix: 'w', queues: [queue], queueType: 'classic' })).toThrow(
        expect.objectContaining({ code: 'field-invalid' }),
      );
    },
  );

  test.each(['a', 'A1', 'image-resize', 'eu.west_1', 'a'.repeat(100), '__proto__x'.slice(2)])(
    'takes the queue name "%s"',
    (queue) => {
      expect(isQueueName(queue)).toBe(true);
    },
  );

  test('refuses a prefix that cannot be one', () => {
    expect(() => namesOf('a b')).toThrow(expect.objectContaining({ code: 'field-invalid' }));
    expect(() => namesOf('x'.repeat(61))).toThrow(expect.objectContaining({ code: 'field-invalid' }));
  });
});
