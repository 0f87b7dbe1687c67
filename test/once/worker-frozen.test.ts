/** A worker that stands still for longer than its lease: a process that swaps, a machine that was suspended. */
import { expect, test } from '@jest/globals';
import { eventually } from '../support/eventually.ts';
import { openFleet } from '../support/fleet.ts';

test('a worker frozen past its lease settles nothing when it goes on, and works again under a new id', async () => {
  await using fleet = await openFleet({
    workers: 1,
    leaseMs: 1_000,
    // A frozen consumer is handed the new invitations as well, until the broker misses its heartbeats.
    env: { WARREN_AMQP_HEARTBEAT_SECONDS: '1' },
  });
  fleet.expectErrors('lease lost');
  const frozen = fleet.worker(0);
  const oldId = frozen.logged('lease taken')[0]?.['workerId'];
  const ids = await fleet.submit(...Array.from({ length: 4 }, () => ({ input: { ms: 400 } })));
  await eventually(() => expect(fleet.entries()).toHaveLength(4));
  frozen.freeze();
  await fleet.producer().next('worker lost', { workerId: oldId });
  const other = await fleet.start('worker').ready();

  expect(await fleet.ended()).toMatchObject({ succeeded: 4 });
  const settled = await Promise.all(ids.map(async (id) => await fleet.task(id)));
  const otherId = other.logged('lease taken')[0]?.['workerId'];
  for (const task of settled)
    expect(task).toMatchObject({ worker: otherId, attempt: 2, lost_attempts: 1, failures: 0 });

  frozen.thaw();
  await frozen.next('lease lost');
  await eventually(() => expect(frozen.logged('settle fenced')).toHaveLength(4));
  await eventually(() => expect(frozen.logged('lease taken')).toHaveLength(2));
  expect(await Promise.all(ids.map(async (id) => await fleet.task(id)))).toEqual(settled);

  await other.terminate();
  const more = await fleet.submit(...Array.from({ length: 10 }, () => ({})));
  expect(await fleet.ended()).toMatchObject({ accepted: 14, succeeded: 14, dead: 0 });
  const newId = frozen.logged('lease taken')[1]?.['workerId'];
  expect(newId).not.toBe(oldId);
  for (const id of more) expect(await fleet.task(id)).toMatchObject({ worker: newId, attempt: 1 });
});

test('a worker that is frozen for less than its lease keeps what it runs', async () => {
  await using fleet = await openFleet({ workers: 2, leaseMs: 4_000 });
  const [id = ''] = await fleet.submit({ input: { ms: 800 } });
  await eventually(() => expect(fleet.entries(id)).toHaveLength(1));
  const [runner] = [fleet.worker(0), fleet.worker(1)].filter(({ pid }) => pid === fleet.entries(id)[0]?.pid);
  runner?.freeze();
  await fleet.pass(1_500);
  runner?.thaw();
  await fleet.ended();
  expect(await fleet.task(id)).toMatchObject({ state: 'succeeded', attempt: 1, lost_attempts: 0 });
});
