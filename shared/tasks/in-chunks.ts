/** Doing something to many rows, in chunks that are each committed alone, for as long as somebody waits for the answer. */
import type { Clock } from '../time/clock.ts';

/** A part of what is gone through. */
export interface Chunk {
  /** Where the next one begins; `undefined` at the end. */
  readonly next: string | undefined;
}

/** How it is gone through. */
export interface ChunkWork<C extends Chunk> {
  /** Finds the next chunk, from `below` down; `undefined` is the top. */
  readonly find: (below: string | undefined) => Promise<C>;
  /** Does it, and commits. */
  readonly act: (chunk: C) => Promise<void>;
  readonly below?: string | undefined;
  /** On the monotonic clock: no further chunk is begun then. */
  readonly untilMs: number;
}

/** Rows of one commit: so that no lock stands long, and a crash undoes little. */
export const ROWS_PER_COMMIT = 500;
/** Milliseconds for which somebody who asked over HTTP waits, at most. */
export const LONGEST_WAIT_MS = 20_000;

/** Goes through the chunks; at least through one. Gives the place where the next would begin; `undefined` where all is done. */
export async function inChunks<C extends Chunk>(
  clock: Pick<Clock, 'monotonicMs'>,
  { find, act, below, untilMs }: ChunkWork<C>,
): Promise<string | undefined> {
  let place = below;
  do {
    const chunk = await find(place);
    await act(chunk);
    place = chunk.next;
  } while (place !== undefined && clock.monotonicMs() < untilMs);
  return place;
}
