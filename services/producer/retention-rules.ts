/** How long what has ended is kept, out of the configuration. */
import type { Config } from '../../shared/config/schema.ts';

/** Ends that a task can come to. */
export const ENDS = ['succeeded', 'cancelled', 'expired', 'dead'] as const;
/** One of `ENDS`. */
export type End = (typeof ENDS)[number];

/** How long tasks of one type, or of all that have no rule of their own, are kept in one end. */
export interface KeepRule {
  /** Task type; empty for all others. */
  readonly type: string;
  readonly state: End;
  /** Milliseconds from the end, for `dead` from when the letter was closed. */
  readonly keptMs: number;
}

/** The rules, and what follows from them. */
export interface RetentionRules {
  /** Those of all types first, then those of single types; no two for one type and state. */
  readonly tasks: readonly KeepRule[];
  /** Milliseconds after which a whole partition is retired: when most of its tasks are over. */
  readonly ripeMs: number;
  /** Milliseconds that the first task to go is kept. */
  readonly shortestMs: number;
  /** Milliseconds of time that one partition holds. */
  readonly spanMs: number;
  /** Milliseconds that a closed letter and the hours of its group are kept. */
  readonly lettersMs: number;
  /** Milliseconds that a replay is kept once it ended. */
  readonly replaysMs: number;
  /** Milliseconds that a flow is kept once it ended: as long as the last of its steps may be. */
  readonly flowsMs: number;
  /** Milliseconds that it is known what became of an instant of a schedule: as long as the task of it that succeeded. */
  readonly occurrencesMs: number;
}

const DAY_MS = 86_400_000;
const UNIT_MS: Readonly<Record<string, number>> = { s: 1_000, m: 60_000, h: 3_600_000, d: DAY_MS };
const SHARE_OF_RETENTION = 6;
const MOST_PARTITIONS = 60;
const LONGEST_SPAN_MS = 30 * DAY_MS;

/** Reads the rules. The configuration has been checked before. */
export function readRules(retention: Config['retention']): RetentionRules {
  const { succeededMs, cancelledMs, deadMs, replaysMs } = retention;
  const rules = new Map<string, KeepRule>();
  const add = (rule: KeepRule): void => void rules.set(`${rule.type}/${rule.state}`, rule);
  add({ type: '', state: 'succeeded', keptMs: succeededMs });
  add({ type: '', state: 'cancelled', keptMs: cancelledMs });
  add({ type: '', state: 'expired', keptMs: cancelledMs });
  add({ type: '', state: 'dead', keptMs: deadMs });
  const own = retention.types.map((text) => parseTypeRule(text));
  // What names a state is closer than what names all of them, wherever it stands.
  for (const { type, state, keptMs } of [...own].toSorted((a, b) => Number(a.state !== '') - Number(b.state !== ''))) {
    for (const end of ENDS) if (state === '' || state === end) add({ type, state: end, keptMs });
  }
  const tasks = [...rules.values()];
  const wanted = retention.spanMs === 0 ? succeededMs / SHARE_OF_RETENTION : retention.spanMs;
  return {
    tasks,
    ripeMs: succeededMs,
    shortestMs: Math.min(...tasks.map(({ keptMs }) => keptMs)),
    spanMs: Math.ceil(Math.max(Math.min(wanted, LONGEST_SPAN_MS), succeededMs / MOST_PARTITIONS)),
    lettersMs: deadMs,
    replaysMs,
    flowsMs: Math.max(...tasks.map(({ keptMs }) => keptMs)),
    occurrencesMs: succeededMs,
  };
}

/** `report.csv=7d`, `report.csv/dead=365d`. Its form was checked by the setting. */
function parseTypeRule(text: string): { readonly type: string; readonly state: string; readonly keptMs: number } {
  const [, type = '', state = '', count = '0', unit = 's'] = /^([^/=]+)(?:\/(\w+))?=(\d+)([smhd])$/.exec(text) ?? [];
  return { type, state, keptMs: Number(count) * (UNIT_MS[unit] ?? 0) };
}
