/** Connections to RabbitMQ and to Postgres that break under load. */
import { expect, test } from '@jest/globals';
import { eventually } from '../support/eventually.ts';
import { openFleet } from '../support/fleet.ts';
import type { Fleet } from '../support/fleet.ts';
import { expectSoundHistory } from '../support/soundness.ts';

const CUTS = 5;
const TASKS = 1_000;

test('five times cut off from RabbitMQ under load, a fleet loses nothing and repeats nothing', async () => {
  await using fleet = await openFleet({ workers: 2, through: ['broker'] });
  await cutUnderLoad(fleet, () => fleet.brokerProxy.cut());
  // A lost delivery is no lost attempt: the lease stands, and the task goes on.
  expect(new Set((await fleet.attempts()).map(({ outcome }) => outcome))).toEqual(new Set(['failed']));
});

test('five times cut off from Postgres under load, a fleet loses nothing and settles nothing twice', async () => {
  await using fleet = await openFleet({ workers: 2, through: ['postgres'], leaseMs: 5_000 });
  fleet.expectErrors('lease lost'); // on a machine so busy that a cut outlasts it
  await cutUnderLoad(fleet, () => fleet.postgresProxy.cut());
  expect(await fleet.books()).toMatchObject({ succeeded: TASKS, dead: 0, letters: 0 });
});

test('with RabbitMQ away submissions are accepted over HTTP, and run when it is back', async () => {
  await using fleet = await openFleet({ workers: 1, through: ['broker'] });
  fleet.brokerProxy.refuse();
  fleet.brokerProxy.cut();
  for (let second = 0; second < 5; second += 1) {
    expect(await fleet.submit(...Array.from({ length: 20 }, () => ({})))).toHaveLength(20);
    await fleet.pass(1_000);
  }
  expect(fleet.entries()).toEqual([]);
  expect((await fetch(`${fleet.producer().url}/readyz`)).status).toBe(200);
  fleet.brokerProxy.accept();

  await eventually(async () => {
    await fleet.makeDue();
    expect(await fleet.books()).toMatchObject({ accepted: 100, succeeded: 100 });
  });
  await expectSoundHistory(fleet);
});

/** Submits, cuts while it runs, and compares the books with the journal. */
async function cutUnderLoad(fleet: Fleet, cut: () => void): Promise<void> {
  const inputs = [{ ms: 20 }, { ms: 100 }, {}, { failures: 1 }] as const;
  for (let round = 0; round < CUTS; round += 1) {
    const share = Array.from({ length: TASKS / CUTS }, (_, index) => ({ input: inputs[index % 4] ?? {} }));
    await fleet.submit(...share);
    const before = fleet.entries().length;
    await eventually(() => expect(fleet.entries().length).toBeGreaterThan(before + 10));
    cut();
    await fleet.pass(500); // what is submitted into the cut itself is answered 503, and is not the matter here
  }
  await eventually(
    async () => {
      await fleet.makeDue();
      expect(await fleet.books()).toMatchObject({ accepted: TASKS, succeeded: TASKS });
    },
    { withinMs: 30_000, everyMs: 250 },
  );
  await fleet.ended();
  await expectSoundHistory(fleet);
}
