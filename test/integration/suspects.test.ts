/** A task whose workers died runs alone in its worker, and whatever cuts its wait short strands neither it nor the others. */
import { afterAll, beforeAll, expect, test } from '@jest/globals';
import type { Outcome } from '../../shared/tasks/outcome.ts';
import { systemClock } from '../../shared/time/clock.ts';
import { count, once, openFaulty, readTask, rows } from '../support/core.ts';
import { eventually } from '../support/eventually.ts';
import { inviteTask, openIntake, succeeded } from '../support/intake.ts';
import type { TestIntake } from '../support/intake.ts';
import { openWork } from '../support/work.ts';
import type { TestWork } from '../support/work.ts';

let work: TestWork;
beforeAll(async () => {
  work = await openWork();
});
afterAll(async () => await work[Symbol.asyncDispose]());

/** A worker in which one task runs until it is let go, a suspect waits to run alone, and a third task waits for the suspect. */
interface Scene extends AsyncDisposable {
  readonly open: TestIntake;
  readonly beside: string;
  readonly suspect: string;
  readonly late: string;
  /** Lets the task that runs end. */
  readonly release: () => void;
}

async function openScene(over: TestWork = work): Promise<Scene> {
  let release: () => void = () => undefined;
  const held = async (): Promise<Outcome> =>
    await new Promise((resolve) => {
      release = () => resolve(succeeded);
    });
  const open = await openIntake(over, { handlers: { 'test.held': held, 'test.noop': () => succeeded } });
  const beside = await inviteTask(work, { type: 'test.held' });
  await eventually(() => expect(open.started).toEqual([beside]));
  const suspect = await inviteTask(work, { lostAttempts: 2 });
  await eventually(() => expect(open.isolation.isClosed).toBe(true));
  const late = await inviteTask(work);
  await eventually(() => expect(open.isolation.longestWaitMs).toBeGreaterThan(0));
  expect(open.started).toEqual([beside]);
  return {
    open,
    beside,
    suspect,
    late,
    release: () => release(),
    [Symbol.asyncDispose]: async () => {
      release();
      await open[Symbol.asyncDispose]();
    },
  };
}

const markedAlone = async (id: string): Promise<number> => await count(work.db, 'claims', `alone = '${id}'`);
const outcomesOf = async (id: string): Promise<string[]> =>
  (
    await rows<{ outcome: string }>(work.db, 'select outcome from attempts where task_id = $1 order by attempt', id)
  ).map(({ outcome }) => outcome);

test('a suspect starts when what ran beside it has ended, and what came later starts after it', async () => {
  await using scene = await openScene();
  const { open, beside, suspect, late } = scene;
  scene.release();
  await eventually(() => expect(open.started).toEqual([beside, suspect, late]));
  await eventually(() => expect([...open.settled.values()]).toEqual(['succeeded', 'succeeded', 'succeeded']));
});

test.each([
  [0, 1],
  [1, 0],
])('beside %i handlers that ignore their abort, a suspect counts as alone %i times', async (abandoned, times) => {
  let release: () => void = () => undefined;
  const held = async (): Promise<Outcome> =>
    await new Promise((resolve) => {
      release = () => resolve(succeeded);
    });
  await using open = await openIntake(work, { handlers: { 'test.held': held } });
  open.abandonedHandlers = abandoned;
  const suspect = await inviteTask(work, { type: 'test.held', lostAttempts: 2 });
  await eventually(() => expect(open.started).toEqual([suspect]));
  expect(await markedAlone(suspect)).toBe(times);
  release();
  await eventually(() => expect(open.settled.get(suspect)).toBe('succeeded'));
});

test('cancelled while it waits, a suspect ends without a start, and the others go on at once', async () => {
  await using scene = await openScene();
  const { open, beside, suspect, late } = scene;
  expect(open.isolation.abort(suspect, 'cancel')).toBe(true);
  await eventually(() => expect(open.settled.get(suspect)).toBe('cancelled'));
  await eventually(() => expect(open.settled.get(late)).toBe('succeeded'));
  expect(open.started).toEqual([beside, late]);
  expect([await outcomesOf(suspect), await markedAlone(suspect)]).toEqual([['cancelled'], 0]);
});

test('a worker that stops hands its waiting suspect back, uncounted, and invites anew what waited for it', async () => {
  await using scene = await openScene();
  const { open, beside, suspect, late } = scene;
  await open.intake.drain(systemClock.monotonicMs() + 10_000);
  await eventually(() => expect(open.settled.get(suspect)).toBe('pending'));
  expect(await readTask(work.db, suspect)).toMatchObject({ attempt: 1, failures: 0, lost_attempts: 2, lost_alone: 0 });
  expect(await outcomesOf(suspect)).toEqual(['interrupted']);
  expect(await readTask(work.db, late)).toMatchObject({ state: 'pending', attempt: 0 });
  scene.release();
  await open.intake.stop(systemClock.monotonicMs() + 10_000);
  expect(open.settled.get(beside)).toBe('succeeded');
  expect(open.started).toEqual([beside]);
  expect(await work.invitations(1)).toContain(late);
});

test('with its lease lost, a worker starts no suspect that waits, and its claim is given up', async () => {
  await using scene = await openScene();
  const { open, beside, suspect, late } = scene;
  open.isolation.abortAll('lease');
  await eventually(() => expect(open.settled.get(suspect)).toBe('pending'));
  await eventually(() => expect(open.settled.get(late)).toBe('succeeded'));
  expect(open.started).toEqual([beside, late]);
  expect([await outcomesOf(suspect), await markedAlone(suspect)]).toEqual([['interrupted'], 0]);
  await work.take();
});

test('a suspect whose turn comes after its lease was taken away does not start', async () => {
  await using scene = await openScene();
  const { open, beside, suspect } = scene;
  await work.db.query({ text: 'delete from leases where worker = $1', values: [open.worker.workerId] });
  scene.release();
  await eventually(() => expect(open.settled.get(suspect)).toBe('pending'));
  expect(open.started).toEqual([beside]);
  expect(await outcomesOf(suspect)).toEqual(['interrupted']);
  open.worker.claims.giveUp(); // what came later waits for a lease, and in this test nobody takes one
  await open[Symbol.asyncDispose]();
  await work.take();
});

test('where Postgres does not take the word that it runs alone, a suspect is put off and costs nothing', async () => {
  await using faulty = await openFaulty(work.db);
  faulty.fault = once('mark_alone', 'refuse');
  await using scene = await openScene({ ...work, db: faulty });
  const { open, beside, suspect, late } = scene;
  scene.release();
  await eventually(() => expect(open.settled.get(suspect)).toBe('scheduled'));
  await eventually(() => expect(open.settled.get(late)).toBe('succeeded'));
  expect(open.started).toEqual([beside, late]);
  expect(await readTask(work.db, suspect)).toMatchObject({ failures: 0, lost_attempts: 2, lost_alone: 0 });
});
