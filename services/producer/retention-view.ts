/** Shows what is kept for how long, where it is, and what the next round of retention will do. Changes nothing. */
import { run } from '../../shared/postgres/statement.ts';
import type { Queryable } from '../../shared/postgres/statement.ts';
import { readState } from './partitions.ts';
import { isRest, planRound } from './retention-plan.ts';
import type { Partition, Range } from './retention-plan.ts';
import type { RetentionRules } from './retention-rules.ts';
import { readTables } from './retention-view.sql.ts';

/** What becomes of a partition. */
export type PartitionState = 'ahead' | 'current' | 'kept' | 'due' | 'held' | 'retiring' | 'rest' | 'default';

/** All of it. */
export interface RetentionView {
  readonly now: string;
  readonly rules: { readonly type?: string; readonly state: string; readonly keptMs: number }[];
  readonly spanMs: number;
  readonly behindMs: number;
  readonly oldestTaskAt?: string;
  readonly partitions: PartitionView[];
  readonly underWay?: {
    readonly sources: string[];
    readonly retired: number;
    readonly kept: number;
    readonly beganAt: string;
  };
  readonly next: {
    readonly make: { readonly name: string; readonly from: string; readonly to: string }[];
    readonly retire: string[];
    readonly drop: string[];
    readonly walk: { readonly from?: string; readonly to?: string }[];
  };
  readonly tables: TableView[];
}

interface PartitionView {
  readonly name: string;
  readonly state: PartitionState;
  readonly from?: string;
  readonly to?: string;
  readonly rows: number;
  readonly bytes: number;
}

interface TableView {
  readonly table: string;
  /** In words. */
  readonly kept: string;
  readonly keptMs?: number;
  readonly rows: number;
  readonly bytes: number;
  readonly oldestAt?: string;
}

/** Reads it. Throws as `Queryable.query`. */
export async function viewRetention(db: Queryable, rules: RetentionRules): Promise<RetentionView> {
  const { partitions, standing, nowMs } = await readState(db);
  const plan = planRound(rules, partitions, nowMs);
  const retiring = [...(standing.sources ?? [])];
  const tables = await run(db, readTables);
  return {
    now: iso(nowMs),
    rules: rules.tasks.map(({ type, state, keptMs }) => ({ ...(type === '' ? {} : { type }), state, keptMs })),
    spanMs: rules.spanMs,
    behindMs: plan.behindMs,
    ...(standing.oldest_at === null ? {} : { oldestTaskAt: standing.oldest_at.toISOString() }),
    partitions: [
      ...partitions.map((each) => ({
        name: each.name,
        state: stateOf(each, retiring, { nowMs, ripeMs: rules.ripeMs }),
        from: iso(each.lowerMs),
        to: iso(each.upperMs),
        rows: each.rows,
        bytes: each.bytes,
      })),
      {
        name: 'tasks_default',
        state: 'default',
        rows: standing.default_rows ?? 0,
        bytes: standing.default_bytes ?? 0,
      },
    ],
    ...(standing.target === null
      ? {}
      : {
          underWay: {
            sources: retiring,
            retired: standing.retired ?? 0,
            kept: standing.kept ?? 0,
            beganAt: standing.began_at?.toISOString() ?? iso(nowMs),
          },
        }),
    next: {
      make: plan.make.map(({ name, lowerMs, upperMs }) => ({ name, from: iso(lowerMs), to: iso(upperMs) })),
      retire: standing.target === null ? [...(plan.retire?.sources ?? [])] : [],
      drop: [...(standing.to_drop ?? [])],
      walk: plan.walk.map((range) => rangeOf(range)),
    },
    tables: tables.map((row): TableView => {
      const { kept, keptMs } = KEPT[row.name ?? '']?.(rules) ?? { kept: 'as long as what it belongs to' };
      return {
        table: row.name ?? '',
        kept,
        ...(keptMs === undefined ? {} : { keptMs }),
        rows: row.rows ?? 0,
        bytes: row.bytes ?? 0,
        ...(row.oldest_at === null ? {} : { oldestAt: row.oldest_at.toISOString() }),
      };
    }),
  };
}

const WEEK_MS = 7 * 86_400_000;
/** What is said of tables whose rows have a time of their own. */
const KEPT: Readonly<Record<string, (rules: RetentionRules) => { readonly kept: string; readonly keptMs?: number }>> = {
  dead_letters: ({ lettersMs }) => ({ kept: 'from when they are closed; open ones for good', keptMs: lettersMs }),
  failure_group_hours: ({ lettersMs }) => ({ kept: 'from the hour', keptMs: lettersMs }),
  failure_groups: () => ({ kept: 'for good: one row a failure' }),
  replays: ({ replaysMs }) => ({ kept: 'from their end', keptMs: replaysMs }),
  replay_items: ({ replaysMs }) => ({ kept: 'as long as their replay', keptMs: replaysMs }),
  flows: ({ flowsMs }) => ({ kept: 'from their end', keptMs: flowsMs }),
  flow_steps: ({ flowsMs }) => ({ kept: 'as long as their flow', keptMs: flowsMs }),
  schedules: () => ({ kept: 'until they are removed' }),
  occurrences: ({ occurrencesMs }) => ({ kept: 'from when they are decided about', keptMs: occurrencesMs }),
  message_ids: () => ({ kept: 'from acceptance', keptMs: WEEK_MS }),
  idempotency_keys: () => ({ kept: 'from acceptance', keptMs: WEEK_MS }),
  unique_keys: () => ({ kept: 'while somebody holds them' }),
  ledger_entries: () => ({ kept: 'for good: a few rows an hour and type' }),
  audit: () => ({ kept: 'for good: it is append-only' }),
};

function stateOf(
  partition: Partition,
  retiring: readonly string[],
  { nowMs, ripeMs }: { readonly nowMs: number; readonly ripeMs: number },
): PartitionState {
  if (retiring.includes(partition.name)) return 'retiring';
  if (partition.isHeld) return 'held';
  if (isRest(partition)) return 'rest';
  if (partition.lowerMs > nowMs) return 'ahead';
  if (partition.upperMs > nowMs) return 'current';
  return partition.upperMs <= nowMs - ripeMs ? 'due' : 'kept';
}

/** Without a begin or an end where it has none. */
function rangeOf({ lowerMs, upperMs }: Range): { readonly from?: string; readonly to?: string } {
  return { ...(lowerMs === 0 ? {} : { from: iso(lowerMs) }), to: iso(upperMs) };
}

function iso(ms: number): string {
  return new Date(ms).toISOString();
}
