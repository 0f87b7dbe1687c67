/** Modes of a queue, with what each means. Reference pages and API schemas are made from here. */
export const QUEUE_MODES = {
  open: 'Takes tasks and runs them.',
  paused: 'Takes tasks and starts none; what runs goes on. Schedules go on making tasks, which wait.',
  draining: 'Runs what it has, and holds back what comes in from now on, until it is resumed.',
} as const;

/** One of `QUEUE_MODES`. */
export type QueueMode = keyof typeof QUEUE_MODES;
