/** How fast tasks come in, from a sample of those that were accepted lately: a pure function. */

/** A part of the time that is looked at. */
export interface ArrivalSpan {
  /** Seconds of it that the sample covers, above 0: all of it, or up to where the sample was cut short. */
  readonly seconds: number;
  /** Tasks that were seen in it. */
  readonly tasks: number;
}

/**
 * Tasks a second, of spans in the order of time, the youngest last: the mean of all of them, or what the youngest `recent` show beyond
 * doubt where that is more. So the rate follows a rise within seconds, and a fall slowly: a worker too many costs little, a backlog much.
 * What was not seen of a span came as fast as what was.
 */
export function arrivalRate(spans: readonly ArrivalSpan[], recent: number): number {
  const youngest = spans.slice(-recent);
  const seen = youngest.reduce((sum, { tasks }) => sum + tasks, 0);
  // One standard deviation less of what came by chance: a task or two are no rush.
  const certain = seen === 0 ? 0 : 1 - 1 / Math.sqrt(seen);
  return Math.max(meanRate(spans), meanRate(youngest) * certain);
}

function meanRate(spans: readonly ArrivalSpan[]): number {
  if (spans.length === 0) return 0;
  return spans.reduce((sum, { tasks, seconds }) => sum + tasks / seconds, 0) / spans.length;
}
