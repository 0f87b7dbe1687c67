/** Side effects that are done once, and attempts that settle in a transaction of their own, over the death of their processes. */
import { expect, test } from '@jest/globals';
import { eventually } from '../support/eventually.ts';
import { openFleet } from '../support/fleet.ts';
import type { Fleet, FleetOptions } from '../support/fleet.ts';
import { expectSoundHistory } from '../support/soundness.ts';

const TASKS: FleetOptions = { workers: 1, tasks: ['exactly-once'], env: { WARREN_WORKER_THREADS: '4' } };
/** One task at a time in each worker: whoever ends its process takes no other along. */
const ALONE: FleetOptions = { ...TASKS, workers: 2, queues: 'default:1' };
const charges = (fleet: Fleet, id: string): number[] =>
  fleet
    .entries(id)
    .filter(({ note }) => note === 'charging')
    .map(({ attempt }) => attempt);

/** Keeps two workers alive, until `work` is done. */
async function withReplacements<T>(fleet: Fleet, work: Promise<T>): Promise<T> {
  let isDone = false;
  const done = work.finally(() => (isDone = true));
  while (!isDone) {
    const living = fleet.all('worker').filter(({ exitCode }) => exitCode === undefined);
    if (living.length < 2) await fleet.start('worker').ready();
    await Promise.race([done, fleet.pass(50)]);
  }
  return await done;
}

async function resultOf(fleet: Fleet, id: string): Promise<unknown> {
  const { rows } = await fleet.database.database.query({
    text: 'select result from tasks where id = $1',
    values: [id],
  });
  const [row] = rows as readonly { readonly result: Buffer | null }[];
  return row?.result === null || row?.result === undefined ? undefined : JSON.parse(row.result.toString());
}

const CHARGES = ['fault.charge', 'fault.charge.thread'] as const;
const TRANSFERS = ['fault.transfer', 'fault.transfer.thread'] as const;

test('what was finished is not repeated by later attempts, and what the timeout cut off is reported, in threads too', async () => {
  await using fleet = await openFleet(TASKS);
  const ids = await fleet.submit(
    ...CHARGES.flatMap((type) => Array.from({ length: 25 }, () => ({ type, input: { failures: 2 } }))),
  );
  const stuck = await fleet.submit(...CHARGES.map((type) => ({ type, input: { stuckIn: 1 } })));
  expect(await fleet.ended(60_000)).toMatchObject({ succeeded: 50, dead: 2 });
  for (const id of ids) {
    expect(charges(fleet, id)).toHaveLength(1);
    expect(await resultOf(fleet, id)).toEqual({ charged: charges(fleet, id)[0] });
  }
  for (const id of stuck) {
    expect(charges(fleet, id)).toEqual([1]);
    const attempts = await fleet.attempts(id);
    expect(attempts.map(({ outcome }) => outcome)).toEqual(['timeout', 'failed']);
    expect(attempts[1]?.error_message).toContain('begun and not finished');
  }
}, 360_000);

test('a side effect whose process was killed in the middle is reported, and done again only where its author says so', async () => {
  await using fleet = await openFleet(ALONE);
  const modes = ['fail', 'again', 'done'] as const;
  const ids = await fleet.submit(
    ...CHARGES.flatMap((type) => modes.map((ifUnknown) => ({ type, input: { killedIn: 1, ifUnknown } }))),
  );
  await withReplacements(fleet, fleet.ended(90_000));
  const letters = await fleet.deadLetters();
  expect(letters).toHaveLength(CHARGES.length);
  for (const index of CHARGES.keys()) {
    const [reported = '', again = '', done = ''] = ids.slice(index * modes.length);
    expect(charges(fleet, reported)).toEqual([1]);
    expect((await fleet.task(reported)).state).toBe('dead');
    expect(letters).toContainEqual(expect.objectContaining({ task_id: reported, reason: 'non_retryable' }));
    expect(charges(fleet, again)).toEqual([1, 2]);
    expect(await resultOf(fleet, again)).toEqual({ charged: 2 });
    expect(charges(fleet, done)).toEqual([1]);
    expect(await resultOf(fleet, done)).toEqual({ charged: -1 });
  }
  await expectSoundHistory(fleet);
}, 360_000);

async function openEffects(options: Partial<FleetOptions> = {}): Promise<Fleet> {
  const fleet = await openFleet({ ...TASKS, ...options });
  await fleet.database.database.query({
    text: 'create table public.effects (task_id uuid not null, attempt integer not null)',
  });
  return fleet;
}

/** Attempts of a task whose writes were committed. */
async function effectsOf(fleet: Fleet, id: string): Promise<number[]> {
  const { rows } = await fleet.database.database.query({
    text: 'select attempt from public.effects where task_id = $1 order by attempt',
    values: [id],
  });
  return (rows as readonly { readonly attempt: number }[]).map(({ attempt }) => attempt);
}

test('invariant 2: an attempt that dies before or after its commit has its data exactly once, in a thread too', async () => {
  await using fleet = await openEffects(ALONE);
  const hows = [
    ['dies before the commit', 2],
    ['dies after the commit', 1],
  ] as const;
  const wanted = TRANSFERS.flatMap((type) => hows.map(([how, winner]) => ({ type, how, winner })));
  const ids = await fleet.submit(
    ...wanted.map(({ type, how }) => ({ type, input: { database: fleet.database.url, how } })),
  );
  // The delivery that nobody acked comes again, finds the task settled, and runs nothing.
  await withReplacements(fleet, fleet.ended(90_000));
  for (const [index, { how, winner }] of wanted.entries()) {
    const id = ids[index] ?? '';
    expect({ how, effects: await effectsOf(fleet, id) }).toEqual({ how, effects: [winner] });
    expect(await fleet.task(id)).toMatchObject({ state: 'succeeded', attempt: winner, lost_attempts: winner - 1 });
    expect(await resultOf(fleet, id)).toEqual({ settledBy: winner });
    expect(fleet.entries(id).filter(({ event }) => event === 'started')).toHaveLength(winner);
  }
  await expectSoundHistory(fleet);
}, 360_000);

test('an attempt settles once, whatever its handler does around the commit, in a thread too', async () => {
  await using fleet = await openEffects();
  const hows = [
    'commits',
    'throws before the commit',
    'throws after the commit',
    'rolls back and returns',
    'is stuck before the commit',
    'is stuck after the commit',
    'returns before the commit',
  ] as const;
  const wanted = TRANSFERS.flatMap((type) => hows.map((how) => ({ type, how })));
  const ids = await fleet.submit(
    ...wanted.map(({ type, how }) => ({ type, input: { database: fleet.database.url, how } })),
  );
  expect(await fleet.ended(90_000)).toMatchObject({ accepted: wanted.length, succeeded: wanted.length });
  for (const [index, { how }] of wanted.entries()) {
    const id = ids[index] ?? '';
    const effects = await effectsOf(fleet, id);
    // Which attempt it was is a matter of how fast the machine is; data and result are always of the same one.
    const [winner] = effects;
    const agreed = winner === undefined ? { settledBy: 'return' } : { settledBy: winner };
    expect({ how, result: await resultOf(fleet, id) }).toEqual({ how, result: agreed });
    expect(effects.length).toBeLessThanOrEqual(1);
    const isUndone = how === 'throws before the commit' || how === 'is stuck before the commit';
    expect({ how, isUndone: isUndone && effects.includes(1) }).toEqual({ how, isUndone: false });
  }
  await expectSoundHistory(fleet);
}, 360_000);

test('invariant 2: of 50 attempts that settle in transactions of their own while their worker is killed, each has its data once', async () => {
  await using fleet = await openEffects({ workers: 2, queues: 'default:16' });
  const type = 'fault.transfer';
  const hows = ['commits', 'throws before the commit', 'throws after the commit', 'is stuck after the commit'] as const;
  const ids = await fleet.submit(
    ...Array.from({ length: 50 }, (_, index) => ({
      type,
      input: { database: fleet.database.url, how: hows[index % hows.length] ?? 'commits' },
    })),
  );
  await eventually(() => expect(fleet.entries().length).toBeGreaterThan(5));
  await fleet.worker(0).kill();
  const books = await fleet.ended(60_000);
  expect(books).toMatchObject({ accepted: 50, succeeded: 50, dead: 0 });
  for (const id of ids) {
    const effects = await effectsOf(fleet, id);
    expect(effects).toHaveLength(1);
    expect(await resultOf(fleet, id)).toEqual({ settledBy: effects[0] });
  }
  await expectSoundHistory(fleet);
}, 360_000);
