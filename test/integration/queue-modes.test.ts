/** Queues that are paused, drained and opened again, through real processes. */
import { expect, test } from '@jest/globals';
import { call } from '../../scripts/call.ts';
import { systemClock } from '../../shared/time/clock.ts';
import { rows } from '../support/core.ts';
import { eventually } from '../support/eventually.ts';
import { openFleet } from '../support/fleet.ts';
import type { Fleet } from '../support/fleet.ts';

const set = async (fleet: Fleet, verb: string, queue = 'default'): Promise<Record<string, unknown>> => {
  const answer = await call(fleet.producer().url, 'POST', `/v1/queues/${queue}/${verb}`, { reason: 'of a test' });
  expect(answer.status).toBe(200);
  return answer.body;
};
const statesOf = async (fleet: Fleet, ids: readonly string[]): Promise<string[]> => {
  const tasks = await fleet.tasks();
  return ids.map((id) => tasks.find((task) => task.id === id)?.state ?? 'none');
};

test('a paused queue starts nothing, lets what runs end, and goes on where it stood when it is resumed', async () => {
  await using fleet = await openFleet({ workers: 2, queues: 'default:2' });
  const nowhere = await call(fleet.producer().url, 'POST', '/v1/queues/nowhere/pause', {});
  expect([nowhere.status, nowhere.body['type']]).toEqual([404, 'queue-not-found']);
  const running = await fleet.submit(...Array.from({ length: 4 }, () => ({ input: { ms: 3_000 } })));
  await eventually(async () => expect(await statesOf(fleet, running)).toEqual(running.map(() => 'running')));
  // More than the workers prefetch: some of it waits with them, some with RabbitMQ.
  const waiting = await fleet.submit(...Array.from({ length: 30 }, () => ({ input: { ms: 1 } })));
  expect(await set(fleet, 'pause')).toEqual({ name: 'default', mode: 'paused', was: 'open' });
  await eventually(async () => expect(await statesOf(fleet, running)).toEqual(running.map(() => 'succeeded')));
  const late = await fleet.submit({ input: { ms: 1 } });
  await systemClock.sleep(1_500); // a worker that did not know would have run them many times over
  expect(await statesOf(fleet, [...waiting, ...late])).toEqual([...waiting, ...late].map(() => 'pending'));
  const { body } = await call(fleet.producer().url, 'GET', '/v1/queues');
  expect((body['items'] as { name: string }[]).find(({ name }) => name === 'default')).toMatchObject({
    mode: 'paused',
    modeReason: 'of a test',
    running: 0,
  });
  await set(fleet, 'resume');
  await fleet.ended();
  expect(await statesOf(fleet, [...waiting, ...late])).toEqual([...waiting, ...late].map(() => 'succeeded'));
  expect(await rows(fleet.database.database, 'select task_id from held_back')).toEqual([]);
  const audit = await rows<{ action: string }>(
    fleet.database.database,
    `select action from audit where target = 'default' order by at`,
  );
  expect(audit.map(({ action }) => action)).toEqual(['queue.pause', 'queue.resume']);
});

test('a drained queue runs what it has, holds back what comes in, and what becomes due, until it is resumed', async () => {
  await using fleet = await openFleet({ workers: 1, queues: 'default:2' });
  const before = await fleet.submit(...Array.from({ length: 6 }, () => ({ input: { ms: 300 } })));
  const [scheduled = ''] = await fleet.submit({ input: { ms: 1 }, delayMs: 6_000 });
  await set(fleet, 'drain');
  await systemClock.sleep(4_000); // producers look every second, on a busy machine somewhat later
  const after = await fleet.submit(...Array.from({ length: 3 }, () => ({ input: { ms: 1 } })));
  await eventually(async () => expect(await statesOf(fleet, before)).toEqual(before.map(() => 'succeeded')));
  await eventually(async () => expect(await statesOf(fleet, [scheduled])).toEqual(['pending']));
  expect(await statesOf(fleet, after)).toEqual(after.map(() => 'pending'));
  expect(await rows(fleet.database.database, `select 1 from held_back where reason = 'draining'`)).toHaveLength(4);
  await set(fleet, 'resume');
  await fleet.ended();
  expect(await statesOf(fleet, [...after, scheduled])).toEqual([...after, scheduled].map(() => 'succeeded'));
});
