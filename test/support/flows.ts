/** Flows in a test: started, looked at and waited for over HTTP. */
import { call } from '../../scripts/call.ts';
import { eventually } from './eventually.ts';
import type { Fleet } from './fleet.ts';

/** JSON as it comes. */
export type Json = Readonly<Record<string, unknown>>;
/** A step as the API shows it. */
export type ShownStep = Json & { readonly name: string; readonly state?: string; readonly taskId?: string };
/** A flow as the API shows it. */
export type ShownFlow = Json & { readonly graph: readonly ShownStep[] };

/** Starts a flow and gives its id. */
export async function startFlow(fleet: Fleet, flow: Json): Promise<string> {
  const { status, body } = await call(fleet.producer().url, 'POST', '/v1/flows', { name: 'test', ...flow });
  if (status !== 202) throw new Error(`not started: ${JSON.stringify(body)}`);
  return String(body['id']);
}

/** A flow as it is now. */
export async function readFlow(fleet: Fleet, id: string): Promise<ShownFlow> {
  return (await call(fleet.producer().url, 'GET', `/v1/flows/${id}`)).body as ShownFlow;
}

/** Waits until the flow has ended, and gives it. */
export async function endedFlow(fleet: Fleet, id: string, withinMs = 60_000): Promise<ShownFlow> {
  return await eventually(
    async () => {
      const flow = await readFlow(fleet, id);
      if (flow['finishedAt'] === undefined) throw new Error(`not ended: ${JSON.stringify(flow)}\n${fleet.tails()}`);
      return flow;
    },
    { withinMs },
  );
}

/** One of its steps. */
export function stepOf(flow: ShownFlow, name: string): ShownStep {
  const found = flow.graph.find((step) => step.name === name);
  if (found === undefined) throw new Error(`no step ${name}`);
  return found;
}

/** What a step gave. */
export async function resultOf(fleet: Fleet, flow: ShownFlow, name: string): Promise<unknown> {
  const { taskId = '' } = stepOf(flow, name);
  return (await call(fleet.producer().url, 'GET', `/v1/tasks/${taskId}`)).body['result'];
}

/** The states of its steps by their names; of a group how many there are of each. */
export function statesOf(flow: ShownFlow): Json {
  return Object.fromEntries(flow.graph.map(({ name, state, states }) => [name, states ?? state]));
}
