/** How a replay and its items can stand. Reference pages and API schemas are made from here. */

/** States of replays, with what each means. */
export const REPLAY_STATES = {
  waiting: 'Waits until every live worker that takes its types announces the version that it asks for.',
  running: 'Sends its items, or waits for what becomes of those that it has sent.',
  paused: 'Sends nothing until somebody resumes it; state_reason says who or what paused it.',
  stopped: 'Stopped by itself: too many items of one wave failed of the same again. Can be resumed.',
  cancelled: 'Ended by an operator; what was not sent stays a dead letter.',
  finished: 'Every item was sent or skipped, and what was sent was waited for.',
} as const;

/** One of `REPLAY_STATES`. */
export type ReplayState = keyof typeof REPLAY_STATES;

/** States of a replay's items, with what each means. */
export const ITEM_STATES = {
  waiting: 'Not sent yet.',
  sent: 'Runs again; its first new attempt has not ended, or failed and is tried again by the policy of its type.',
  succeeded: 'Its task has succeeded.',
  dead: 'Its task died again, or the front door refused it again; the new letter is named.',
  ended: 'Its task was cancelled, or its deadline passed.',
  returned: 'A letter of another service, back where it came from; what becomes of it there is not known here.',
  skipped: 'Not replayed; its code and reason say why.',
} as const;

/** One of `ITEM_STATES`. */
export type ItemState = keyof typeof ITEM_STATES;

/** Why an item was skipped. */
export const SKIP_CODES = {
  closed: 'Its letter was not open any more: another replay had it, or it was discarded.',
  gone: 'Its task is not in the database any more, or not dead.',
  'input-missing': 'Its input is in the store of files no more, or no store is configured for the dead-letter-handler.',
  'patch-misfit': 'The patch does not fit its input.',
  'input-refused': 'The input schema of its type refuses the mended input.',
  'task-type-unknown': 'Nobody has announced its type, so that the mended input cannot be checked.',
  'not-a-task': 'It never was a task: it cannot be mended, or sent to another queue.',
  'not-sent': 'RabbitMQ or the configuration refused it where it would have gone; its letter is open.',
  cancelled: 'The replay was cancelled before it came to this item.',
} as const;

/** One of `SKIP_CODES`. */
export type SkipCode = keyof typeof SKIP_CODES;
