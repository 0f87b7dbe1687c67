/** Settings of how long tasks, dead letters and replays are kept. */
import { integer, list } from './format.ts';

const DAY_MS = 86_400_000;

/** The group `retention`. */
export const RETENTION_SETTINGS = {
  intervalMs: integer('Milliseconds between two rounds of retention.', 60_000, 20, 3_600_000),
  succeededMs: integer(
    'Milliseconds that a task that succeeded is kept, from its end.',
    30 * DAY_MS,
    1_000,
    3_650 * DAY_MS,
  ),
  cancelledMs: integer(
    'Milliseconds that a task that was cancelled or has expired is kept, from its end.',
    30 * DAY_MS,
    1_000,
    3_650 * DAY_MS,
  ),
  deadMs: integer(
    'Milliseconds that a dead task and its dead letter are kept once the letter is closed; an open one is kept for good.',
    90 * DAY_MS,
    1_000,
    3_650 * DAY_MS,
  ),
  replaysMs: integer('Milliseconds that a replay is kept, from its end.', 90 * DAY_MS, 1_000, 3_650 * DAY_MS),
  types: list(
    'How long tasks of single types are kept, in all ends or in one: report.csv=7d, report.csv/dead=365d.',
    /^[a-z][a-z0-9]*([._-][a-z0-9]+)*(\/(succeeded|cancelled|expired|dead))?=[1-9]\d{0,4}[smhd]$/,
    'type=duration or type/state=duration; states succeeded, cancelled, expired, dead; durations such as 12h or 7d',
  ),
  spanMs: integer(
    'Milliseconds of time that one partition of tasks holds; 0: a sixth of retention.succeededMs, at most 30 days. At least a sixtieth of it in any case.',
    0,
    0,
    30 * DAY_MS,
  ),
} as const;
