/** The ids of Warren: UUIDv7 throughout, so that an id says when it was made and lists walk by id. */
import { v7 } from 'uuid';

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

/** A new UUIDv7, lower case; ids of one process rise even within a millisecond. */
export function newId<Id extends string = TaskId>(): Id {
  return v7() as Id;
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
