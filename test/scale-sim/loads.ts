/** The loads: how many tasks have come in by a time, and how long each takes. Times are of the simulated clock, in seconds. */

/** A load. */
export interface Load {
  readonly name: string;
  readonly words: string;
  /** Tasks come in from 0 on up to here. */
  readonly seconds: number;
  /** Tasks a second at a time; what comes in at once is `burstsAt`. */
  readonly rateAt: (seconds: number) => number;
  readonly bursts: readonly { readonly atSeconds: number; readonly tasks: number }[];
  /** Seconds that a task takes, of a number from 0 to 1. */
  readonly takes: (random: number) => number;
}

/** Half as long to one and a half times. */
const around =
  (mean: number): Load['takes'] =>
  (random) =>
    mean * (0.5 + random);

/** All of them. */
export const LOADS: readonly Load[] = [
  {
    name: 'square',
    words: '6 tasks/s of 4 s for a minute, 0.5 for the next',
    seconds: 420,
    rateAt: (seconds) => (seconds % 120 < 60 ? 6 : 0.5),
    bursts: [],
    takes: around(4),
  },
  {
    name: 'ramp',
    words: 'from 0.5 to 16 tasks/s of 1.5 s and back',
    seconds: 420,
    rateAt: (seconds) => 0.5 + 15.5 * (1 - Math.abs(seconds - 210) / 210),
    bursts: [],
    takes: around(1.5),
  },
  {
    name: 'burst',
    words: '60 tasks of 15 s at once, twice, over a trickle of 0.1 tasks/s',
    seconds: 420,
    rateAt: () => 0.1,
    bursts: [
      { atSeconds: 60, tasks: 60 },
      { atSeconds: 240, tasks: 60 },
    ],
    takes: around(15),
  },
];

/** Tasks that come in from one time to another, a fraction of one included. */
export function tasksBetween({ seconds, rateAt, bursts }: Load, from: number, to: number): number {
  const end = Math.min(to, seconds);
  const atOnce = bursts.filter(({ atSeconds }) => atSeconds >= from && atSeconds < to);
  const flowing = end > from ? (end - from) * rateAt((from + end) / 2) : 0;
  return flowing + atOnce.reduce((sum, { tasks }) => sum + tasks, 0);
}
