/** Flows go on exactly once, however their workers die: the end of a step and what starts by it are one transaction. */
import { expect, test } from '@jest/globals';
import { call } from '../../scripts/call.ts';
import { eventually } from '../support/eventually.ts';
import { openFleet } from '../support/fleet.ts';
import type { Fleet } from '../support/fleet.ts';

/** How long a step takes: a worker has some in its hands at any moment. */
const input = { ms: 40 };
/** Gives the result of a step before it on. */
const passing = (step: string): object => ({ ...input, give: { $result: step } });

/** Hands flows over while nothing runs: what workers did meanwhile would not be there to be lost. */
async function submitFlows(fleet: Fleet, count: number, flow: Readonly<Record<string, unknown>>): Promise<void> {
  const { url } = fleet.producer();
  const pause = await call(url, 'POST', '/v1/queues/default/pause', { reason: 'until all flows are here' });
  expect(pause.status).toBe(200);
  for (let from = 0; from < count; from += 50) {
    const answers = await Promise.all(
      Array.from({ length: 50 }, async () => await call(url, 'POST', '/v1/flows', flow)),
    );
    expect(answers.filter(({ status }) => status !== 202)).toEqual([]);
  }
  expect((await call(url, 'POST', '/v1/queues/default/resume')).status).toBe(200);
}

/**
 * Kills a worker for each count, once so many tasks have succeeded, with work in its hands. Those that are left do the rest: how long another
 * takes to start depends on what else the machine does, and by then all might be done.
 */
async function killAt(fleet: Fleet, counts: readonly number[]): Promise<void> {
  const { database } = fleet.database;
  for (const [victim, count] of counts.entries()) {
    const worker = fleet.worker(victim);
    const look = async (): Promise<{ readonly succeeded: number; readonly held: number }> => {
      const { rows } = await database.query({
        text: `select (select count(*)::int4 from tasks where state = 'succeeded') as succeeded,
                      (select count(*)::int4 from tasks t join leases l using (worker) where l.pid = $1 and t.state = 'running') as held`,
        values: [worker.pid],
      });
      return rows[0] as { readonly succeeded: number; readonly held: number };
    };
    await eventually(
      async () => {
        expect((await look()).succeeded).toBeGreaterThanOrEqual(count);
        // What it holds once it stands still it cannot settle any more, however long the look takes.
        worker.freeze();
        if ((await look()).held > 0) return;
        worker.thaw();
        throw new Error(`${worker.name} holds nothing`);
      },
      { withinMs: 60_000, everyMs: 20 },
    );
    await worker.kill();
  }
}

/** Workers that died with work in their hands; between the look and the kill one may have settled all that it had. */
async function diedAtWork(fleet: Fleet): Promise<number> {
  const lost = (await fleet.attempts()).filter(({ outcome }) => outcome === 'lost');
  return new Set(lost.map(({ worker }) => worker)).size;
}

const FLOWS = 500;
const type = 'flow.step';
/** Fifteen tasks: a chain, a group, a step that joins it, a chain. */
const STEPS = {
  a: { type, input: { ...input, give: { n: 1 } } },
  b: { type, input: passing('a') },
  c: { type, input: passing('b') },
  d: { type, input: passing('c') },
  many: { type, after: ['d'], inputs: Array.from({ length: 7 }, (_each, n) => ({ ...input, give: n })) },
  joined: { type, input: passing('many') },
  e: { type, after: ['joined'], input: { ...input, give: { all: { $result: 'many' } } } },
  f: { type, input: { ...input, give: { e: { $result: 'e' }, a: { $result: 'a' } } } },
  last: {
    type,
    input: { ...input, give: { all: { $result: 'f', path: '/e/all' }, n: { $result: 'f', path: '/a/n' } } },
  },
};
const TASKS = 15;
const BOUNDARIES = TASKS - 1;

test('500 flows of 15 steps, a worker killed at each boundary between steps: every step is made once and ends once', async () => {
  await using fleet = await openFleet({ tasks: ['steps'], workers: BOUNDARIES + 1, queues: 'default:10' });
  const { database } = fleet.database;
  await submitFlows(fleet, FLOWS, { name: 'long', steps: STEPS });
  await killAt(
    fleet,
    Array.from({ length: BOUNDARIES }, (_each, index) => (index + 0.25) * FLOWS),
  );
  const books = await fleet.ended(120_000);
  expect(books).toMatchObject({ accepted: FLOWS * TASKS, succeeded: FLOWS * TASKS, dead: 0, dropped: 0 });
  expect(await diedAtWork(fleet)).toBeGreaterThan(BOUNDARIES / 2);

  const { rows: flows } = await database.query({
    text: `select f.state::text as state, f.steps_open, count(*)::int4 as flows from flows f group by 1, 2`,
  });
  expect(flows).toEqual([{ state: 'succeeded', steps_open: 0, flows: FLOWS }]);
  const { rows: last } = await database.query({
    text: `select convert_from(t.result, 'UTF8') as result, count(*)::int4 as tasks, count(distinct t.flow_id)::int4 as flows
             from tasks t join flow_steps s on s.flow_id = t.flow_id and s.step = t.flow_step
            where s.name = 'last' group by 1`,
  });
  expect(last).toEqual([{ result: '{"all":[0,1,2,3,4,5,6],"n":1}', tasks: FLOWS, flows: FLOWS }]);
}, 300_000);

const NESTED_FLOWS = 200;
/** Twelve tasks: a flow in a flow in a flow, between tasks at each level. */
const NESTED_STEPS = {
  a: { type, input: { ...input, give: { n: 1 } } },
  mid: {
    after: ['a'],
    flow: {
      name: 'mid',
      steps: {
        b: { type, input: passing('a') },
        leaf: {
          after: ['b'],
          flow: {
            name: 'leaf',
            steps: {
              many: { type, inputs: Array.from({ length: 5 }, (_each, n) => ({ ...input, give: n })) },
              c: {
                type,
                input: { ...input, give: { all: { $result: 'many' }, a: { $result: 'a' }, b: { $result: 'b' } } },
              },
            },
          },
        },
        beside: { flow: { name: 'beside', steps: { d: { type, input }, e: { type, input, after: ['d'] } } } },
        f: { type, input: { ...input, all: { $result: 'leaf' } }, after: ['beside'] },
      },
    },
  },
  last: { type, input: { ...input, give: { all: { $result: 'mid' } } } },
};
const NESTED_TASKS = 12;
const NESTED_KILLS = 10;

test('200 flows of flows of flows, workers killed all along: every step ends once, and so does every flow', async () => {
  await using fleet = await openFleet({ tasks: ['steps'], workers: NESTED_KILLS + 1, queues: 'default:10' });
  const { database } = fleet.database;
  await submitFlows(fleet, NESTED_FLOWS, { name: 'nested', steps: NESTED_STEPS });
  await killAt(
    fleet,
    Array.from({ length: NESTED_KILLS }, (_each, index) => (index + 0.25) * NESTED_FLOWS),
  );
  const tasks = NESTED_FLOWS * NESTED_TASKS;
  expect(await fleet.ended(120_000)).toMatchObject({ accepted: tasks, succeeded: tasks, dead: 0, dropped: 0 });
  expect(await diedAtWork(fleet)).toBeGreaterThan(NESTED_KILLS / 2);
  const { rows: flows } = await database.query({
    text: `select name, state::text as state, steps_open, is_awaited, count(*)::int4 as flows from flows group by 1, 2, 3, 4 order by 1`,
  });
  expect(flows).toEqual(
    ['beside', 'leaf', 'mid', 'nested'].map((name) => ({
      name,
      state: 'succeeded',
      steps_open: 0,
      is_awaited: false,
      flows: NESTED_FLOWS,
    })),
  );
  const { rows: last } = await database.query({
    text: `select convert_from(t.result, 'UTF8') as result, count(*)::int4 as tasks
             from tasks t join flow_steps s on s.flow_id = t.flow_id and s.step = t.flow_step
            where s.name = 'last' group by 1`,
  });
  expect(last).toEqual([
    { result: '{"all":{"all":{"all":[0,1,2,3,4],"a":{"n":1},"b":{"n":1}}}}', tasks: NESTED_FLOWS },
  ]);
}, 300_000);
