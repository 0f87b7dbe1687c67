/** Makes the entries of a task's history out of what is stored: nothing is written for it while the task lives. Pure. */
import type { RowOf } from '../../shared/postgres/statement.ts';
import type { readHistoryAttempts, readHistoryAudit, readHistoryLetters, readHistoryTask } from './history.sql.ts';
import { withoutNull } from './without-null.ts';

/** What is known of a task. */
export interface HistorySources {
  readonly task: RowOf<typeof readHistoryTask.columns>;
  readonly attempts: readonly RowOf<typeof readHistoryAttempts.columns>[];
  readonly letters: readonly RowOf<typeof readHistoryLetters.columns>[];
  readonly audit: readonly RowOf<typeof readHistoryAudit.columns>[];
}

/**
 * Where an entry stands in the history: its instant in milliseconds since 1970; within one the number of its attempt (0 for what
 * is of none); within that its kind, causes before effects; and what tells it from all others.
 */
export type EntryKey = readonly [atMs: number, attempt: number, rank: number, id: string];

/** An entry, with its place. What is `undefined` or null is left out of the answer. */
export interface HistoryEntry {
  readonly key: EntryKey;
  readonly entry: Readonly<Record<string, unknown>>;
}

type AttemptRow = HistorySources['attempts'][number];
type TaskRow = HistorySources['task'];

const RANKS = { accepted: 0, act: 1, invited: 2, started: 3, ended: 4, died: 5, closed: 6, finished: 7 } as const;
/** Milliseconds within which an invitation belongs to what somebody did, and is told with that. */
const SAME_ACT_MS = 1_000;

/** All entries, oldest first. */
export function composeHistory({ task, attempts, letters, audit }: HistorySources): readonly HistoryEntry[] {
  return [
    acceptance(task),
    ...invitations({ task, attempts, letters, audit }),
    ...attempts.flatMap((row) => entriesOfAttempt(row, task)),
    ...entriesOfLastAttempt(task),
    ...letters.flatMap((row) => entriesOfLetter(row)),
    ...audit.map((line) => act(line, task.id)),
    ...finish(task),
  ].toSorted((a, b) => compareKeys(a.key, b.key));
}

/** Below 0 where `a` stands before `b`. */
export function compareKeys(a: EntryKey, b: EntryKey): number {
  for (const index of [0, 1, 2] as const) if (a[index] !== b[index]) return a[index] - b[index];
  return a[3] < b[3] ? -1 : Number(a[3] > b[3]);
}

/** Who hands in what a schedule starts begins so; no token may be called so. */
const SCHEDULE_DOOR = 'schedule:';

function acceptance(task: TaskRow): HistoryEntry {
  const { accepted_at: at, publisher } = task;
  const door = doorOf(task);
  const until = task.attempt === 0 && task.state === 'scheduled' ? task.run_at : null;
  const by = publisher === '' ? null : publisher;
  return entry(at, { attempt: 0, rank: RANKS.accepted, id: '' }, { kind: 'accepted', by, door, until });
}

function doorOf({ flow_id: flowId, publisher, is_from_amqp: isFromAmqp }: TaskRow): string {
  if (flowId !== null) return 'flow';
  if (publisher?.startsWith(SCHEDULE_DOOR) === true) return 'schedule';
  // A task that came over HTTP always names who sent it.
  return isFromAmqp === true || publisher === null ? 'amqp' : 'http';
}

/**
 * The moments at which a wait was over, or somebody invited once more. Each attempt has one invitation, its last; those that came with the
 * acceptance, with the end of the attempt before or with what somebody did are told there.
 */
function invitations({ task, attempts, letters, audit }: HistorySources): readonly HistoryEntry[] {
  const own = {
    attempt: task.has_row || task.attempt === 0 ? task.attempt + 1 : task.attempt,
    invited_at: task.invited_at,
  };
  const told = new Set([task.accepted_at.getTime(), ...attempts.map((row) => row.finished_at.getTime())]);
  // A replay invites the attempt after the one that died; what somebody did with the task itself is told by the instant alone.
  const replayed = new Set(letters.flatMap((row) => (row.state === 'replayed' ? [(row.attempt ?? 0) + 1] : [])));
  const acts = audit.filter(({ target }) => target === task.id).map(({ at }) => at);
  const before = new Map(
    attempts.filter((row) => !isRestoring(row)).map((row) => [row.attempt + 1, becameOf(row, task)]),
  );
  return [...attempts, own].flatMap(({ attempt, invited_at: at }) => {
    if (at === null || told.has(at.getTime()) || replayed.has(attempt)) return [];
    told.add(at.getTime()); // a task that waits still has the invitation of its attempt before
    if (acts.some((act) => Math.abs(act.getTime() - at.getTime()) <= SAME_ACT_MS)) return [];
    const became = before.get(attempt);
    // The first invitation of a step is that of its flow, whoever ended what it waited for.
    const isOfFlow = attempt === 1 && task.flow_id !== null;
    const by = became === 'retrying' || became === 'scheduled' ? 'dispatcher' : isOfFlow ? 'flow' : 'producer';
    return [entry(at, { attempt, rank: RANKS.invited, id: '' }, { kind: 'invited', attempt, by })];
  });
}

function entriesOfAttempt(row: AttemptRow, task: TaskRow): readonly HistoryEntry[] {
  const { attempt, worker, outcome } = row;
  if (isRestoring(row)) {
    const place = { attempt, rank: RANKS.ended, id: '' };
    return [entry(row.finished_at, place, { kind: 'restored', attempt, by: 'producer', reason: row.error_message })];
  }
  const became = becameOf(row, task);
  const waits = (became === 'retrying' || became === 'scheduled') && attempt === task.attempt && became === task.state;
  const ended = {
    kind: 'ended',
    attempt,
    by: outcome === 'lost' ? 'reaper' : 'worker',
    worker,
    outcome,
    became,
    until: waits ? task.run_at : null,
    error: errorOf(row),
    codeVersion: row.code_version === '' ? null : row.code_version,
    hasLogs: row.has_logs ? true : null,
  };
  return [
    entry(row.started_at, { attempt, rank: RANKS.started, id: '' }, { kind: 'started', attempt, by: 'worker', worker }),
    entry(row.finished_at, { attempt, rank: RANKS.ended, id: '' }, ended),
  ];
}

/** The attempt that has no row of its own: one that runs, or one that succeeded. */
function entriesOfLastAttempt(task: TaskRow): readonly HistoryEntry[] {
  const { attempt, worker, state, started_at: startedAt, finished_at: finishedAt } = task;
  if (task.has_row || attempt === 0 || startedAt === null) return [];
  if (state !== 'running' && state !== 'succeeded') return [];
  const { progress_fraction: fraction, progress_step: step, progress_at: updatedAt } = task;
  const progress = fraction === null ? null : withoutNull({ fraction, step, updatedAt });
  const started = entry(
    startedAt,
    { attempt, rank: RANKS.started, id: '' },
    { kind: 'started', attempt, by: 'worker', worker, progress },
  );
  if (finishedAt === null) return [started];
  const ended = { kind: 'ended', attempt, by: 'worker', worker, outcome: 'succeeded', became: 'succeeded' };
  const hasLogs = task.has_logs ? true : null;
  return [started, entry(finishedAt, { attempt, rank: RANKS.ended, id: '' }, { ...ended, hasLogs })];
}

/** A death, and who made the task run again or let it be. */
function entriesOfLetter(row: HistorySources['letters'][number]): readonly HistoryEntry[] {
  const { id: letterId, reason, died_at: diedAt, state, closed_at: closedAt } = row;
  const attempt = row.attempt ?? 0;
  const died = entry(
    diedAt,
    { attempt, rank: RANKS.died, id: letterId },
    { kind: 'died', attempt: row.attempt, letterId, reason },
  );
  if (closedAt === null) return [died];
  const closed = {
    kind: state === 'discarded' ? 'discarded' : 'replayed',
    by: row.closed_by,
    letterId,
    reason: row.close_reason,
    replayId: row.replay_id,
  };
  return [died, entry(closedAt, { attempt, rank: RANKS.closed, id: letterId }, closed)];
}

/** Somebody did something with the task, or with one of its dead letters. */
function act({ id, at, ...line }: HistorySources['audit'][number], taskId: string): HistoryEntry {
  const { actor: by, role, address, action, target, detail } = line;
  const letterId = target === taskId ? null : target;
  return entry(
    at,
    { attempt: 0, rank: RANKS.act, id },
    { kind: 'act', action, by, role, address, letterId, detail: isEmpty(detail) ? null : detail },
  );
}

/** The end of a task that is no death. */
function finish({ state, attempt, finished_at: at, step_why: reason }: TaskRow): readonly HistoryEntry[] {
  if (at === null || (state !== 'succeeded' && state !== 'cancelled' && state !== 'expired')) return [];
  return [
    entry(
      at,
      { attempt, rank: RANKS.finished, id: '' },
      { kind: 'finished', by: reason === null ? null : 'flow', state, reason },
    ),
  ];
}

/** What the task became when the attempt ended. */
function becameOf({ attempt, outcome, is_death: isDeath, finished_at: at }: AttemptRow, task: TaskRow): string {
  if (isDeath) return 'dead';
  const isLast = attempt === task.attempt;
  if (isLast && isSame(at, task.finished_at)) return task.state;
  if (outcome === 'cancelled') return 'cancelled';
  if (outcome === 'deferred') return 'scheduled';
  return outcome === 'failed' || outcome === 'timeout' ? 'retrying' : 'pending';
}

/** True for a row that stands for whatever ran between a backup and now: see `liftAttempts`. */
function isRestoring({ error_code: code }: AttemptRow): boolean {
  return code === 'restored';
}

function errorOf(row: AttemptRow): Record<string, unknown> | null {
  const error = withoutNull({ type: row.error_type, code: row.error_code, message: row.error_message });
  return Object.keys(error).length === 0 ? null : error;
}

function entry(
  at: Date,
  { attempt, rank, id }: { readonly attempt: number; readonly rank: number; readonly id: string },
  members: Readonly<Record<string, unknown>>,
): HistoryEntry {
  return { key: [at.getTime(), attempt, rank, id], entry: withoutNull({ at: at.toISOString(), ...members }) };
}

function isSame(a: Date, b: Date | null): boolean {
  return b !== null && a.getTime() === b.getTime();
}

function isEmpty(detail: unknown): boolean {
  return typeof detail === 'object' && detail !== null && Object.keys(detail).length === 0;
}
