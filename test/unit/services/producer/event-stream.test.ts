/** A stream of events whose reader is slow. */
import { expect, test } from '@jest/globals';
import { EventStream } from '../../../../services/producer/http/event-stream.ts';
import { systemClock } from '../../../../shared/time/clock.ts';

const OPTIONS = { heartbeatMs: 100, stalledMs: 250, retryMs: 2_000 };

/** A clock that is moved by hand. */
function handClock(): typeof systemClock & { move(ms: number): void } {
  let nowMs = 0;
  const timers = new Map<() => void, number>();
  return {
    ...systemClock,
    monotonicMs: () => nowMs,
    after: (ms, fn) => {
      timers.set(fn, nowMs + ms);
      return () => void timers.delete(fn);
    },
    move: (ms) => {
      nowMs += ms;
      for (const [fn, atMs] of timers) {
        if (atMs > nowMs) continue;
        timers.delete(fn);
        fn();
      }
    },
  };
}

const large = { id: '1', event: 'state', data: { text: 'x'.repeat(40_000) } };

test('takes no more than its bound before its reader has read', () => {
  const stream = new EventStream(handClock(), OPTIONS, () => undefined);
  stream.send(large);
  expect(stream.isReady).toBe(true);
  stream.send(large);
  expect(stream.isReady).toBe(false);
  while (stream.body.read() !== null);
  expect(stream.isReady).toBe(true);
});

test('ends once its reader has taken nothing for long, and says so to whoever made it', async () => {
  const clock = handClock();
  let ends = 0;
  const stream = new EventStream(clock, OPTIONS, () => (ends += 1));
  stream.send(large);
  stream.send(large);
  for (let beat = 0; beat < 2; beat += 1) clock.move(100);
  expect(stream.body.destroyed).toBe(false);
  clock.move(100);
  await new Promise((resolve) => stream.body.once('close', resolve));
  expect([ends, stream.isReady]).toEqual([1, false]);
});

test('says nothing after its end', () => {
  const stream = new EventStream(handClock(), OPTIONS, () => undefined);
  stream.end('the task has ended');
  stream.send(large);
  stream.end('again');
  expect(String(stream.body.read())).toBe('retry: 2000\n\n: the task has ended\n\n');
});
