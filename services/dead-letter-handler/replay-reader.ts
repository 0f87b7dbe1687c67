/** Reads replays and their items for the API. */
import type { ReplayState } from '../../shared/dead-letters/replay-state.ts';
import { run } from '../../shared/postgres/statement.ts';
import type { Queryable, RowOf } from '../../shared/postgres/statement.ts';
import { renderWithRaw } from '../../shared/tasks/json.ts';
import { countItems, listItems, listItemsOfLetter, listReplays, readMended, readReplay } from './replays.sql.ts';

type ReplayRow = RowOf<typeof readReplay.columns>;
type ItemRow = RowOf<typeof listItems.columns>;

const MOST_REPLAYS_OF_LETTER = 200;

/** A replay in a list. */
export interface ReplaySummary extends Record<string, unknown> {
  readonly id: string;
  readonly version: number;
  readonly state: ReplayState;
}

/** An item as the API shows it. */
export interface ItemView extends Record<string, unknown> {
  readonly n: number;
  readonly taskId: string | null;
}

/** A page of replays as they stand, newest first. */
export async function findReplays(
  db: Queryable,
  filter: {
    readonly states: readonly string[] | undefined;
    readonly withSingle: boolean;
    readonly before: string | undefined;
    readonly limit: number;
  },
): Promise<readonly ReplaySummary[]> {
  const { states, withSingle, before, limit } = filter;
  const rows = await run(db, listReplays, states ?? null, withSingle, before ?? null, limit);
  return rows.map((row) => summaryOf(row));
}

/** One replay as JSON text with its version, `undefined` where there is none. Its patch comes back as it came. */
export async function renderReplay(
  db: Queryable,
  id: string,
): Promise<{ readonly text: string; readonly version: number } | undefined> {
  const [row] = await run(db, readReplay, id);
  if (row === undefined) return undefined;
  const members = { ...summaryOf(row), ...countsOf(row, await run(db, countItems, id)) };
  return { text: renderWithRaw(members, { patch: row.patch ?? undefined }), version: row.version };
}

/** Items of a replay in their order. */
export async function findItems(
  db: Queryable,
  filter: {
    readonly replayId: string;
    readonly states: readonly string[] | undefined;
    readonly wave: number | undefined;
    readonly after: number | undefined;
    readonly limit: number;
  },
): Promise<readonly ItemView[]> {
  const { replayId, states, wave, after, limit } = filter;
  return (await run(db, listItems, replayId, states ?? null, wave ?? null, after ?? 0, limit)).map((row) =>
    itemOf(row),
  );
}

/** What replays did with a letter, and the input of its task before one of them mended it. */
export async function findReplaysOfLetter(
  db: Queryable,
  letterId: string,
): Promise<{ readonly replays: readonly ItemView[]; readonly originalInput: Buffer | undefined }> {
  const rows = await run(db, listItemsOfLetter, letterId, MOST_REPLAYS_OF_LETTER);
  const [mended] = await run(db, readMended, letterId);
  return { replays: rows.map((row) => itemOf(row)), originalInput: mended?.input };
}

function summaryOf(row: ReplayRow): ReplaySummary {
  return {
    id: row.id,
    version: row.version,
    state: row.state as ReplayState,
    stateReason: row.state_reason,
    createdAt: row.created_at.toISOString(),
    createdBy: row.created_by,
    finishedAt: row.finished_at?.toISOString() ?? null,
    reason: row.reason,
    selection: row.selection,
    items: row.items,
    sent: row.next_n - 1,
    wave: row.wave,
    waves: row.waves,
    stopAfter: row.stop_after,
    waveTimeoutMs: row.wave_timeout_ms,
    rate: row.rate,
    queue: row.queue,
    priority: row.priority,
    waitForVersion: row.wait_for_version,
  };
}

/** What a cancelled replay has not come to is as good as skipped, without a write to each of its items. */
function countsOf(replay: ReplayRow, rows: readonly RowOf<typeof countItems.columns>[]): Record<string, unknown> {
  const counts = new Map<string, number>();
  const skipped = new Map<string, number>();
  const waves = new Map<number, { items: number; counts: Map<string, number>; failedFirst: number; same: number }>();
  for (const row of rows) {
    const isCancelled = row.state === 'waiting' && replay.state === 'cancelled';
    const state = isCancelled ? 'skipped' : row.state;
    add(counts, state, row.items);
    if (state === 'skipped') add(skipped, isCancelled ? 'cancelled' : (row.code ?? 'closed'), row.items);
    if (row.wave === null) continue;
    const wave = waves.get(row.wave) ?? { items: 0, counts: new Map<string, number>(), failedFirst: 0, same: 0 };
    waves.set(row.wave, wave);
    wave.items += row.items;
    wave.failedFirst += row.failed_first;
    wave.same += row.same;
    add(wave.counts, state, row.items);
  }
  return {
    counts: Object.fromEntries(counts),
    skipped: Object.fromEntries(skipped),
    waveCounts: [...waves].map(([wave, { items, counts: byState, failedFirst, same }]) => ({
      wave,
      items,
      counts: Object.fromEntries(byState),
      failedFirst,
      sameFailure: same,
    })),
  };
}

function add(counts: Map<string, number>, name: string, count: number): void {
  counts.set(name, (counts.get(name) ?? 0) + count);
}

function itemOf(row: ItemRow): ItemView {
  return {
    replayId: row.replay_id,
    n: row.n,
    letterId: row.letter_id,
    state: row.state,
    wave: row.wave,
    taskId: row.task_id,
    sentAt: row.sent_at?.toISOString() ?? null,
    judgedAt: row.judged_at?.toISOString() ?? null,
    error:
      row.fingerprint === null
        ? null
        : {
            type: row.error_type,
            message: row.error_message,
            fingerprint: row.fingerprint,
            isSame: row.is_same ?? false,
          },
    newLetterId: row.new_letter_id,
    code: row.code,
    why: row.why,
  };
}
