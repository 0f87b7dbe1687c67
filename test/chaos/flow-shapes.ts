/** The shapes of flows of which the load is mixed: what waits for what, what fails, and what the flow does then. */

/** One step, or a group of equal ones. */
export interface StepPlan {
  readonly after?: readonly string[];
  /** Tasks of a group. */
  readonly group?: number;
  /** Milliseconds that each takes. */
  readonly ms?: number;
  /** Attempts that fail, by attempt number; a task has three. */
  readonly failures?: number;
  readonly onFailure?: 'stop' | 'continue' | 'ignore';
  readonly delayMs?: number;
  /** It waits for the signal `go`, so many milliseconds at most. */
  readonly signalMs?: number;
  readonly hasUndo?: boolean;
}

/** A flow, as it is submitted and as the checker knows it. */
export interface FlowPlan {
  readonly onFailure: 'stop' | 'continue' | 'compensate';
  readonly hasFailureStep: boolean;
  readonly steps: Readonly<Record<string, StepPlan>>;
}

type Between = (least: number, most: number) => number;

/** One shape. */
export interface Shape {
  readonly name: string;
  /** How often it is drawn, against the others. */
  readonly weight: number;
  readonly draw: (between: Between) => FlowPlan;
}

/** Task type of all steps. */
export const PART = 'chaos.part';
/** The only signal. */
export const SIGNAL = 'go';
/** Attempts that a task has. */
export const ATTEMPTS = 3;

/** Most succeed; some are tried again, some die until they are replayed, some for good. */
const failuresOf = (between: Between): number => [0, 0, 0, 0, 0, 1, ATTEMPTS, 1_000][between(0, 7)] ?? 0;

/** All shapes. */
export const SHAPES: readonly Shape[] = [
  {
    name: 'chain',
    weight: 4,
    draw: (between) => ({
      onFailure: 'stop',
      hasFailureStep: between(0, 1) === 1,
      steps: {
        a: { ms: between(0, 200) },
        b: { after: ['a'], failures: failuresOf(between) },
        c: { after: ['b'], delayMs: between(1, 500) },
        d: { after: ['c', 'a'] },
      },
    }),
  },
  {
    name: 'joined',
    weight: 4,
    draw: (between) => ({
      onFailure: between(0, 1) === 1 ? 'stop' : 'continue',
      hasFailureStep: between(0, 1) === 1,
      steps: {
        first: {},
        many: { after: ['first'], group: between(2, 8), ms: between(0, 300) },
        beside: { after: ['first'], failures: failuresOf(between), ms: between(0, 200) },
        joined: { after: ['many', 'beside'] },
        apart: { after: ['many'] },
        last: { after: ['joined', 'apart'] },
      },
    }),
  },
  {
    name: 'compensating',
    weight: 3,
    draw: (between) => ({
      onFailure: 'compensate',
      hasFailureStep: between(0, 1) === 1,
      steps: {
        a: { hasUndo: true },
        b: { after: ['a'], hasUndo: true, group: between(1, 3) },
        c: { after: ['b'], hasUndo: true, ms: between(0, 200) },
        d: { after: ['c'], failures: failuresOf(between) },
        e: { after: ['d'] },
      },
    }),
  },
  {
    name: 'signalled',
    weight: 3,
    draw: (between) => ({
      onFailure: 'stop',
      hasFailureStep: false,
      steps: {
        a: { ms: between(0, 300) },
        b: { after: ['a'], signalMs: between(1_500, 6_000) },
        c: { after: ['b'] },
      },
    }),
  },
  {
    name: 'forgiving',
    weight: 2,
    draw: (between) => ({
      onFailure: 'stop',
      hasFailureStep: true,
      steps: {
        a: { failures: failuresOf(between), onFailure: 'ignore' },
        b: { failures: failuresOf(between), onFailure: 'continue' },
        c: { after: ['a'], ms: between(0, 200) },
        d: { after: ['b', 'c'] },
        e: { after: ['c'] },
      },
    }),
  },
];

/** Draws a shape by weight. */
export function drawShape(random: () => number): Shape {
  let left = random() * SHAPES.reduce((sum, { weight }) => sum + weight, 0);
  for (const shape of SHAPES) {
    left -= shape.weight;
    if (left < 0) return shape;
  }
  throw new Error('no shapes');
}

/** Tasks that its steps are. */
export function tasksOf({ steps }: FlowPlan): number {
  return Object.values(steps).reduce((sum, { group = 1 }) => sum + group, 0);
}

/** Body of its start. Each step is given what those before it gave: their task ids, which it writes down. */
export function bodyOf(
  { onFailure, hasFailureStep, steps }: FlowPlan,
  { name, key, journal }: { readonly name: string; readonly key: string; readonly journal: string },
): Readonly<Record<string, unknown>> {
  return {
    name,
    tags: [key],
    onFailure,
    steps: Object.fromEntries(Object.entries(steps).map(([step, plan]) => [step, stepOf(step, plan, journal)])),
    ...(hasFailureStep ? { failureStep: { type: PART, input: { journal } } } : {}),
  };
}

function stepOf(
  name: string,
  { after = [], group, ms = 0, failures = 0, onFailure, delayMs, signalMs, hasUndo = false }: StepPlan,
  journal: string,
): Readonly<Record<string, unknown>> {
  const got = Object.fromEntries(after.map((before) => [before, { $result: before }]));
  const input = { journal, ms, failures, got };
  return {
    type: PART,
    ...(after.length === 0 ? {} : { after }),
    ...(group === undefined ? { input } : { inputs: Array.from({ length: group }, () => input) }),
    ...(onFailure === undefined ? {} : { onFailure }),
    ...(delayMs === undefined ? {} : { delayMs }),
    ...(signalMs === undefined ? {} : { signal: { name: SIGNAL, timeoutMs: signalMs } }),
    ...(hasUndo ? { undo: { type: PART, input: { journal, got: { [name]: { $result: name } } } } } : {}),
  };
}
