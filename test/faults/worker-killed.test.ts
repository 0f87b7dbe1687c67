/** Workers that die by SIGKILL: what they ran runs again elsewhere, once. */
import { expect, test } from '@jest/globals';
import { access } from 'node:fs/promises';
import { eventually } from '../support/eventually.ts';
import { openFleet } from '../support/fleet.ts';
import { expectSoundHistory } from '../support/soundness.ts';

test('invariants 1 and 2: a worker killed in the middle of 200 tasks costs no task and doubles none', async () => {
  await using fleet = await openFleet({ workers: 2 });
  const kinds = [{ ms: 5 }, { ms: 300 }, { failures: 1 }, { failures: 9 }] as const;
  await fleet.submit(...Array.from({ length: 200 }, (_, index) => ({ input: kinds[index % 4] ?? {} })));
  await eventually(() => expect(fleet.entries().filter(({ event }) => event === 'ended').length).toBeGreaterThan(30));
  const victim = fleet.worker(0);
  await victim.kill();

  const books = await fleet.ended();
  expect(books).toMatchObject({ accepted: 200, succeeded: 150, dead: 50, dropped: 0, letters: 50, running: 0 });
  const attempts = await fleet.attempts();
  const lost = attempts.filter(({ outcome }) => outcome === 'lost');
  const victimId = victim.logged('lease taken')[0]?.['workerId'];
  expect(lost.length).toBeGreaterThan(0);
  expect(new Set(lost.map(({ worker }) => worker))).toEqual(new Set([victimId]));
  await expectSoundHistory(fleet);
});

test('what a killed worker ran starts again once its lease has lapsed', async () => {
  await using fleet = await openFleet({ workers: 1, leaseMs: 2_000 });
  const [id = ''] = await fleet.submit({ input: { ms: 1_500 } });
  await eventually(() => expect(fleet.entries(id)).toHaveLength(1));
  const [first] = fleet.entries(id);
  await fleet.worker(0).kill();
  await fleet.start('worker').ready();

  await fleet.ended();
  const second = fleet.entries(id).find(({ attempt }) => attempt === 2);
  const afterMs = (second?.atMs ?? Infinity) - (first?.atMs ?? 0);
  expect(afterMs).toBeGreaterThan(1_500); // less what had passed of the lease when it was last renewed
  expect(afterMs).toBeLessThan(15_000); // two lease times and a start on an idle machine
  expect(await fleet.task(id)).toMatchObject({ state: 'succeeded', attempt: 2, failures: 0, lost_attempts: 1 });
});

test('a killed worker leaves a temporary directory, and the next start removes it', async () => {
  await using fleet = await openFleet({ workers: 1, tasks: ['well-behaved'] });
  const [id = ''] = await fleet.submit({ type: 'fault.scratch', input: { ms: 500 } });
  await eventually(() => expect(fleet.entries(id)).toHaveLength(1));
  const file = fleet.entries(id)[0]?.note ?? '';
  await access(file);
  await fleet.worker(0).kill();
  await access(file);

  await fleet.start('worker').ready();
  await expect(access(file)).rejects.toMatchObject({ code: 'ENOENT' });
  await fleet.ended();
});
