import { expect, test } from '@jest/globals';
import { Wakeup } from '../../../../services/worker/wakeup.ts';
import { systemClock } from '../../../../shared/time/clock.ts';

const never = new AbortController().signal;

test('a wait ends when it rings, and what rang before is heard once', async () => {
  const bell = new Wakeup(systemClock);
  const waiting = bell.wait(60_000, never);
  bell.wake();
  expect(await waiting).toBe(true);
  bell.wake();
  bell.wake();
  expect(await bell.wait(60_000, never)).toBe(true);
  expect(await bell.wait(1, never)).toBe(false);
});

test('what rings when there is no time to wait is heard by the next wait', async () => {
  const bell = new Wakeup(systemClock);
  bell.wake();
  expect(await bell.wait(0, never)).toBe(false);
  expect(await bell.wait(60_000, never)).toBe(true);
});

test('a wait that is given up hears nothing', async () => {
  const bell = new Wakeup(systemClock);
  const giving = new AbortController();
  const waiting = bell.wait(60_000, giving.signal);
  giving.abort();
  bell.wake();
  expect(await waiting).toBe(false);
});
