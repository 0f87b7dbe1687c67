/** The examples of Kubernetes' documentation, worked out by the module that simulates it. */
import { describe, expect, test } from '@jest/globals';
import { DEFAULT_BEHAVIOR, NO_MEMORY, replicasForMetrics, sync } from '../../scale-sim/hpa.ts';
import type { Behavior, Memory, ScalingRules } from '../../scale-sim/hpa.ts';

const STEADY: ScalingRules = { stabilizationWindowSeconds: 0, policies: [], selectPolicy: 'Max' };
const behaviorOf = (scaleDown: Partial<ScalingRules>, scaleUp: Partial<ScalingRules> = {}): Behavior => ({
  scaleUp: { ...DEFAULT_BEHAVIOR.scaleUp, ...scaleUp },
  scaleDown: { ...STEADY, ...scaleDown },
});

interface Step {
  readonly behavior?: Behavior;
  readonly memory?: Memory;
  readonly atSeconds?: number;
  readonly min?: number;
}

const towards = (current: number, wanted: number, options: Step = {}): ReturnType<typeof sync> =>
  sync({
    atSeconds: 1_000,
    current,
    min: 1,
    max: 1_000,
    metrics: [{ value: wanted, averageTarget: 1 }],
    behavior: DEFAULT_BEHAVIOR,
    memory: NO_MEMORY,
    ...options,
  });

/** The replicas at each of some syncs, so many seconds apart. */
function followed(current: number, wanted: number, behavior: Behavior, syncs: number, everySeconds: number): number[] {
  const seen = [current];
  let memory = NO_MEMORY;
  for (let n = 0; n < syncs; n += 1) {
    const step = towards(seen.at(-1) ?? 0, wanted, { behavior, memory, atSeconds: n * everySeconds });
    ({ memory } = step);
    seen.push(step.replicas);
  }
  return seen;
}

describe('metrics', () => {
  test('200m of a target of 100m doubles the replicas, 50m halves them', () => {
    expect(replicasForMetrics(4, [{ value: 4 * 200, averageTarget: 100 }])).toBe(8);
    expect(replicasForMetrics(4, [{ value: 4 * 50, averageTarget: 100 }])).toBe(2);
  });

  test('a ratio within a tenth of 1 changes nothing', () => {
    expect(replicasForMetrics(10, [{ value: 109, averageTarget: 10 }])).toBe(10);
    expect(replicasForMetrics(10, [{ value: 9, averageTarget: 1 }])).toBe(10);
    expect(replicasForMetrics(10, [{ value: 12, averageTarget: 1 }])).toBe(12);
  });

  test('of several metrics the greatest number counts', () => {
    expect(
      replicasForMetrics(2, [
        { value: 30, averageTarget: 10 },
        { value: 5, averageTarget: 1 },
      ]),
    ).toBe(5);
  });

  test('a metric that cannot be had stops shrinking, not growing', () => {
    const missing = { value: undefined, averageTarget: 1 };
    expect(replicasForMetrics(4, [missing, { value: 2, averageTarget: 1 }])).toBe(4);
    expect(replicasForMetrics(4, [missing, { value: 9, averageTarget: 1 }])).toBe(9);
    expect(replicasForMetrics(4, [missing])).toBe(4);
  });
});

describe('policies', () => {
  const BOTH = behaviorOf({
    policies: [
      { type: 'Pods', value: 4, periodSeconds: 60 },
      { type: 'Percent', value: 10, periodSeconds: 60 },
    ],
  });

  test('80 replicas to 10 by 4 pods or 10 % a minute: 8 go, then 8 of 72, and 4 at a time below 40', () => {
    const [first, second, third, ...others] = followed(80, 10, BOTH, 30, 60);
    expect([first, second, third]).toEqual([80, 72, 64]);
    const below = others.filter((each) => each < 40);
    expect(below.slice(0, 3).map((each, index) => each - (below[index + 1] ?? 0))).toEqual([4, 4, 4]);
    expect(below.at(-1)).toBe(10);
  });

  test('what a policy allows in its period is allowed once, however many syncs there are in it', () => {
    expect(followed(80, 10, BOTH, 4, 15)).toEqual([80, 72, 72, 72, 72]);
  });

  test('Min takes the policy of the smallest change: 5 pods of 10 % of 100', () => {
    const policies = [
      { type: 'Percent', value: 10, periodSeconds: 60 },
      { type: 'Pods', value: 5, periodSeconds: 60 },
    ] as const;
    expect(towards(100, 10, { behavior: behaviorOf({ policies, selectPolicy: 'Min' }) }).replicas).toBe(95);
    expect(towards(100, 10, { behavior: behaviorOf({ policies }) }).replicas).toBe(90);
  });

  test('Disabled takes nothing away', () => {
    expect(towards(9, 1, { behavior: behaviorOf({ selectPolicy: 'Disabled' }) }).replicas).toBe(9);
  });

  test('by default 4 pods or as many again are added every 15 seconds', () => {
    expect(followed(1, 100, DEFAULT_BEHAVIOR, 4, 15)).toEqual([1, 5, 10, 20, 40]);
  });
});

describe('stabilisation', () => {
  test('shrinking takes the highest recommendation of five minutes', () => {
    const memory: Memory = { ...NO_MEMORY, recommendations: [{ atSeconds: 800, replicas: 7 }] };
    expect(towards(9, 2, { memory }).replicas).toBe(7);
    expect(towards(9, 2, { memory, atSeconds: 1_101 }).replicas).toBe(2);
  });

  test('growing takes the lowest recommendation of its window', () => {
    const behavior = behaviorOf({}, { stabilizationWindowSeconds: 60 });
    const memory: Memory = { ...NO_MEMORY, recommendations: [{ atSeconds: 970, replicas: 3 }] };
    expect(towards(2, 6, { memory, behavior }).replicas).toBe(3);
    expect(towards(2, 6, { memory, behavior, atSeconds: 1_031 }).replicas).toBe(6);
  });
});

test('the bounds hold last, and a target that was scaled to zero is left alone', () => {
  expect(
    towards(5, 0, { behavior: behaviorOf({ policies: [{ type: 'Percent', value: 100, periodSeconds: 15 }] }), min: 2 })
      .replicas,
  ).toBe(2);
  expect(towards(0, 9).replicas).toBe(0);
});
