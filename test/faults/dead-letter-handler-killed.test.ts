/** A dead-letter-handler that dies while it records, and while an operator replays. */
import { expect, test } from '@jest/globals';
import { call } from '../../scripts/call.ts';
import { eventually } from '../support/eventually.ts';
import { openFleet } from '../support/fleet.ts';
import type { Fleet } from '../support/fleet.ts';

const TASKS = 150;
const doomed = { input: { failures: 1 }, maxAttempts: 1 };

test('invariant 4: a handler killed while it records leaves one letter per death, each with its evidence', async () => {
  await using fleet = await openFleet({ queues: 'default:20', env: { WARREN_DEAD_LETTERS_PREFETCH: '40' } });
  await fleet.submit(...Array.from({ length: TASKS }, () => doomed));
  expect(await fleet.ended()).toMatchObject({ accepted: TASKS, dead: TASKS, letters: TASKS });
  // First it dies with deliveries that it holds and cannot record yet, then in full flight.
  const locked = await lockLetters(fleet);
  const [first, second] = [fleet.start('dead-letter-handler'), fleet.start('dead-letter-handler')];
  await eventually(async () => expect(await locked.waiting()).toBeGreaterThan(0), { withinMs: 20_000 });
  await first.kill();
  locked.release();
  await eventually(async () => expect(await recorded(fleet)).toBeGreaterThan(0), { withinMs: 20_000 });
  await second.kill();
  await fleet.start('dead-letter-handler').ready();

  await eventually(async () => expect(await recorded(fleet)).toBe(TASKS));
  const letters = await fleet.deadLetters();
  expect(new Set(letters.map(({ task_id: taskId }) => taskId)).size).toBe(TASKS);
  expect(letters).toHaveLength(TASKS);
  for (const letter of letters)
    expect(letter).toMatchObject({ kind: 'task', reason: 'attempts_exhausted', attempt: 1 });
  expect(letters.filter(({ evidence_key: key }) => key === null)).toEqual([]);
});

test('invariant 5: replays pressed while handlers are killed make exactly one new run per letter', async () => {
  await using fleet = await openFleet({ deadLetterHandlers: 2, queues: 'default:20' });
  await fleet.submit(...Array.from({ length: TASKS }, () => doomed));
  await fleet.ended();
  const letters = (await fleet.deadLetters()).map(({ id }) => id);
  const killing = eventually(async () => {
    expect((await fleet.deadLetters()).filter(({ state }) => state === 'replayed').length).toBeGreaterThan(20);
  }).then(async () => await fleet.deadLetterHandler(0).kill());
  await Promise.all([press(fleet, 0, letters), press(fleet, 1, letters.toReversed()), killing]);
  await fleet.start('dead-letter-handler').ready();
  await press(fleet, 2, letters);
  await fleet.makeDue();

  await eventually(async () => expect(await fleet.books()).toMatchObject({ dead: 0, succeeded: TASKS }), {
    withinMs: 20_000,
  });
  expect((await fleet.tasks()).map(({ attempt }) => attempt)).toEqual(Array(TASKS).fill(2));
  const after = await fleet.deadLetters();
  expect(after).toHaveLength(TASKS);
  expect(new Set(after.map(({ state }) => state))).toEqual(new Set(['replayed']));
  expect(fleet.entries().filter(({ event }) => event === 'started')).toHaveLength(2 * TASKS);
});

/** Letters whose evidence has come. */
async function recorded(fleet: Fleet): Promise<number> {
  return (await fleet.deadLetters()).filter(({ recorded_at: at }) => at !== null).length;
}

/** Presses replay on every letter, by a handler that may die meanwhile. Whoever comes second is told 409. */
async function press(fleet: Fleet, handler: number, letters: readonly string[]): Promise<void> {
  const { url } = fleet.deadLetterHandler(handler);
  for (const id of letters) {
    const answer = await call(url, 'POST', `/v1/dead-letters/${id}/replay`, {}).catch(() => undefined);
    if (answer === undefined) return; // killed
    expect([200, 202, 409]).toContain(answer.status);
  }
}

interface LockedLetters {
  /** Sessions that wait for them. */
  waiting(): Promise<number>;
  release(): void;
}

/** Holds every letter's row, so that nobody can write to it. */
async function lockLetters(fleet: Fleet): Promise<LockedLetters> {
  const { database } = fleet.database;
  const holder = await database.checkOut();
  await holder.query({ text: 'begin' });
  // It stands idle for as long as processes take to start.
  await holder.query({ text: 'set local idle_in_transaction_session_timeout = 0' });
  await holder.query({ text: 'select id from dead_letters for update' });
  return {
    release: () => holder.release(true),
    waiting: async () => {
      const text = `select pid from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'`;
      return (await database.query({ text })).rows.length;
    },
  };
}
