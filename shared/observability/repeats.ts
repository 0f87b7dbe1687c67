/** What happens again and again is logged less and less often: an outage of an hour must not fill a disk. */

/** True for the 1st, 2nd, 4th, 8th … time in a row. `times` counts from 1. */
export function isWorthTelling(times: number): boolean {
  return Number.isInteger(Math.log2(times));
}
