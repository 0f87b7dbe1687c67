/** Flows go on exactly once, however their workers die: the end of a step and what starts by it are one transaction. */
import { expect, test } from '@jest/globals';
import { call } from '../../scripts/call.ts';
import { eventually } from '../support/eventually.ts';
import { openFleet } from '../support/fleet.ts';

const FLOWS = 500;
const type = 'flow.step';
/** Fifteen tasks: a chain, a group, a step that joins it, a chain. */
const STEPS = {
  a: { type, input: { give: { n: 1 } } },
  b: { type, after: ['a'] },
  c: { type, after: ['b'] },
  d: { type, after: ['c'] },
  many: { type, after: ['d'], inputs: Array.from({ length: 7 }, (_each, n) => ({ give: n })) },
  joined: { type, after: ['many'] },
  e: { type, after: ['joined'], input: { give: { all: { $result: 'many' } } } },
  f: { type, after: ['e', 'a'] },
  last: { type, input: { all: { $result: 'f', path: '/e/all' }, n: { $result: 'f', path: '/a/n' } } },
};
const TASKS = 15;

test('500 flows of 15 steps, a worker killed at each boundary between steps: every step is made once and ends once', async () => {
  await using fleet = await openFleet({ tasks: ['steps'], workers: 2, producers: 1, queues: 'default:50' });
  const { url } = fleet.producer();
  const { database } = fleet.database;
  for (let from = 0; from < FLOWS; from += 50) {
    const answers = await Promise.all(
      Array.from({ length: 50 }, async () => await call(url, 'POST', '/v1/flows', { name: 'long', steps: STEPS })),
    );
    expect(answers.filter(({ status }) => status !== 202)).toEqual([]);
  }
  const done = async (): Promise<number> => {
    const { rows } = await database.query({ text: `select sum(steps_total - steps_open)::int4 as done from flows` });
    return (rows[0] as { readonly done: number }).done;
  };
  let victim = 0;
  for (let boundary = 1; boundary < TASKS; boundary += 1) {
    await eventually(async () => expect(await done()).toBeGreaterThanOrEqual(boundary * FLOWS - FLOWS / 2), {
      withinMs: 60_000,
      everyMs: 20,
    });
    await fleet.worker(victim).kill();
    victim += 1;
    await fleet.start('worker').ready();
  }
  const books = await fleet.ended(120_000);
  expect(books).toMatchObject({ accepted: FLOWS * TASKS, succeeded: FLOWS * TASKS, dead: 0, dropped: 0 });

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
  // Workers were lost with work in their hands, or nothing was shown.
  expect((await fleet.attempts()).filter(({ outcome }) => outcome === 'lost').length).toBeGreaterThan(0);
}, 300_000);

const NESTED_FLOWS = 200;
/** Twelve tasks: a flow in a flow in a flow, between tasks at each level. */
const NESTED_STEPS = {
  a: { type, input: { ms: 40, give: { n: 1 } } },
  mid: {
    after: ['a'],
    flow: {
      name: 'mid',
      steps: {
        b: { type },
        leaf: {
          after: ['b'],
          flow: {
            name: 'leaf',
            steps: {
              many: { type, inputs: Array.from({ length: 5 }, (_each, n) => ({ ms: 40, give: n })) },
              c: {
                type,
                input: { ms: 40, give: { all: { $result: 'many' }, a: { $result: 'a' }, b: { $result: 'b' } } },
              },
            },
          },
        },
        beside: { flow: { name: 'beside', steps: { d: { type }, e: { type, after: ['d'] } } } },
        f: { type, input: { all: { $result: 'leaf' } }, after: ['beside'] },
      },
    },
  },
  last: { type, input: { ms: 40, all: { $result: 'mid' } } },
};
const NESTED_TASKS = 12;

test('200 flows of flows of flows, workers killed all along: every step ends once, and so does every flow', async () => {
  await using fleet = await openFleet({ tasks: ['steps'], workers: 2, producers: 1, queues: 'default:50' });
  const { url } = fleet.producer();
  const { database } = fleet.database;
  for (let from = 0; from < NESTED_FLOWS; from += 50) {
    const answers = await Promise.all(
      Array.from(
        { length: 50 },
        async () => await call(url, 'POST', '/v1/flows', { name: 'nested', steps: NESTED_STEPS }),
      ),
    );
    expect(answers.filter(({ status }) => status !== 202)).toEqual([]);
  }
  const done = async (): Promise<number> => {
    const { rows } = await database.query({
      text: `select count(*)::int4 as done from tasks where state = 'succeeded'`,
    });
    return (rows[0] as { readonly done: number }).done;
  };
  for (let victim = 0; victim < 10; victim += 1) {
    await eventually(async () => expect(await done()).toBeGreaterThanOrEqual((victim + 0.5) * NESTED_FLOWS), {
      withinMs: 60_000,
      everyMs: 20,
    });
    await fleet.worker(victim).kill();
    await fleet.start('worker').ready();
  }
  const tasks = NESTED_FLOWS * NESTED_TASKS;
  expect(await fleet.ended(120_000)).toMatchObject({ accepted: tasks, succeeded: tasks, dead: 0, dropped: 0 });
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
  expect((await fleet.attempts()).filter(({ outcome }) => outcome === 'lost').length).toBeGreaterThan(0);
}, 300_000);
