/** Starts parts from the bottom of a list and stops them from its top. */
import type { Logger } from '../observability/log.ts';
import { toError } from '../errors/to-error.ts';
import type { Part } from './part.ts';

/** One part with the name that its log lines carry. */
export interface NamedPart {
  readonly name: string;
  readonly part: Part;
}

/**
 * One part made of many. The list goes from where work enters down to what all stand on: it is started from the
 * bottom and stopped from the top, so that nothing loses what it stands on. A part that fails to start stops those already
 * started and is rethrown; one that fails to stop is logged and does not keep the others from stopping.
 */
export function inOrder(parts: readonly NamedPart[], log: Logger): Part {
  let started: NamedPart[] = [];
  let stops = 0;

  async function stop(deadlineMs: number): Promise<void> {
    stops += 1;
    const stopping = started.toReversed();
    started = [];
    for (const { name, part } of stopping) {
      try {
        await part.stop(deadlineMs);
      } catch (thrown) {
        log.error('part failed to stop', { part: name, err: toError(thrown) });
      }
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
          await stop(performance.now() + 5_000);
          throw thrown;
        }
      }
    },
    stop,
  };
}
