/** The report of a run, for people: what broke, or the figures. */
import { groupViolations } from './checker.ts';
import type { Violation } from './checker.ts';
import type { Figures } from './figures.ts';

const MOST_SHOWN = 10;

/** Every broken invariant with its number and the ids, at most ten of each kind. */
export function renderViolations(violations: readonly Violation[]): string {
  return groupViolations(violations)
    .map(({ invariant, what, all }) => {
      const head = invariant === 'processes' ? 'processes' : `invariant ${invariant} is broken`;
      const shown = all.slice(0, MOST_SHOWN).map((about) => `    ${about.replaceAll('\n', '\n      ')}`);
      const more = all.length > MOST_SHOWN ? [`    and ${all.length - MOST_SHOWN} more`] : [];
      return [`${head}: ${what} (${all.length})`, ...shown, ...more].join('\n');
    })
    .join('\n');
}

/** The figures, a line each. */
export function renderFigures(figures: Figures): string {
  const { submitted, accepted, unknown, tasks, succeeded, dead, cancelled, expired, runs, restarts } = figures;
  const repeated = Object.values(figures.repeated).reduce((sum, count) => sum + count, 0);
  const lines = [
    `submitted ${submitted}: ${accepted} accepted, ${unknown} without an answer that promises anything`,
    `tasks ${tasks}: ${succeeded} succeeded, ${dead} dead, ${cancelled} cancelled, ${expired} expired`,
    `flows ${Object.values(figures.flows).reduce((sum, count) => sum + count, 0)}: ${Object.entries(figures.flows)
      .map(([state, count]) => `${count} ${state}`)
      .join(', ')}`,
    `messages refused ${figures.refused}, dead letters replayed ${figures.replays}`,
    `runs ${runs}, of them repeated ${repeated}${renderCounts(figures.repeated, 'after')}`,
    `processes started anew ${restarts}`,
    ...(figures.refusedAndLost === 0
      ? []
      : [`refused messages lost with a killed broker of classic queues ${figures.refusedAndLost} (documented)`]),
    'faults injected, and the longest time without the start of a run after one was mended:',
    ...Object.entries(figures.faults)
      .toSorted(([one], [other]) => one.localeCompare(other))
      .map(([name, count]) => `  ${name.padEnd(42)} ${String(count).padStart(3)}  ${stallOf(figures, name)}`),
  ];
  return lines.join('\n');
}

function stallOf({ stalls }: Figures, name: string): string {
  const stallMs = stalls[name];
  return stallMs === undefined ? '' : `${(stallMs / 1_000).toFixed(1).padStart(5)} s`;
}

function renderCounts(counts: Readonly<Record<string, number>>, word: string): string {
  const parts = Object.entries(counts).map(([name, count]) => `${count} ${word} ${name}`);
  return parts.length === 0 ? '' : ` (${parts.join(', ')})`;
}
