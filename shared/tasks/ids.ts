/** The ids of Warren: UUIDv7 throughout, so that an id says when it was made and lists walk by id. */
import { randomFillSync } from 'node:crypto';
import { v7 } from 'uuid';
import { systemClock } from '../time/clock.ts';

declare const brand: unique symbol;
type Branded<Name extends string> = string & { readonly [brand]: Name };

/** Id of a task, a UUIDv7. */
export type TaskId = Branded<'task'>;
/** Id of a worker process, made anew at each of its starts. */
export type WorkerId = Branded<'worker'>;
/** Random id of one claim. */
export type ClaimId = Branded<'claim'>;
/** Id of a dead letter. */
export type DeadLetterId = Branded<'dead-letter'>;
/** Id of a replay. */
export type ReplayId = Branded<'replay'>;

const CANONICAL = /^[0-9a-f]{8}-[0-9a-f]{4}-[1-8][0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/;
const LATEST_MS = 2 ** 48 - 1;
const MOST_IN_SEQUENCE = 2 ** 32 - 1;

const ID_BYTES = 16;
/** Random bytes ahead of time: to ask the system for those of each id takes longer than all else about it. */
const pool = new Uint8Array(256 * ID_BYTES);
let used = pool.length;
let lastMs = 0;
let sequence = 0;

/** A new UUIDv7, lower case; ids of one process rise even within a millisecond: its random part begins with a counter (RFC 9562, 6.2, method 1). */
export function newId<Id extends string = TaskId>(): Id {
  if (used === pool.length) {
    randomFillSync(pool);
    used = 0;
  }
  const random = pool.subarray(used, used + ID_BYTES);
  used += ID_BYTES;
  const nowMs = systemClock.now().getTime();
  if (nowMs > lastMs) {
    lastMs = nowMs;
    sequence = new DataView(random.buffer, random.byteOffset).getUint32(6) >>> 1; // half of what there is, left to count up
  } else {
    sequence += 1;
    if (sequence > MOST_IN_SEQUENCE) {
      lastMs += 1;
      sequence = 0;
    }
  }
  return v7({ msecs: lastMs, seq: sequence, random }) as Id;
}

/** True for a UUID in its canonical form: lower case, with hyphens, versions 1 to 8. */
export function isUuid(value: unknown): value is string {
  return typeof value === 'string' && CANONICAL.test(value);
}

/**
 * The smallest UUIDv7 of an instant: every id made then or later is at least this one, so a range of time is a range of
 * ids. Instants before 1970 give the smallest of all, those beyond the year 10889 the largest.
 */
export function idAtLeast(at: Date): string {
  const ms = Math.min(Math.max(Math.floor(at.getTime()), 0), LATEST_MS);
  const hex = ms.toString(16).padStart(12, '0');
  return `${hex.slice(0, 8)}-${hex.slice(8)}-7000-8000-000000000000`;
}

/** Milliseconds since 1970 at which an id was made. */
export function idMs(id: string): number {
  return Number.parseInt(id.slice(0, 8) + id.slice(9, 13), 16);
}
