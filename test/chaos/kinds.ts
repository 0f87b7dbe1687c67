/** The kinds of tasks of which the load is mixed, and how each has to end. */

/** One kind. */
export interface Kind {
  readonly name: string;
  /** How often it is drawn, against the other kinds. */
  readonly weight: number;
  /** Task type. */
  readonly type: string;
  /**
   * The end that its handler brings about. A task whose handler succeeds may still be dead as `worker_lost`; `refused` never
   * becomes a task. With a deadline it may expire.
   */
  readonly ends: 'succeeded' | 'dead' | 'refused';
  /** The only door that it takes; absent: both. */
  readonly door?: 'amqp';
  /** True where it takes its worker with it: not drawn towards the end, since each costs the end a lease time and more. */
  readonly killsWorker?: true;
  /** Milliseconds until it may start, milliseconds until it must have, and the input without its journal. */
  readonly draw: (between: (least: number, most: number) => number) => {
    readonly delayMs?: number;
    readonly deadlineMs?: number;
    readonly input: Readonly<Record<string, unknown>>;
  };
}

/** Tasks of the limited type that run at once under a key. */
export const MOST_AT_ONCE = 2;

/** Some of them are more than a row holds. */
const LARGE_ROW = 'a row of a large input, which goes to the store of files '.repeat(2);

/** All kinds. Those that kill their worker are rare: each takes with it whatever else runs there. */
export const KINDS: readonly Kind[] = [
  { name: 'fast', weight: 40, type: 'fault.step', ends: 'succeeded', draw: () => ({ input: {} }) },
  {
    name: 'slow',
    weight: 22,
    type: 'fault.step',
    ends: 'succeeded',
    draw: (between) => ({ input: { ms: between(100, 600) } }),
  },
  {
    name: 'long',
    weight: 1.5,
    type: 'fault.step',
    ends: 'succeeded',
    draw: (between) => ({ input: { ms: between(4_000, 7_000) } }),
  },
  {
    name: 'flaky',
    weight: 12,
    type: 'fault.step',
    ends: 'succeeded',
    draw: (between) => ({ input: { ms: between(0, 50), failures: 1 } }),
  },
  { name: 'failing', weight: 4, type: 'fault.step', ends: 'dead', draw: () => ({ input: { failures: 1_000 } }) },
  {
    name: 'delayed',
    weight: 10,
    type: 'fault.step',
    ends: 'succeeded',
    draw: (between) => ({ input: {}, delayMs: between(200, 2_000) }),
  },
  {
    name: 'hurried',
    weight: 5,
    type: 'fault.step',
    ends: 'succeeded',
    draw: (between) => ({ input: { ms: between(0, 200) }, deadlineMs: between(300, 3_000) }),
  },
  {
    name: 'threaded',
    weight: 4,
    type: 'chaos.threaded',
    ends: 'succeeded',
    draw: (between) => ({ input: { ms: between(0, 50) } }),
  },
  {
    name: 'limited',
    weight: 6,
    type: 'chaos.limited',
    ends: 'succeeded',
    draw: (between) => ({ input: { ms: between(0, 150), tenant: ['a', 'b', 'c'][between(0, 2)] } }),
  },
  {
    name: 'large',
    weight: 4,
    type: 'chaos.large',
    ends: 'succeeded',
    draw: (between) => ({
      input: { tenant: 'b', rows: Array.from({ length: between(50, 90) }, (_row, n) => LARGE_ROW + n) },
    }),
  },
  {
    name: 'malformed',
    weight: 2,
    type: 'fault.step',
    ends: 'refused',
    door: 'amqp',
    draw: () => ({ input: { ms: -1 } }),
  },
  {
    name: 'crashing',
    weight: 0.25,
    type: 'chaos.crash',
    ends: 'succeeded',
    killsWorker: true,
    draw: () => ({ input: { crashes: 1 } }),
  },
  { name: 'deadly', weight: 0.03, type: 'fault.suicide', ends: 'dead', killsWorker: true, draw: () => ({ input: {} }) },
];

/** The kind of this name. Throws where there is none. */
export function kindOf(name: string): Kind {
  const kind = KINDS.find((each) => each.name === name);
  if (kind === undefined) throw new Error(`no kind ${name}`);
  return kind;
}

/** Draws a kind by weight. */
export function drawKind(kinds: readonly Kind[], random: () => number): Kind {
  let left = random() * kinds.reduce((sum, { weight }) => sum + weight, 0);
  for (const kind of kinds) {
    left -= kind.weight;
    if (left < 0) return kind;
  }
  throw new Error('no kinds');
}
