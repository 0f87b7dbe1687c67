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

/** Milliseconds beyond the deadline that the parts share, for saying goodbye. */
const OVERRUN_MS = 1_000;
/** Milliseconds that each part gets even after that: most have nothing left to do. */
const LEAST_MS = 50;

/**
 * One part made of many. The list goes from where work enters down to what all stand on: it is started from the
 * bottom and stopped from the top, so that nothing loses what it stands on. A part that fails to start stops those already
 * started and is rethrown; one that fails to stop, or that is not done a moment after the deadline, is logged and
 * does not keep the others from stopping.
 */
export function inOrder(parts: readonly NamedPart[], deps: { readonly clock: Clock; readonly log: Logger }): Part {
  const { clock, log } = deps;
  let started: NamedPart[] = [];
  let stops = 0;

  async function stop(deadlineMs: number): Promise<void> {
    stops += 1;
    const stopping = started.toReversed();
    started = [];
    for (const { name, part } of stopping) {
      const race = new AbortController();
      const leftMs = Math.max(deadlineMs + OVERRUN_MS - clock.monotonicMs(), LEAST_MS);
      const late = clock.sleep(leftMs, race.signal).then(() => 'late' as const);
      try {
        if ((await Promise.race([part.stop(deadlineMs), late])) === 'late') {
          log.error('part did not stop in time', { part: name, hint: 'the process ends without it' });
        }
      } catch (thrown) {
        log.error('part failed to stop', { part: name, err: toError(thrown) });
      }
      race.abort();
    }
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
