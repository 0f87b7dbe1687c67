/** Flows of a fleet, over HTTP as a service sees them. */
import { expect } from '@jest/globals';
import { call } from '../../scripts/call.ts';
import { eventually } from './eventually.ts';
import type { Books, Fleet } from './fleet.ts';

/** What the API answers. */
export type Json = Readonly<Record<string, unknown>>;

/** A step of a flow as it stands. */
export type Step = Json & {
  readonly name: string;
  readonly state: string;
  readonly taskId: string;
  readonly deadLetterId: string;
  /** The flow that it is. */
  readonly flow?: { readonly id: string; readonly state: string };
};

/** A flow as it stands. */
export type ShownFlow = Json & { readonly graph: readonly Step[] };

/** Starts a flow, and gives its id. */
export async function start(fleet: Fleet, flow: Json): Promise<string> {
  const { status, body } = await call(fleet.producer().url, 'POST', '/v1/flows', { name: 'test', ...flow });
  expect([status, body]).toEqual([202, expect.objectContaining({ id: expect.any(String) })]);
  return String(body['id']);
}

/** A flow. */
export async function get(fleet: Fleet, id: string): Promise<ShownFlow> {
  return (await call(fleet.producer().url, 'GET', `/v1/flows/${id}`)).body as ShownFlow;
}

/** A step of a flow as it was shown. Throws where there is none of that name. */
export function stepIn(flow: ShownFlow, name: string): Step {
  const found = flow.graph.find((step) => step.name === name);
  if (found === undefined) throw new Error(`no step ${name}`);
  return found;
}

/** A step of a flow as it is now. */
export async function stepOf(fleet: Fleet, id: string, name: string): Promise<Step> {
  return stepIn(await get(fleet, id), name);
}

/** The flow that a step is. */
export async function nestedOf(fleet: Fleet, id: string, ...names: readonly string[]): Promise<string> {
  let flow = id;
  for (const name of names) flow = (await stepOf(fleet, flow, name)).flow?.id ?? `no flow ${name}`;
  return flow;
}

/** What the task of a step gave. */
export async function resultOf(fleet: Fleet, id: string, name: string): Promise<unknown> {
  const { taskId } = await stepOf(fleet, id, name);
  return (await call(fleet.producer().url, 'GET', `/v1/tasks/${taskId}`)).body['result'];
}

/** Waits until the flow has ended, and gives it. */
export async function ended(fleet: Fleet, id: string, withinMs = 60_000): Promise<ShownFlow> {
  return await eventually(
    async () => {
      const flow = await get(fleet, id);
      if (flow['finishedAt'] === undefined) throw new Error(`not ended: ${JSON.stringify(flow)}\n${fleet.tails()}`);
      return flow;
    },
    { withinMs },
  );
}

/** How its steps stand, by their names. */
export function statesOf(flow: { readonly graph: readonly Step[] }): Json {
  return Object.fromEntries(flow.graph.map(({ name, state, states }) => [name, states ?? state]));
}

/** Replays a dead letter, and gives the status of the answer. */
export async function replay(fleet: Fleet, letterId: string): Promise<number> {
  const { url } = fleet.deadLetterHandler();
  return (await call(url, 'POST', `/v1/dead-letters/${letterId}/replay`, { reason: 'mended' })).status;
}

/** Deadlocks that Postgres has found in the database of the fleet. */
export async function deadlocks(fleet: Fleet): Promise<number> {
  const { rows } = await fleet.database.database.query({
    text: 'select deadlocks::int4 as n from pg_stat_database where datname = current_database()',
  });
  return (rows[0] as { readonly n: number }).n;
}

/** How the books have changed. */
export function since(before: Books, after: Books): Books {
  return Object.fromEntries(
    Object.entries(after).map(([name, count]) => [name, count - before[name as keyof Books]]),
  ) as Books;
}
