/** A deployment under load: one worker after the other is replaced. */
import { expect, test } from '@jest/globals';
import { eventually } from '../support/eventually.ts';
import { openFleet } from '../support/fleet.ts';
import { expectSoundHistory } from '../support/soundness.ts';

const ROUNDS = 10;
const TASKS = 1_000;

test('ten workers that are terminated under load, one after the other, lose and repeat nothing', async () => {
  await using fleet = await openFleet({ workers: 2, queues: 'default:4', leaseMs: 10_000 });
  const inputs = [{ ms: 20 }, { ms: 50 }, { ms: 0 }, { failures: 1 }] as const;
  await fleet.submit(...Array.from({ length: TASKS }, (_, index) => ({ input: inputs[index % 4] ?? {} })));
  let next = fleet.start('worker').ready();
  for (let round = 0; round < ROUNDS; round += 1) {
    const before = fleet.entries().length;
    const wanted = Math.min(before + 20, TASKS);
    await eventually(() => expect(fleet.entries().length).toBeGreaterThanOrEqual(wanted));
    const [{ code }] = await Promise.all([fleet.worker(round).terminate(), next]);
    expect(code).toBe(0);
    if (round < ROUNDS - 2) next = fleet.start('worker').ready();
  }
  await next;

  expect(await fleet.ended()).toMatchObject({ accepted: TASKS, succeeded: TASKS });
  const outcomes = new Set((await fleet.attempts()).map(({ outcome }) => outcome));
  expect([...outcomes]).toEqual(['failed']);
  await expectSoundHistory(fleet);
});
