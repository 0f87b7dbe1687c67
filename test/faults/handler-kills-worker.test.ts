/** A handler that takes its process with it: out of memory, a crash in native code. */
import { expect, test } from '@jest/globals';
import { eventually } from '../support/eventually.ts';
import { openFleet } from '../support/fleet.ts';
import type { Fleet } from '../support/fleet.ts';

test('a handler that kills its process starts three times, then its task is dead, and the fleet goes on', async () => {
  await using fleet = await openFleet({
    workers: 2,
    tasks: ['well-behaved', 'ill-behaved'],
    deadLetterHandlers: 1,
  });
  const [poison = ''] = await fleet.submit({ type: 'fault.suicide', maxAttempts: 10 });
  const [, served] = await Promise.all([replaceTheDead(fleet, 3), serve(fleet)]);
  expect(served).toEqual(['succeeded', 'succeeded', 'succeeded']);

  await eventually(async () => expect(await fleet.task(poison)).toMatchObject({ state: 'dead', lost_attempts: 3 }));
  expect(fleet.entries(poison).map(({ attempt }) => attempt)).toEqual([1, 2, 3]);
  expect((await fleet.attempts(poison)).map(({ outcome }) => outcome)).toEqual(['lost', 'lost', 'lost']);
  expect(await fleet.deadLetters()).toMatchObject([{ task_id: poison, reason: 'worker_lost', attempt: 3 }]);
  expect(await fleet.run()).toBe('succeeded');
  await fleet.ended();
}, 60_000);

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
