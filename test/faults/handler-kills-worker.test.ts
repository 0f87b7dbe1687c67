/** A handler that takes its process with it: out of memory, a crash in native code. */
import { expect, test } from '@jest/globals';
import { eventually } from '../support/eventually.ts';
import { openFleet } from '../support/fleet.ts';

test('a handler that kills its process starts three times, then its task is dead, and the fleet goes on', async () => {
  await using fleet = await openFleet({
    workers: 2,
    tasks: ['well-behaved', 'ill-behaved'],
    leaseMs: 1_000,
    deadLetterHandlers: 1,
  });
  const [poison = ''] = await fleet.submit({ type: 'fault.suicide', maxAttempts: 10 });
  for (let death = 0; death < 3; death += 1) {
    const [victim] = await eventually(
      () => {
        const dead = fleet.all('worker').filter(({ exitCode }) => exitCode === 'SIGKILL');
        expect(dead).toHaveLength(death + 1);
        return dead.slice(-1);
      },
      { withinMs: 10_000 },
    );
    expect(victim?.exitCode).toBe('SIGKILL');
    if (death < 2) await fleet.start('worker').ready(); // as whoever supervises workers would
    expect(await fleet.run({ ms: 10 })).toBe('succeeded');
  }

  await eventually(async () => expect(await fleet.task(poison)).toMatchObject({ state: 'dead', lost_attempts: 3 }));
  expect(fleet.entries(poison).map(({ attempt }) => attempt)).toEqual([1, 2, 3]);
  expect((await fleet.attempts(poison)).map(({ outcome }) => outcome)).toEqual(['lost', 'lost', 'lost']);
  expect(await fleet.deadLetters()).toMatchObject([{ task_id: poison, reason: 'worker_lost', attempt: 3 }]);
  expect(await fleet.run({})).toBe('succeeded');
  await fleet.ended();
}, 60_000);
