/** The settings of scaling: what is taken where an autoscaler does not say. */
import { integer } from './format.ts';

const DAY_MS = 86_400_000;

/** The group `scaling`. */
export const SCALING_SETTINGS = {
  sloMs: integer(
    'Milliseconds that 95 of 100 tasks shall wait at most to be started, where an autoscaler does not say.',
    30_000,
    100,
    DAY_MS,
  ),
  windowMs: integer(
    'Milliseconds over which arrivals are averaged; a rise shows within an eighth of it.',
    120_000,
    1_000,
    3_600_000,
  ),
  workerStartMs: integer(
    'Milliseconds that a new worker takes to be asked for, scheduled and ready.',
    30_000,
    0,
    3_600_000,
  ),
  slots: integer(
    'Tasks that a worker is taken to run at once for as long as none of its queue is there.',
    10,
    1,
    1_000,
  ),
  maxWorkers: integer(
    'Workers of a queue that are asked for at most, where an autoscaler does not say.',
    100,
    1,
    10_000,
  ),
} as const;
