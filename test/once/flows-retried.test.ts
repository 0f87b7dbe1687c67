/** Flows that are retried while a step of theirs, which was replayed by itself, still runs. */
import { expect, test } from '@jest/globals';
import { call } from '../../scripts/call.ts';
import { eventually } from '../support/eventually.ts';
import { openFleet } from '../support/fleet.ts';
import type { Fleet } from '../support/fleet.ts';

type Json = Readonly<Record<string, unknown>>;
interface Step {
  readonly name: string;
  readonly state: string;
  readonly taskId: string;
  readonly deadLetterId: string;
}
type Flow = Json & { readonly graph: readonly Step[] };

const type = 'flow.step';
const open = async (): Promise<Fleet> => await openFleet({ tasks: ['steps'], deadLetterHandlers: 1, workers: 1 });

const get = async (fleet: Fleet, id: string): Promise<Flow> =>
  (await call(fleet.producer().url, 'GET', `/v1/flows/${id}`)).body as Flow;
const stepOf = async (fleet: Fleet, id: string, name: string): Promise<Step> =>
  (await get(fleet, id)).graph.find((step) => step.name === name) as Step;
const post = async (fleet: Fleet, path: string, body: Json): Promise<Json> =>
  (await call(fleet.producer().url, 'POST', path, body)).body;
const until = async (fleet: Fleet, id: string, state: string): Promise<Flow> =>
  await eventually(
    async () => {
      const flow = await get(fleet, id);
      const stands = flow.graph.map(({ name, state: of }) => `${name} ${of}`).join(', ');
      expect(`${String(flow['state'])}: ${stands}`).toMatch(new RegExp(`^${state}: `));
      return flow;
    },
    { withinMs: 15_000 },
  );
const replay = async (fleet: Fleet, letterId: string): Promise<void> => {
  const { url } = fleet.deadLetterHandler();
  expect((await call(url, 'POST', `/v1/dead-letters/${letterId}/replay`, { reason: 'mended' })).status).toBe(200);
};

test('a step whose failure was ignored is replayed, and its flow retried while it runs: what comes after it waits for nobody', async () => {
  await using fleet = await open();
  const steps = {
    a: { type, input: { failures: 2, ms: 700, give: 1 }, onFailure: 'ignore' },
    b: { type, after: ['a'], input: { failures: 2, got: { $result: 'a' } } },
  };
  const { id } = (await post(fleet, '/v1/flows', { name: 'test', steps })) as { readonly id: string };
  await until(fleet, id, 'failed');
  await replay(fleet, (await stepOf(fleet, id, 'a')).deadLetterId);
  await eventually(async () => expect((await stepOf(fleet, id, 'a')).state).toBe('running'));
  expect(await post(fleet, `/v1/flows/${id}/retry`, { reason: 'test' })).toMatchObject({ tasks: 1 });
  const flow = await until(fleet, id, 'failed');
  expect(flow['steps']).toMatchObject({ open: 0 });
}, 60_000);

test('a dead step of a cancelled flow is replayed: the flow cannot be retried until that has ended, and then goes on with it', async () => {
  await using fleet = await open();
  const steps = {
    a: { type, input: { failures: 2, ms: 700, give: 1 } },
    apart: { type, input: { ms: 60_000 } },
    b: { type, after: ['a', 'apart'], input: { got: { $result: 'a' } } },
  };
  const { id } = (await post(fleet, '/v1/flows', { name: 'test', steps })) as { readonly id: string };
  await eventually(async () => expect((await stepOf(fleet, id, 'a')).state).toBe('dead'), { withinMs: 15_000 });
  await post(fleet, `/v1/flows/${id}/cancel`, { reason: 'test' });
  await until(fleet, id, 'cancelled');
  await replay(fleet, (await stepOf(fleet, id, 'a')).deadLetterId);
  await eventually(async () => expect((await stepOf(fleet, id, 'a')).state).toBe('running'));
  expect(await post(fleet, `/v1/flows/${id}/retry`, { reason: 'test' })).toMatchObject({
    type: 'flow-not-retryable',
    reason: 'a step that was replayed by itself has not ended',
  });
  await eventually(async () => expect((await stepOf(fleet, id, 'a')).state).toBe('succeeded'));
  const { taskId: apart } = await stepOf(fleet, id, 'apart');
  await fleet.database.database.query({ text: `update tasks set input = '{"ms": 0}' where id = '${apart}'` }); // as who mends it
  expect(await post(fleet, `/v1/flows/${id}/retry`, { reason: 'test' })).toMatchObject({ tasks: 2 });
  const flow = await until(fleet, id, 'succeeded');
  expect(flow).toMatchObject({ steps: { open: 0, failed: 0 }, result: { got: 1 } });
}, 60_000);
