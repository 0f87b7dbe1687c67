/** What handlers say of their progress, as it can be read. */
import { afterAll, beforeAll, expect, test } from '@jest/globals';
import { Progress } from '../../services/worker/progress.ts';
import type { Database } from '../../shared/postgres/pool.ts';
import { newId } from '../../shared/tasks/ids.ts';
import { systemClock } from '../../shared/time/clock.ts';
import { count, once, openFaulty, partDeps, rows } from '../support/core.ts';
import { openDatabase } from '../support/database.ts';
import type { TestDatabase } from '../support/database.ts';
import { eventually } from '../support/eventually.ts';

let opened: TestDatabase;
let db: TestDatabase['database'];
beforeAll(async () => {
  opened = await openDatabase();
  db = opened.database;
});
afterAll(async () => await opened[Symbol.asyncDispose]());

async function openProgress(over: Database = db, failures: string[] = []): Promise<Progress & AsyncDisposable> {
  const progress = new Progress({ ...partDeps, db: over, onFailure: (loop) => failures.push(loop) });
  await progress.start();
  const stop = async (): Promise<void> => await progress.stop(systemClock.monotonicMs() + 2_000);
  return Object.assign(progress, { [Symbol.asyncDispose]: stop });
}

const word = (fraction: number, step?: string, message?: string): Parameters<Progress['say']>[2] => ({
  fraction,
  step,
  message,
});

const stored = async (taskId: string): Promise<unknown> =>
  (
    await rows<object>(
      db,
      'select attempt, fraction::float8 as fraction, step from progress where task_id = $1',
      taskId,
    )
  )[0];

test('of many words the last one is stored, and the next replaces it', async () => {
  await using progress = await openProgress();
  const taskId = newId();
  for (let done = 0; done <= 1_000; done += 1) progress.say(taskId, 1, word(done / 2_000, `row ${done}`));
  await eventually(async () => expect(await stored(taskId)).toEqual({ attempt: 1, fraction: 0.5, step: 'row 1000' }));
  progress.say(taskId, 1, word(1));
  await eventually(async () => expect(await stored(taskId)).toEqual({ attempt: 1, fraction: 1, step: null }));
});

test('a late word of an earlier attempt does not hide how far the current one is', async () => {
  await using progress = await openProgress();
  const taskId = newId();
  progress.say(taskId, 2, word(0.25, 'again'));
  await eventually(async () => expect(await stored(taskId)).toMatchObject({ attempt: 2 }));
  await using other = await openProgress(); // the worker that was taken for dead
  other.say(taskId, 1, word(0.75, 'still there'));
  const seen = newId();
  other.say(seen, 1, word(0));
  await eventually(async () => expect(await stored(seen)).toBeDefined());
  expect(await stored(taskId)).toEqual({ attempt: 2, fraction: 0.25, step: 'again' });
});

test('a word of an attempt that was abandoned in the same worker does not either', async () => {
  await using progress = await openProgress();
  const taskId = newId();
  progress.say(taskId, 2, word(0.25, 'again'));
  progress.say(taskId, 1, word(0.75, 'still there'));
  await eventually(async () => expect(await stored(taskId)).toEqual({ attempt: 2, fraction: 0.25, step: 'again' }));
});

test('more tasks than one statement takes are all stored, and the last words at the stop', async () => {
  const before = await count(db, 'progress');
  const progress = await openProgress();
  const ids = Array.from({ length: 1_200 }, () => newId());
  for (const id of ids) progress.say(id, 1, word(0.5));
  await eventually(async () => expect(await count(db, 'progress')).toBe(before + 1_200));
  for (const id of ids) progress.say(id, 1, word(1, 'done'));
  await progress[Symbol.asyncDispose]();
  expect(await count(db, 'progress', `fraction = 1 and step = 'done'`)).toBe(1_200);
});

test('an outage costs words and nothing else: the next ones are stored', async () => {
  await using faulty = await openFaulty(db);
  faulty.fault = once('store_progress', 'refuse');
  const failures: string[] = [];
  await using progress = await openProgress(faulty, failures);
  const taskId = newId();
  progress.say(taskId, 1, word(0.1, 'lost'));
  await eventually(() => expect(failures).toEqual(['progress']));
  expect(await stored(taskId)).toBeUndefined();
  progress.say(taskId, 1, word(0.2, 'kept'));
  await eventually(async () => expect(await stored(taskId)).toMatchObject({ step: 'kept' }));
});

test('what there is to say of a step is stored beside it', async () => {
  await using progress = await openProgress();
  const taskId = newId();
  progress.say(taskId, 1, word(0.5, 'reading', '17 of 34 pages'));
  await eventually(async () => {
    const [row] = await rows<object>(db, 'select step, message from progress where task_id = $1', taskId);
    expect(row).toEqual({ step: 'reading', message: '17 of 34 pages' });
  });
});

test('a word can be read within a second, whenever it was said', async () => {
  await using progress = await openProgress();
  for (let said = 1; said <= 8; said += 1) {
    const taskId = newId();
    const saidMs = systemClock.monotonicMs();
    progress.say(taskId, 1, word(0.5));
    // oxlint-disable-next-line no-loop-func -- asked within the round
    await eventually(async () => expect(await stored(taskId)).toBeDefined(), { everyMs: 10 });
    expect(systemClock.monotonicMs() - saidMs).toBeLessThan(1_000);
  }
});
