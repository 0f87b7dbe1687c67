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
