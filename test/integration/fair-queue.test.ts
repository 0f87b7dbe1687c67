/** A fair queue through real processes: a newcomer is served beside whoever came with hundreds. */
import { afterAll, beforeAll, expect, test } from '@jest/globals';
import { call } from '../../scripts/call.ts';
import { rows } from '../support/core.ts';
import { eventually } from '../support/eventually.ts';
import { openFleet } from '../support/fleet.ts';
import type { Fleet } from '../support/fleet.ts';

const FAIRNESS = { key: 'input.tenant', weights: { big: 2 }, depth: 6 };

let fleet: Fleet;
let url: string;
beforeAll(async () => {
  fleet = await openFleet({ producers: 2, workers: 2, queues: 'default:2' });
  ({ url } = fleet.producer());
});
afterAll(async () => await fleet[Symbol.asyncDispose]());

const post = async (path: string, body: object): Promise<unknown[]> => {
  const answer = await call(url, 'POST', path, body);
  return [answer.status, answer.body['type'], answer.body['field']];
};
const tasksOf = (tenant: string, many: number): readonly { readonly input: Readonly<Record<string, unknown>> }[] =>
  Array.from({ length: many }, () => ({ input: { tenant, ms: 20 } }));

test.each<[object, string]>([
  [{}, 'key'],
  [{ key: 'tenant' }, 'key'],
  [{ key: 'input.tenant', weights: { a: 0 } }, 'weights.a'],
  [{ key: 'input.tenant', weights: { a: 1.5 } }, 'weights.a'],
  [{ key: 'input.tenant', depth: 1_001 }, 'depth'],
  [{ key: 'input.tenant', by: 'x' }, 'by'],
])('%j is refused', async (body, field) => {
  expect(await post('/v1/queues/default/fair', body)).toEqual([400, 'field-invalid', field]);
});

test('a tenant with three tasks is served beside one with four hundred, and workers that die cost nothing', async () => {
  expect(await post('/v1/queues/nowhere/fair', FAIRNESS)).toEqual([404, 'queue-not-found', undefined]);
  expect(await post('/v1/queues/default/fair', { ...FAIRNESS, reason: 'of a test' })).toEqual([
    200,
    undefined,
    undefined,
  ]);
  await eventually(async () => {
    await fleet.submit(...tasksOf('first', 1)); // until both producers have heard of it
    expect(await rows(fleet.database.database, `select 1 from held_back where reason like 'turn%'`)).not.toEqual([]);
  });
  await fleet.pass(1_500);
  await fleet.ended();
  const big = await fleet.submit(...tasksOf('big', 400));
  await eventually(() => expect(fleet.entries().length).toBeGreaterThan(20));
  await fleet.worker(0).kill();
  fleet.start('worker');
  const small = await fleet.submit(...tasksOf('small', 3));
  await fleet.ended(60_000);
  const ends = await rows<{ id: string }>(
    fleet.database.database,
    `select id from tasks where state = 'succeeded' order by finished_at`,
  );
  const placeOf = (id: string): number => ends.findIndex((row) => row.id === id);
  const bigBehind = big.filter((id) => placeOf(id) > Math.max(...small.map((each) => placeOf(each))));
  expect(bigBehind.length).toBeGreaterThan(200);
  expect(await rows(fleet.database.database, 'select task_id from held_back')).toEqual([]);
  const listed = await call(url, 'GET', '/v1/queues');
  expect((listed.body['items'] as { name: string }[]).find(({ name }) => name === 'default')).toMatchObject({
    fairness: FAIRNESS,
  });
}, 360_000);

test('a queue that is fair no longer lets go what waits for its turn', async () => {
  const ids = await fleet.submit(...tasksOf('last', 60));
  expect(await post('/v1/queues/default/unfair', { reason: 'of a test' })).toEqual([200, undefined, undefined]);
  await fleet.ended();
  expect(ids).toHaveLength(60);
  await eventually(async () => expect(await rows(fleet.database.database, 'select 1 from held_back')).toEqual([]));
  const audit = await rows<{ action: string; reason: string; key: string | null }>(
    fleet.database.database,
    `select action, detail->>'reason' as reason, detail->>'key' as key from audit order by at`,
  );
  expect(audit).toEqual([
    { action: 'queue.fairness', reason: 'of a test', key: 'input.tenant' },
    { action: 'queue.fairness', reason: 'of a test', key: null },
  ]);
});
