/** How many workers a queue wants. */
import { expect, test } from '@jest/globals';
import { workersWanted } from '../../../../services/producer/workers-wanted.ts';
import type { ScalingAim, ScalingFigures } from '../../../../services/producer/workers-wanted.ts';

const QUIET: ScalingFigures = {
  waiting: 0,
  running: 0,
  arrivalPerSecond: 0,
  meanRunSeconds: 1,
  slotsPerWorker: 10,
  workers: 0,
  mostRunning: undefined,
  starts: true,
};
const AIM: ScalingAim = { sloSeconds: 30, startSeconds: 30, min: 0, max: 50 };
const wanted = (figures: Partial<ScalingFigures>, aim: Partial<ScalingAim> = {}): number =>
  workersWanted({ ...QUIET, ...figures }, { ...AIM, ...aim }).workersWanted;

test('a queue with nothing wants nobody, and the first task wants a worker', () => {
  expect(wanted({ workers: 3 })).toBe(0);
  expect(wanted({ waiting: 1 })).toBe(1);
  expect(wanted({ running: 1, workers: 1 })).toBe(1);
  expect(wanted({ arrivalPerSecond: 0.1 })).toBe(1);
});

test('short tasks want as many slots as start what waits in half of the target', () => {
  // 3 000 of 0.1 s: 300 s of work, in 30.1 s
  expect(workersWanted({ ...QUIET, waiting: 3_000, meanRunSeconds: 0.1 }, { ...AIM, sloSeconds: 60 })).toEqual({
    workersWanted: 1,
    slotsWanted: 10,
    why: '3000 tasks of 0.1 s wait, to be started within 30 s',
  });
});

test('where new workers take up much of the target, what waits is to be started in what is left of it, at least in a quarter', () => {
  const waiting = { waiting: 3_000, meanRunSeconds: 0.1 };
  expect(workersWanted({ ...QUIET, ...waiting }, { ...AIM, sloSeconds: 40 }).why).toContain('within 10 s');
  expect(workersWanted({ ...QUIET, ...waiting }, AIM).why).toContain('within 7.5 s');
  expect(wanted(waiting)).toBe(4);
});

test('tasks that take longer than the target want a slot each, and no more than that', () => {
  expect(wanted({ waiting: 20, meanRunSeconds: 3_600 })).toBe(2);
  expect(wanted({ waiting: 20, running: 10, meanRunSeconds: 3_600, workers: 1 })).toBe(3);
  // ten that came in within a minute are not ten every minute for an hour
  expect(wanted({ waiting: 10, arrivalPerSecond: 10 / 60, meanRunSeconds: 3_600 })).toBe(2);
});

test('a steady load wants the slots that it keeps busy, and room for chance', () => {
  // Erlang C: 100 busy slots; 95 % wait less than a second with 101 or a few more, with no wait allowed it takes 115 to 120
  const figures = { arrivalPerSecond: 100, meanRunSeconds: 1, running: 100, slotsPerWorker: 1 };
  expect(wanted(figures, { sloSeconds: 30, max: 500 })).toBe(101);
  const strict = wanted(figures, { sloSeconds: 0.01, max: 500 });
  expect(strict).toBeGreaterThan(115);
  expect(strict).toBeLessThan(121);
});

test('what cannot be told is taken for the worst that helps: a slot for each task', () => {
  expect(workersWanted({ ...QUIET, waiting: 35, running: 10, workers: 1, meanRunSeconds: undefined }, AIM)).toEqual({
    workersWanted: 5,
    slotsWanted: 45,
    why: 'nobody knows how long runs take: a slot for each of 45 tasks',
  });
});

test('while RabbitMQ does not say what waits nobody is sent away', () => {
  const { workersWanted: stays, why } = workersWanted({ ...QUIET, waiting: undefined, workers: 7 }, AIM);
  expect([stays, why]).toEqual([7, 'RabbitMQ does not say what waits: no fewer than there are']);
  expect(wanted({ waiting: undefined, running: 90, workers: 7 })).toBe(9);
});

test('a paused queue wants what runs to end, whatever waits', () => {
  const paused = { starts: false, waiting: 5_000, running: 12, workers: 9 };
  expect(wanted(paused)).toBe(2);
  expect(wanted({ ...paused, running: 0 }, { min: 1 })).toBe(1);
});

test('beyond the limits of its task types no worker is wanted', () => {
  const { workersWanted: few, why } = workersWanted({ ...QUIET, waiting: 5_000, mostRunning: 4 }, AIM);
  expect(few).toBe(1);
  expect(why).toContain('let 4 run at once');
  expect(wanted({ waiting: 5_000, mostRunning: 4, running: 25, workers: 3 })).toBe(3);
});

test('the answer keeps to its bounds and says so', () => {
  const most = workersWanted({ ...QUIET, waiting: 1_000_000, meanRunSeconds: 10 }, AIM);
  expect([most.workersWanted, most.why.endsWith('; at most 50')]).toEqual([50, true]);
  const least = workersWanted(QUIET, { ...AIM, min: 2 });
  expect([least.workersWanted, least.why]).toEqual([2, 'nothing waits, runs or arrives; at least 2']);
});

test('a fleet shrinks only where the smaller one has something to spare', () => {
  expect(wanted({ running: 95, workers: 11 })).toBe(11);
  expect(wanted({ running: 80, workers: 11 })).toBe(10);
  expect(wanted({ running: 20, workers: 11 })).toBe(3);
});
