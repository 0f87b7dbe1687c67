/** How long nested flows are kept, and what an erasure finds of them. */
import { expect, test } from '@jest/globals';
import { sweepFlows } from '../../services/producer/retention-sweeps.sql.ts';
import { judgeTasks } from '../../services/producer/retention.sql.ts';
import { call } from '../../scripts/call.ts';
import { run } from '../../shared/postgres/statement.ts';
import { eventually } from '../support/eventually.ts';
import { openFleet } from '../support/fleet.ts';
import type { Fleet } from '../support/fleet.ts';
import { ended, get, nestedOf, start } from '../support/flows.ts';

const DAY = 86_400_000;
const HIGHEST_ID = 'ffffffff-ffff-ffff-ffff-ffffffffffff';
const type = 'flow.step';
const SECRET = 'Bartleby Quillfeather';

/** Rows that one sweep of flows that ended a day ago takes. */
const sweep = async (fleet: Fleet): Promise<number> => (await run(fleet.database.database, sweepFlows, DAY)).length;

/** Tasks that retention lets go, of those that succeeded a day ago. */
const over = async (fleet: Fleet): Promise<number> => {
  const lowest = '00000000-0000-0000-0000-000000000000';
  const [row] = await run(
    fleet.database.database,
    judgeTasks,
    lowest,
    lowest,
    HIGHEST_ID,
    1_000,
    [''],
    ['succeeded'],
    [DAY],
  );
  return row?.over.length ?? 0;
};

const age = async (fleet: Fleet, table: 'flows' | 'tasks'): Promise<void> => {
  const text = `update ${table} set finished_at = finished_at - interval '2 days' where finished_at is not null`;
  await fleet.database.database.query({ text });
};

test('a nested flow, and what its tasks gave, stay as long as the flow around it', async () => {
  await using fleet = await openFleet({ tasks: ['steps'] });
  const { url } = fleet.producer();
  const id = await start(fleet, {
    businessKey: '17',
    steps: {
      settle: { flow: { name: 'settlement', steps: { deep: { flow: { name: 'deep', steps: { a: { type } } } } } } },
      last: { type, after: ['settle'], signal: { name: 'ok' } },
    },
  });
  await eventually(async () => expect((await get(fleet, id)).graph[0]).toMatchObject({ state: 'succeeded' }));
  const deep = await nestedOf(fleet, id, 'settle', 'deep');
  for (const table of ['flows', 'tasks'] as const) await age(fleet, table);
  expect([await sweep(fleet), await over(fleet)]).toEqual([0, 0]);
  expect((await call(url, 'POST', `/v1/flows/${id}/signals/ok`, {})).status).toBe(200);
  await ended(fleet, id);
  expect([await sweep(fleet), await over(fleet)]).toEqual([0, 1]);

  await age(fleet, 'flows');
  // The steps first, then all of the flows.
  for (let round = 0; (await sweep(fleet)) > 0; round += 1) expect(round).toBeLessThan(10);
  for (const gone of [id, deep]) expect((await call(url, 'GET', `/v1/flows/${gone}`)).status).toBe(404);
  const { rows } = await fleet.database.database.query({
    text: `select (select count(*) from flows)::int4 as flows, (select count(*) from flow_steps)::int4 as steps,
                  (select count(*) from flow_signals)::int4 as signals, (select count(*) from flow_keys)::int4 as keys`,
  });
  expect(rows).toEqual([{ flows: 0, steps: 0, signals: 0, keys: 0 }]);
}, 60_000);

test('an erasure finds the tasks of nested flows by the key of the outermost, and leaves nothing in any of them', async () => {
  await using fleet = await openFleet({ tasks: ['steps'] });
  const { url } = fleet.producer();
  const id = await start(fleet, {
    businessKey: SECRET,
    tags: [SECRET],
    steps: {
      settle: {
        flow: {
          name: 'settlement',
          steps: {
            deep: { flow: { name: 'deep', steps: { a: { type, input: { who: SECRET } } } } },
            b: {
              type,
              input: { who: { $result: 'deep', path: '/who' }, said: SECRET },
              undo: { type, input: { SECRET } },
            },
          },
        },
      },
    },
  });
  await ended(fleet, id);
  const { status } = await call(url, 'POST', '/v1/erasures', { businessKey: SECRET, reason: 'asked for' });
  expect(status).toBeLessThan(300);
  await eventually(async () => {
    for (const table of ['tasks', 'flows', 'flow_steps', 'flow_keys', 'flow_signals']) {
      const { rows } = await fleet.database.database.query({
        text: `select count(*)::int4 as n from ${table} t
                where t::text like '%' || $1::text || '%' or t::text like '%' || encode(convert_to($1::text, 'UTF8'), 'hex') || '%'`,
        values: [SECRET],
      });
      expect([table, rows]).toEqual([table, [{ n: 0 }]]);
    }
  });
}, 60_000);
