/** Groups that a flow declares without members: what is kept of them, so that a step may add some while it runs. Pure. */
import type { StepBody } from './flow-body.ts';
import type { Placed } from './graph.ts';
import type { PlannedStep, PlannedTask, StoredReference } from './planned-flow.ts';

/** An empty group as it is stored; `add_steps` in `0025_added_steps.sql` reads it. */
export interface PlannedGroup {
  /** Steps that its members wait for, by their names. */
  readonly after: readonly string[];
  /** Tasks that wait for it. */
  readonly next: readonly number[];
  readonly level: number;
  readonly onFailure?: StepBody['onFailure'];
  /** What undoes a member, whose number its references give as -1. */
  readonly undo?: {
    readonly spec: PlannedTask;
    readonly pieces?: readonly string[];
    readonly refs?: readonly StoredReference[];
  };
}

/** A step, with one template a task. */
interface Draft {
  readonly name: string;
  readonly body: StepBody;
  readonly templates: readonly unknown[];
  /** Number of its first task. */
  readonly first: number;
}

/** Stands for the number of a member that is not there yet. */
const MEMBER = -1;

/**
 * The empty groups by their names; `undefined` where there are none, `too many` where more than `mostEdges` tasks wait for them together. `placed`: in
 * an order in which each stands after those that it waits for. `undoOf`: what undoes the task of that number.
 */
export function emptyGroups<D extends Draft>(
  drafts: ReadonlyMap<string, D>,
  placed: ReadonlyMap<string, Placed>,
  undoOf: (draft: D, step: number) => (Required<Pick<PlannedStep, 'task'>> & Pick<PlannedStep, 'template'>) | undefined,
  mostEdges: number,
): Readonly<Record<string, PlannedGroup>> | 'too many' | undefined {
  if ([...drafts.values()].every(({ templates }) => templates.length > 0)) return undefined;
  const groups = new Map<string, PlannedGroup>();
  /** Of each step the tasks that wait for it, filled from the end. */
  const after = new Map<string, Set<number>>([...drafts.keys()].map((name) => [name, new Set()]));
  let edges = 0;
  for (const { name, names, level } of [...placed.values()].toReversed()) {
    const draft = drafts.get(name) as D;
    const { body, templates, first } = draft;
    const next = after.get(name) as Set<number>;
    const isEmpty = templates.length === 0;
    const passedOn = isEmpty ? [...next] : templates.map((_template, member) => first + member);
    for (const each of names) {
      if (drafts.get(each)?.templates.length !== 0) continue;
      for (const task of passedOn) after.get(each)?.add(task);
      edges += passedOn.length;
      if (edges > mostEdges) return 'too many';
    }
    if (!isEmpty) continue;
    const undo = undoOf(draft, MEMBER);
    groups.set(name, {
      after: names,
      next: [...next],
      level,
      ...(body.onFailure === undefined ? {} : { onFailure: body.onFailure }),
      ...(undo === undefined ? {} : { undo: { spec: undo.task, ...undo.template } }),
    });
  }
  return Object.fromEntries(groups);
}
