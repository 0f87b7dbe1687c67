/** The graph of a flow: which step waits for which, in what order they may run, and what is wrong with that. Pure. */
import type { SubmissionFault } from '../tasks/submission.ts';

/** What the graph is made of: a step, and the names of those that it waits for. */
export interface Node {
  readonly name: string;
  /** Steps that it names, each with the place where it does. */
  readonly before: readonly { readonly name: string; readonly field: string }[];
  /** Tasks that it is: 1, or those of its group, which may be none. */
  readonly members: number;
}

/** A step in its place. */
export interface Placed {
  readonly name: string;
  /** Steps that it waits for, each once, in the order in which it names them. Where a group is empty, those that the group waits for. */
  readonly waitsFor: readonly string[];
  /** The same, with the empty groups themselves. */
  readonly names: readonly string[];
  /** Steps on the longest way to it; 0 for one that waits for nothing. */
  readonly level: number;
}

/** Every step in its place, or what is wrong. */
export function placeSteps(
  nodes: readonly Node[],
):
  | { readonly kind: 'ok'; readonly placed: ReadonlyMap<string, Placed> }
  | { readonly kind: 'refused'; readonly faults: readonly SubmissionFault[] } {
  const byName = new Map(nodes.map((node) => [node.name, node]));
  const faults = nodes.flatMap(({ before }) =>
    before
      .filter(({ name }) => !byName.has(name))
      .map(({ name, field }) => invalid(field, `names no step of this flow: ${JSON.stringify(name)}`)),
  );
  if (faults.length > 0) return { kind: 'refused', faults };
  const circle = findCircle(nodes, byName);
  if (circle !== undefined) {
    const [first = ''] = circle;
    const field = byName.get(first)?.before.find(({ name }) => name === circle[1])?.field ?? 'steps';
    return { kind: 'refused', faults: [invalid(field, `goes round in a circle: ${circle.join(' waits for ')}`)] };
  }

  const placed = new Map<string, Placed>();
  const place = (name: string): Placed => {
    const known = placed.get(name);
    if (known !== undefined) return known;
    const named = [...new Set(byName.get(name)?.before.map((each) => each.name))];
    const waitsFor = [
      ...new Set(named.flatMap((each) => (byName.get(each)?.members === 0 ? place(each).waitsFor : [each]))),
    ];
    const level = Math.max(-1, ...waitsFor.map((each) => place(each).level)) + 1;
    const result = { name, waitsFor, names: named, level };
    placed.set(name, result);
    return result;
  };
  // In an order in which each is placed after those that it waits for, so that no chain is too long to be followed.
  for (const name of inOrder(nodes, byName)) place(name);
  return { kind: 'ok', placed };
}

/** The names, each after those that it waits for. There is no circle. */
function inOrder(nodes: readonly Node[], byName: ReadonlyMap<string, Node>): readonly string[] {
  const done = new Set<string>();
  for (const { name: root } of nodes) {
    const open = [root];
    while (open.length > 0) {
      const name = open.at(-1) as string;
      const missing = byName.get(name)?.before.filter((each) => !done.has(each.name)) ?? [];
      if (missing.length === 0 || done.has(name)) {
        done.add(name);
        open.pop();
      } else open.push(...missing.map((each) => each.name));
    }
  }
  return [...done];
}

/** Names that wait for each other, the first again at the end; `undefined` where none do. */
function findCircle(nodes: readonly Node[], byName: ReadonlyMap<string, Node>): readonly string[] | undefined {
  const isFree = new Set<string>(); // no circle is reached from here
  for (const { name: root } of nodes) {
    const path: { readonly name: string; readonly left: string[] }[] = [];
    const onPath = new Set<string>();
    const enter = (name: string): void => {
      onPath.add(name);
      path.push({ name, left: byName.get(name)?.before.map((each) => each.name) ?? [] });
    };
    if (!isFree.has(root)) enter(root);
    while (path.length > 0) {
      const { name, left } = path.at(-1) as (typeof path)[number];
      const next = left.pop();
      if (next === undefined) {
        isFree.add(name);
        onPath.delete(name);
        path.pop();
      } else if (onPath.has(next)) {
        const names = path.map((each) => each.name);
        return [...names.slice(names.indexOf(next)), next];
      } else if (!isFree.has(next)) enter(next);
    }
  }
  return undefined;
}

const invalid = (field: string, reason: string): SubmissionFault => ({ code: 'field-invalid', field, reason });
