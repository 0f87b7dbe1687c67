/** A handler that takes its process with it: out of memory, a crash in native code. */
import { expect, test } from '@jest/globals';
import { eventually } from '../support/eventually.ts';
import { openFleet } from '../support/fleet.ts';
import type { Fleet } from '../support/fleet.ts';

// Decision 0012: two lost attempts make it a suspect, then three lost alone make it dead.
const STARTS = [1, 2, 3, 4, 5];

test('a handler that kills its process starts five times, then its task is dead, and the fleet goes on', async () => {
  await using fleet = await openFleet({
    workers: 2,
    tasks: ['well-behaved', 'ill-behaved'],
    deadLetterHandlers: 1,
  });
  const [poison = ''] = await fleet.submit({ type: 'fault.suicide', maxAttempts: 10 });
  const [, served] = await Promise.all([replaceTheDead(fleet, STARTS.length), serve(fleet)]);
  expect(served).toEqual(['succeeded', 'succeeded', 'succeeded']);

  await expectDeath(fleet, poison);
  expect(await fleet.run()).toBe('succeeded');
  await fleet.ended();
}, 270_000);

test('among 300 good tasks, one that kills its worker is the only one that dies of it, whoever runs beside it', async () => {
  await using fleet = await openFleet({
    workers: 2,
    tasks: ['well-behaved', 'ill-behaved'],
    deadLetterHandlers: 1,
    env: { WARREN_WORKER_PREFETCH: '20' },
  });
  const long = await fleet.submit(...Array.from({ length: 6 }, () => ({ input: { ms: 1_500 } })));
  await eventually(() => expect(fleet.entries()).toHaveLength(6));
  const [poison = ''] = await fleet.submit({ type: 'fault.suicide', maxAttempts: 10, priority: 9 });
  const short = await fleet.submit(...Array.from({ length: 294 }, () => ({ input: { ms: 20 } })));
  await replaceTheDead(fleet, STARTS.length);

  await expectDeath(fleet, poison);
  expect(await fleet.ended()).toMatchObject({ accepted: 301, succeeded: 300, dead: 1, dropped: 0, letters: 1 });
  for (const id of [...long, ...short])
    expect(await fleet.task(id)).toMatchObject({ state: 'succeeded', lost_alone: 0 });
  // Somebody did run beside it, or this test shows nothing.
  const beside = (await fleet.attempts()).filter((attempt) => attempt.task_id !== poison && attempt.outcome === 'lost');
  expect(beside.length).toBeGreaterThan(0);
}, 360_000);

async function expectDeath(fleet: Fleet, poison: string): Promise<void> {
  await eventually(
    async () =>
      expect(await fleet.task(poison)).toMatchObject({
        state: 'dead',
        lost_attempts: STARTS.length,
        lost_alone: 3,
        failures: 0,
      }),
    { withinMs: 20_000 },
  );
  expect(fleet.entries(poison).map(({ attempt }) => attempt)).toEqual(STARTS);
  expect((await fleet.attempts(poison)).map(({ outcome }) => outcome)).toEqual(STARTS.map(() => 'lost'));
  expect(await fleet.deadLetters()).toMatchObject([{ task_id: poison, reason: 'worker_lost', attempt: STARTS.length }]);
}

/** Starts a worker for each that was killed, as whoever supervises them would. */
async function replaceTheDead(fleet: Fleet, deaths: number): Promise<void> {
  for (let death = 1; death <= deaths; death += 1) {
    await eventually(
      () => {
        const dead = fleet.all('worker').filter(({ exitCode }) => exitCode === 'SIGKILL');
        expect(dead.length).toBeGreaterThanOrEqual(death);
      },
      { withinMs: 20_000 },
    );
    const replacement = fleet.start('worker');
    if (death === deaths) await replacement.ready();
  }
}

/** Runs one task after the other meanwhile. */
async function serve(fleet: Fleet): Promise<readonly string[]> {
  const states: string[] = [];
  for (let count = 0; count < 3; count += 1) states.push(await fleet.run({ ms: 10 }, 30_000));
  return states;
}
