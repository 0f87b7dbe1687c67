/** Starts parts from the bottom of a list and stops them from its top. */
import type { Logger } from '../observability/log.ts';
import { toError } from '../errors/to-error.ts';
import type { Clock } from '../time/clock.ts';
import type { Part } from './part.ts';

/** One part with the name that its log lines carry. */
export interface NamedPart {
  readonly name: string;
  readonly part: Part;
}

/** Milliseconds beyond the deadline that parts get to say goodbye, and at least that once it has passed. */
const OVERRUN_MS = 800;

/**
 * One part made of many. The list goes from where work enters down to what all stand on: it is started from the
 * bottom and stopped from the top, so that nothing loses what it stands on. A part that fails to start stops those already
 * started and is rethrown; one that fails to stop, or that is not done a moment after the deadline, is logged and
 * does not keep the others from stopping. Once the deadline has passed nothing waits for anything any more, and the rest stops at
 * once: one after the other, each would wait for its turn on a machine that is starved already.
 */
export function inOrder(parts: readonly NamedPart[], deps: { readonly clock: Clock; readonly log: Logger }): Part {
  const { clock, log } = deps;
  let started: NamedPart[] = [];
  let stops = 0;

  async function stop(deadlineMs: number): Promise<void> {
    stops += 1;
    const stopping = started.toReversed();
    started = [];
    while (stopping.length > 0 && clock.monotonicMs() < deadlineMs) await stopOne(stopping.shift(), deadlineMs);
    await Promise.all(stopping.map(async (named) => await stopOne(named, deadlineMs)));
  }

  async function stopOne(named: NamedPart | undefined, deadlineMs: number): Promise<void> {
    if (named === undefined) return;
    const { name, part } = named;
    const race = new AbortController();
    const lateAtMs = Math.max(deadlineMs, clock.monotonicMs()) + OVERRUN_MS;
    const late = clock.sleep(lateAtMs - clock.monotonicMs(), race.signal).then(() => 'late' as const);
    try {
      if ((await Promise.race([part.stop(deadlineMs), late])) === 'late') {
        log.warn('part did not stop in time', { part: name, hint: 'the process ends without it' });
      }
    } catch (thrown) {
      log.error('part failed to stop', { part: name, err: toError(thrown) });
    }
    race.abort();
  }

  return {
    async start(): Promise<void> {
      const stopsBefore = stops;
      for (const named of parts.toReversed()) {
        if (stops !== stopsBefore) return; // stopped half-way up: nothing may start over what is gone
        try {
          // Counted before it is up: a part that fails half-way may hold a socket that must be let go.
          if (!started.includes(named)) started.push(named);
          await named.part.start();
        } catch (thrown) {
          log.error('part failed to start', { part: named.name, err: toError(thrown) });
          await stop(clock.monotonicMs() + 5_000);
          throw thrown;
        }
      }
    },
    stop,
  };
}
