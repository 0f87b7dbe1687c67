/**
 * The checker: takes the logs and the tables, and gives every broken invariant with the tasks that it was broken for. Pure;
 * it believes what submitters and handlers wrote down, and asks whether what Warren says fits.
 */
import { checkDeaths } from './check-deaths.ts';
import { checkEnds } from './check-ends.ts';
import { checkFlows } from './check-flows.ts';
import { checkProcesses } from './check-processes.ts';
import { checkRuns } from './check-runs.ts';
import { checkSchedules } from './check-schedules.ts';
import { checkStates } from './check-states.ts';
import type { Evidence } from './evidence.ts';

/** The number of an invariant of docs/reliability.md, or `processes`: something ended or complained that should not. */
export type Invariant = 1 | 2 | 3 | 4 | 5 | 6 | 'processes';

/** One thing that is wrong. */
export interface Violation {
  readonly invariant: Invariant;
  /** What is wrong, the same for all that it is wrong with. */
  readonly what: string;
  /** With which task, submission, letter or process, and what is known of it. */
  readonly about: string;
}

/** Everything that is wrong. */
export function check(evidence: Evidence): readonly Violation[] {
  return [
    ...checkEnds(evidence),
    ...checkRuns(evidence),
    ...checkDeaths(evidence),
    ...checkStates(evidence),
    ...checkFlows(evidence),
    ...checkSchedules(evidence),
    ...checkProcesses(evidence),
  ];
}

/** Groups by what is wrong, in the order of the invariants. */
export function groupViolations(
  violations: readonly Violation[],
): readonly (Violation & { readonly all: readonly string[] })[] {
  const groups = new Map<string, { first: Violation; all: string[] }>();
  for (const violation of violations) {
    const key = `${violation.invariant} ${violation.what}`;
    const group = groups.get(key);
    if (group === undefined) groups.set(key, { first: violation, all: [violation.about] });
    else group.all.push(violation.about);
  }
  const ordered = [...groups].toSorted(([one], [other]) => one.localeCompare(other));
  return ordered.map(([, { first, all }]) => ({ ...first, all }));
}
