/** What a run's replicas and waits come to. */
import type { Moment } from './run.ts';

/** Replicas in figures. */
export interface ReplicaFigures {
  /** Times that the desired number changed. */
  readonly changes: number;
  /** Of these, times that it changed back within `FLAP_SECONDS`: up after down, or down after up. */
  readonly flaps: number;
  readonly most: number;
  readonly mean: number;
}

/** A worker that is taken away and wanted again, or the other way round, within this time was moved for nothing. */
export const FLAP_SECONDS = 60;

/** Counts changes and turns of the desired number. */
export function replicaFigures(moments: readonly Moment[]): ReplicaFigures {
  let [changes, flaps, replicaSeconds] = [0, 0, 0];
  let last: { readonly atSeconds: number; readonly direction: number } | undefined;
  for (const [index, moment] of moments.entries()) {
    const before = moments[index - 1];
    if (before === undefined) continue;
    replicaSeconds += before.desired * (moment.atSeconds - before.atSeconds);
    const direction = Math.sign(moment.desired - before.desired);
    if (direction === 0) continue;
    changes += 1;
    const isTurn = last !== undefined && last.direction !== direction;
    if (isTurn && moment.atSeconds - (last?.atSeconds ?? 0) < FLAP_SECONDS) flaps += 1;
    last = { atSeconds: moment.atSeconds, direction };
  }
  const [first, end] = [moments[0], moments.at(-1)];
  const seconds = (end?.atSeconds ?? 0) - (first?.atSeconds ?? 0);
  return {
    changes,
    flaps,
    most: Math.max(0, ...moments.map(({ desired }) => desired)),
    mean: seconds > 0 ? replicaSeconds / seconds : 0,
  };
}

/** The desired number at each of some times, as one line of digits: `1 1 2 4`. */
export function timeline(moments: readonly Moment[], everySeconds: number): string {
  const shown: number[] = [];
  for (const { atSeconds, desired } of moments) {
    while (atSeconds >= shown.length * everySeconds) shown.push(desired);
  }
  return shown.join(' ');
}
