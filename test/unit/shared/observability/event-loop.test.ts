import { expect, test } from '@jest/globals';
import { createEventLoopWatch } from '../../../../shared/observability/event-loop.ts';
import { createMetrics } from '../../../../shared/observability/metrics.ts';
import type { Clock } from '../../../../shared/time/clock.ts';
import { systemClock } from '../../../../shared/time/clock.ts';

/** A clock whose sleeps end as late as told, at once. */
function lateClock(lateMs: readonly number[]): Clock & { readonly isOver: Promise<void> } {
  let nowMs = 0;
  const late = [...lateMs];
  const { promise, resolve } = (() => {
    let done = (): void => undefined;
    const over = new Promise<void>((settle) => {
      done = settle;
    });
    return { promise: over, resolve: () => done() };
  })();
  return {
    ...systemClock,
    monotonicMs: () => nowMs,
    sleep: async (ms, signal) => {
      const next = late.shift();
      if (next === undefined) {
        resolve();
        await systemClock.sleep(60_000, signal, { unref: true });
      } else nowMs += ms + next;
    },
    isOver: promise,
  };
}

test('how late timers come is counted, whoever scrapes; and how long the loop was busy', async () => {
  const metrics = createMetrics({ service: 'worker', version: '1', withProcess: false });
  const clock = lateClock([0, 1, 30, 2_000]);
  const watch = createEventLoopWatch({ clock, metrics });
  await watch.start();
  await clock.isOver;
  await watch.stop(0);
  const text = await metrics.render();
  expect(text).toContain('warren_event_loop_lag_seconds_bucket{le="0.005"} 2\n');
  expect(text).toContain('warren_event_loop_lag_seconds_bucket{le="0.05"} 3\n');
  expect(text).toContain('warren_event_loop_lag_seconds_bucket{le="1"} 3\n');
  expect(text).toContain('warren_event_loop_lag_seconds_count 4\n');
  expect(await metrics.render()).toContain('warren_event_loop_lag_seconds_count 4\n');
  expect(Number(/^warren_event_loop_busy_seconds_total ([\d.]+)$/m.exec(text)?.[1])).toBeGreaterThan(0);
});
