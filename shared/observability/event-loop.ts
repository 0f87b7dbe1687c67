/** Watches how late timers come: what keeps the event loop to itself keeps everything else waiting for so long. */
import type { Part } from '../lifecycle/part.ts';
import type { Clock } from '../time/clock.ts';
import type { Metrics } from './metrics.ts';

/** What the watch needs. */
export interface EventLoopDeps {
  readonly clock: Clock;
  readonly metrics: Pick<Metrics, 'eventLoopLagSeconds' | 'eventLoopBusySeconds'>;
}

/** Milliseconds between two looks: a block of a second cannot fall between two of them. */
const LOOK_EVERY_MS = 500;

/**
 * Makes the watch. Node's own histogram of delays counts its sampling interval in and begins anew at each scrape, so that neither its
 * values nor those of two Prometheus servers can be added up; these can.
 */
export function createEventLoopWatch({ clock, metrics }: EventLoopDeps): Part {
  const stopping = new AbortController();
  let running: Promise<void> | undefined;
  metrics.eventLoopBusySeconds.readFrom(() => performance.eventLoopUtilization().active / 1_000);

  const watch = async (): Promise<void> => {
    while (!stopping.signal.aborted) {
      const askedMs = clock.monotonicMs();
      await clock.sleep(LOOK_EVERY_MS, stopping.signal, { unref: true });
      const lateMs = clock.monotonicMs() - askedMs - LOOK_EVERY_MS;
      if (!stopping.signal.aborted) metrics.eventLoopLagSeconds.observe(Math.max(0, lateMs) / 1_000);
    }
  };
  return {
    start: async () => {
      running ??= watch();
      await Promise.resolve();
    },
    stop: async () => {
      stopping.abort();
      await running;
    },
  };
}
