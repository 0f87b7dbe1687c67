/** What retention plans: partitions ahead, what to retire, and where to look at single tasks. */
import { describe, expect, test } from '@jest/globals';
import fc from 'fast-check';
import { planRound } from '../../../../services/producer/retention-plan.ts';
import type { Partition } from '../../../../services/producer/retention-plan.ts';
import { readRules } from '../../../../services/producer/retention-rules.ts';
import type { RetentionRules } from '../../../../services/producer/retention-rules.ts';

const DAY = 86_400_000;
const NOW = Date.parse('2030-03-01T12:00:00Z');
const defaults = {
  intervalMs: 60_000,
  succeededMs: 30 * DAY,
  cancelledMs: 30 * DAY,
  deadMs: 90 * DAY,
  replaysMs: 90 * DAY,
  flowsMs: 90 * DAY,
  occurrencesMs: 30 * DAY,
  types: [] as readonly string[],
  spanMs: 0,
};
const rules = readRules(defaults);

const part = (lowerMs: number, upperMs: number, more: Partial<Partition> = {}): Partition => ({
  name: `p_${lowerMs}`,
  lowerMs,
  upperMs,
  rows: 0,
  bytes: 0,
  isHeld: false,
  ...more,
});

/** Makes what is planned, until nothing is left to make. */
function made(nowMs: number, of: RetentionRules = rules, there: readonly Partition[] = []): readonly Partition[] {
  const { make } = planRound(of, there, nowMs);
  return [...there, ...make.map((each) => part(each.lowerMs, each.upperMs, { name: each.name }))].toSorted(
    (a, b) => a.lowerMs - b.lowerMs,
  );
}

describe('rules', () => {
  test('a rule of a type and state is closer than one of the type, wherever it stands', () => {
    const { tasks, shortestMs, ripeMs } = readRules({ ...defaults, types: ['a.b/dead=365d', 'a.b=12h', 'c=7d'] });
    const of = (type: string, state: string) =>
      tasks.find((rule) => rule.type === type && rule.state === state)?.keptMs;
    expect(of('a.b', 'dead')).toBe(365 * DAY);
    expect(of('a.b', 'succeeded')).toBe(DAY / 2);
    expect(of('c', 'expired')).toBe(7 * DAY);
    expect(of('', 'dead')).toBe(90 * DAY);
    expect(shortestMs).toBe(DAY / 2);
    expect(ripeMs).toBe(30 * DAY);
  });

  test.each([
    [0, 30 * DAY, 5 * DAY],
    [DAY, 30 * DAY, DAY],
    [1_000, 30 * DAY, DAY / 2],
    [0, 3_650 * DAY, (3_650 * DAY) / 60],
    [30 * DAY, 60 * DAY, 30 * DAY],
  ])('a span of %d ms at %d ms of retention is %d ms: partitions stay few', (spanMs, succeededMs, expected) => {
    expect(readRules({ ...defaults, spanMs, succeededMs }).spanMs).toBe(expected);
  });
});

describe('partitions ahead', () => {
  test('the first begins an hour from now and ends on the grid; there are two spans ahead', () => {
    const all = made(NOW);
    expect(all[0]?.lowerMs).toBe(NOW + 3_600_000);
    for (const { upperMs } of all) expect(upperMs % (5 * DAY)).toBe(0);
    expect(all.at(-1)?.upperMs).toBeGreaterThanOrEqual(NOW + 10 * DAY);
    expect(planRound(rules, all, NOW).make).toEqual([]);
  });

  test('after weeks without a producer they go on from now, and what was accepted meanwhile stays in the default one', () => {
    const later = NOW + 40 * DAY;
    const { make } = planRound(rules, made(NOW), later);
    expect(make[0]?.lowerMs).toBe(later + 3_600_000);
  });

  test('a gap before one that a clock ahead of time made is filled', () => {
    const far = part(NOW + 6 * DAY, NOW + 8 * DAY);
    const { make } = planRound(rules, [far], NOW);
    expect(make.some(({ upperMs }) => upperMs === far.lowerMs)).toBe(true);
  });

  test('however rounds and spans fall, none overlaps another, and the time from an hour ahead on is covered', () => {
    fc.assert(
      fc.property(
        fc.array(fc.record({ ms: fc.integer({ min: 1, max: 20 * DAY }), span: fc.integer({ min: 1, max: 8 }) }), {
          minLength: 1,
          maxLength: 12,
        }),
        (steps) => {
          let now = NOW;
          let all: readonly Partition[] = [];
          for (const { ms, span } of steps) {
            now += ms;
            all = made(now, { ...rules, spanMs: span * DAY }, all);
            for (const [index, each] of all.entries()) {
              expect(each.upperMs).toBeGreaterThan(each.lowerMs);
              expect(all[index + 1]?.lowerMs ?? Infinity).toBeGreaterThanOrEqual(each.upperMs);
            }
            for (let at = now + 3_600_000; at < now + 2 * span * DAY; at += DAY / 2) {
              expect(all.some(({ lowerMs, upperMs }) => lowerMs <= at && at < upperMs)).toBe(true);
            }
          }
        },
      ),
    );
  });
});

describe('retiring', () => {
  const old = (from: number, to: number, more: Partial<Partition> = {}) => part(NOW - from * DAY, NOW - to * DAY, more);

  test('takes the oldest that are over and lie side by side, with what stayed of those before', () => {
    const rest = old(60, 50, { name: 'tasks_rest_x', rows: 10 });
    const all = [rest, old(50, 45), old(45, 40), old(39, 31), old(31, 26)];
    const { retire, behindMs } = planRound(rules, all, NOW);
    expect(retire?.sources).toEqual([rest, all[1], all[2]].map((each) => each?.name));
    expect(retire).toMatchObject({ lowerMs: NOW - 60 * DAY, upperMs: NOW - 40 * DAY });
    expect(behindMs).toBe(15 * DAY);
  });

  test('leaves what stayed of earlier ones where that is much, what is held, and what is not over', () => {
    const rest = old(60, 50, { name: 'tasks_rest_x', rows: 1_000_000 });
    expect(planRound(rules, [rest, old(50, 45)], NOW).retire?.sources).toHaveLength(1);
    expect(planRound(rules, [old(50, 45, { isHeld: true }), old(34, 29)], NOW).retire).toBeUndefined();
  });
});

test('single tasks are looked at where no partition goes as a whole: in gaps, in what stayed, in what is held', () => {
  const at = (days: number): number => NOW - days * DAY;
  const all = [
    part(at(60), at(50), { name: 'tasks_rest_x' }),
    part(at(50), at(45), { isHeld: true }),
    part(at(45), at(40)),
    part(at(35), at(30)),
  ];
  expect(planRound(rules, all, NOW).walk).toEqual([
    { lowerMs: 0, upperMs: at(60) },
    { lowerMs: at(60), upperMs: at(50) },
    { lowerMs: at(50), upperMs: at(45) },
    { lowerMs: at(40), upperMs: at(35) },
  ]);
  const shorter = readRules({ ...defaults, types: ['x=2d'] });
  expect(planRound(shorter, all, NOW).walk).toEqual([{ lowerMs: 0, upperMs: at(2) }]);
});
