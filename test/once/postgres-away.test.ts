/** Postgres that cannot be reached for longer than a lease lasts. */
import { expect, test } from '@jest/globals';
import { eventually } from '../support/eventually.ts';
import { openFleet } from '../support/fleet.ts';
import { expectSoundHistory } from '../support/soundness.ts';

const LEASE_MS = 2_000;

test('an outage of Postgres that is longer than a lease takes no task from anybody, and what ran settles after it', async () => {
  await using fleet = await openFleet({ workers: 2, through: ['postgres'], leaseMs: LEASE_MS });
  const short = await fleet.submit(...Array.from({ length: 8 }, () => ({ input: { ms: 2_000 } })));
  const long = await fleet.submit(...Array.from({ length: 8 }, () => ({ input: { ms: 4_000 } })));
  await eventually(() => expect(fleet.entries()).toHaveLength(16));
  fleet.postgresProxy.refuse();
  fleet.postgresProxy.cut();
  await fleet.pass(LEASE_MS * 1.25);
  // The short ones end meanwhile, and nobody can write that down.
  await eventually(() => {
    for (const id of short) expect(fleet.entries(id).map(({ event }) => event)).toEqual(['started', 'ended']);
  });
  expect((await fleet.books()).running).toBeGreaterThan(0);
  fleet.postgresProxy.accept();

  expect(await fleet.ended()).toMatchObject({ accepted: 16, succeeded: 16, dead: 0 });
  for (const id of [...short, ...long]) expect(await fleet.task(id)).toMatchObject({ attempt: 1, lost_attempts: 0 });
  expect(fleet.producer().logged('worker lost')).toEqual([]);
  await expectSoundHistory(fleet);
});
