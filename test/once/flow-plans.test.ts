/**
 * What moves flows on looks at the rows that it is about, whatever Postgres believed of the sizes of tables when the session planned: the
 * statements of functions keep their plans as those of services do, and no `explain` shows them from outside.
 */
import { expect, test } from '@jest/globals';
import { readStepResults } from '../../services/producer/flow-results.sql.ts';
import { readOwnResults } from '../../services/worker/step-reader.sql.ts';
import { openDatabase } from '../support/database.ts';
import { openClient } from '../support/pg-client.ts';
import { SERVICE_PLANS } from '../support/task-api.ts';

type Client = Awaited<ReturnType<typeof openClient>>;

/** Chains of ten, the first step of each pending. */
const addFlows = (count: number): string => `
  with flow as (
    insert into flows (id, name, on_failure, steps_total, steps_open)
    select uuid_v7(), 'chain', case n % 2 when 0 then 'stop' else 'continue' end, 10, 10 from generate_series(1, ${count}) n
    returning id
  ), task as (
    insert into tasks (id, state, max_attempts, priority, type, queue, input, flow_id, flow_step)
    select uuid_v7(), case when s = 0 then 'pending' else 'blocked' end::task_state, 3, 4, 'bench.noop', 'default', '{}', f.id, s
      from flow f cross join generate_series(0, 9) s
    returning id, flow_id, flow_step
  )
  insert into flow_steps (flow_id, step, name, task_id, waits_for, next, level, pieces, refs)
  select flow_id, flow_step, 's' || flow_step, id, (flow_step > 0)::int4, case when flow_step < 9 then array[flow_step + 1] else '{}' end,
         flow_step, case when flow_step = 2 then array['{"x":', '}'] end, case when flow_step = 2 then '[{"step": 0}]'::jsonb end
    from task`;

/** Flows of two steps, of which the first is a flow of three, begun, the first step of each pending. */
const addNested = (count: number): string => `
  with outer_flow as (
    insert into flows (id, name, on_failure, steps_total, steps_open, state)
    select uuid_v7(), 'outer', case n % 2 when 0 then 'stop' else 'compensate' end, 2, 2, 'running' from generate_series(1, ${count}) n
    returning id
  ), inner_flow as (
    insert into flows (id, name, on_failure, steps_total, steps_open, state, started_at, parent_id, parent_step, root_id, is_awaited)
    select uuid_v7(), 'inner', 'stop', 3, 3, 'running', now(), id, 0, id, true from outer_flow
    returning id, parent_id
  ), task as (
    insert into tasks (id, state, max_attempts, priority, type, queue, input, flow_id, flow_step)
    select uuid_v7(), case when s = 0 then 'pending' else 'blocked' end::task_state, 3, 4, 'bench.noop', 'default', '{}'::bytea, f.id, s
      from inner_flow f cross join generate_series(0, 2) s
    union all
    select uuid_v7(), 'blocked', 3, 4, 'bench.noop', 'default', '{}'::bytea, f.id, 1 from outer_flow f
    returning id, flow_id, flow_step
  )
  insert into flow_steps (flow_id, step, kind, name, task_id, child_id, waits_for, next, level, pieces, refs)
  select t.flow_id, t.flow_step, 'step', 's' || t.flow_step, t.id, null, (t.flow_step > 0)::int4,
         case when t.flow_step < 2 and f.id is not null then array[t.flow_step + 1] else '{}' end, t.flow_step,
         case when t.flow_step = 1 then array['{"x":', '}'] end,
         case when t.flow_step = 1 then case when f.id is null then '[{"step": 0}]' else '[{"step": 0, "up": 1}]' end::jsonb end
    from task t left join inner_flow f on f.id = t.flow_id
  union all
  select f.parent_id, 0, 'step', 'inner', null, f.id, 0, '{1}', 0, null, null from inner_flow f
  union all
  select f.id, -1, 'begin', 'begin', null, null, 0, '{0}', 0, null, null from inner_flow f`;

const NEWEST_INNER = (count: number): string =>
  `(select array_agg(id) from (select id from flows where name = 'inner' and finished_at is null order by id desc limit ${count}) f)`;

/** Ends a step of the newest nested flows, with its task. */
const endNested = async (client: Client, count: number, step: number, state: string): Promise<void> => {
  const { rows } = await client.query(`select ${NEWEST_INNER(count)}::text as ids`);
  const { ids } = rows[0] as { readonly ids: string };
  await client.query(
    `update tasks set state = $3::task_state, finished_at = now(), result = '{"n": 1}'
      where id = any(array(select task_id from flow_steps where flow_id = any($1::uuid[]) and step = $2::int4))`,
    [ids, step, state],
  );
  await client.query(
    `select count(*) from end_steps($1::uuid[], array_fill($2::int4, array[$4::int4]), array_fill($3::text, array[$4::int4]))`,
    [ids, step, state, count],
  );
};

const moveNestedOn = async (client: Client, count: number): Promise<void> => {
  for (const step of [0, 1]) await endNested(client, count, step, 'succeeded');
  const { rows } = await client.query(`select ${NEWEST_INNER(count)} as ids`);
  const { ids } = rows[0] as { readonly ids: readonly string[] };
  await endNested(client, count, 2, 'dead');
  const around = `array(select f.parent_id from flows f where f.id = any($1::uuid[]))`;
  await client.query(`select count(retry_flow(u.id, null, 'test', 'plans')) from unnest(${around}) as u (id)`, [ids]);
  await endNested(client, count, 2, 'dead');
  await client.query(
    `select revive_steps(array(select task_id from flow_steps where flow_id = any($1::uuid[]) and step = 2))`,
    [ids],
  );
  await client.query(`select count(cancel_flow(u.id, 'test', 'plans')) from unnest(${around}) as u (id)`, [ids]);
};

/** Ends a step of the newest flows. */
const endNewest = async (client: Client, count: number, step: number, state: string): Promise<void> => {
  await client.query(
    `select count(*)
       from (select array_agg(id) as ids from (select id from flows where finished_at is null order by id desc limit $1::int4) f) f
       cross join lateral end_steps(f.ids, array_fill($2::int4, array[$1::int4]), array_fill($3::text, array[$1::int4])) e`,
    [count, step, state],
  );
};

/** Has the second step of the newest flows add to them: a group, and a step that is made of results and waits for both. */
const addToNewest = async (client: Client, count: number): Promise<void> => {
  await client.query(
    `update tasks set state = 'running', attempt = 1, claim_id = id, worker = id, started_at = now()
      where id in (select s.task_id from flow_steps s join (select id from flows where finished_at is null order by id desc limit ${count}) f on f.id = s.flow_id where s.step = 1)`,
  );
  for (const [name, inputs, pieces, refs] of [
    ['many', `'{}', '{}', '{}'`, 'null, null, null', 'null, null, null'],
    [
      'made',
      'null',
      `'{"{\\"x\\":",","," }"}'`,
      `'[{"result": "s0", "field": "x"}, {"result": "many", "field": "y"}]'`,
    ],
  ]) {
    const { rows } = await client.query(
      `select a.is_new
         from (select s.task_id from (select id from flows where finished_at is null order by id desc limit ${count}) f
                 join flow_steps s on s.flow_id = f.id and s.step = 1) t
         cross join lateral add_steps(t.task_id, 1, t.task_id, $1, '{"type": "bench.noop", "after": [], "isGroup": ${name === 'many'}}',
                                      array[${inputs}]::text[], array[${pieces}]::text[], array[${refs}]::text[], 20000, 200000) a`,
      [name],
    );
    expect(rows).toEqual(Array.from({ length: count }, () => ({ is_new: true })));
  }
};

const moveOn = async (client: Client, count: number): Promise<void> => {
  await endNewest(client, count, 0, 'succeeded');
  await addToNewest(client, count);
  for (const step of [1, 2]) await endNewest(client, count, step, 'succeeded');
  await client.query(
    `update tasks set state = 'dead', finished_at = now()
      where id in (select s.task_id from flow_steps s join (select id from flows where finished_at is null order by id desc limit ${count}) f on f.id = s.flow_id where s.step = 3)`,
  );
  await endNewest(client, count, 3, 'dead');
  await client.query(
    `select revive_steps(array(
       select s.task_id from flow_steps s join (select id from flows order by id desc limit ${count}) f on f.id = s.flow_id where s.step = 3))`,
  );
};

/** A session with a service's settings, in which each statement keeps the plan that it was first given. */
const planOnce = async (client: Client): Promise<void> => {
  await client.query('set search_path = warren');
  for (const [name, value] of Object.entries(SERVICE_PLANS)) await client.query(`set ${name} = ${value}`);
  await client.query('set plan_cache_mode = force_generic_plan');
};

/** Every plan that the session makes use of from now on, those inside of functions among them. */
const listen = async (client: Client): Promise<readonly string[]> => {
  const plans: string[] = [];
  client.on('notice', ({ message = '' }) => void plans.push(message));
  await client.query(`load 'auto_explain'`);
  for (const setting of [
    'log_min_duration = 0',
    'log_nested_statements = on',
    'log_analyze = on',
    'log_level = notice',
  ]) {
    await client.query(`set auto_explain.${setting}`);
  }
  return plans;
};

/** Lines of plans by which more rows were looked at than forty flows have steps. */
const walksIn = (plans: readonly string[]): readonly string[] =>
  plans
    .filter((plan) => !plan.includes('order by id desc limit'))
    .flatMap((plan) =>
      plan
        .split('\n')
        .filter(
          (line) =>
            Math.max(
              0,
              ...[...line.matchAll(/(?:rows=|Filter: )(\d+)(?= loops| *$)/g)].map(([, rows]) => Number(rows)),
            ) > 1_000,
        ),
    );

test.each([1, 3, 30])(
  'a session that planned where there were %d flows walks no table beside three thousand',
  async (before) => {
    await using opened = await openDatabase();
    await using client = await openClient(opened.url);
    await planOnce(client);
    await client.query(`insert into queues (name) values ('default') on conflict do nothing`);
    await client.query(
      `insert into task_types (name, queue, priority, timeout_ms, max_attempts, description, code_version)
       values ('bench.noop', 'default', 4, 1000, 3, '{}', '') on conflict do nothing`,
    );
    await client.query(addFlows(before));
    await client.query('analyze flows, flow_steps, tasks');
    await moveOn(client, 1);

    await client.query(addFlows(3_000));
    const plans = await listen(client);
    await endNewest(client, 40, 0, 'succeeded');
    await addToNewest(client, 40);
    await endNewest(client, 40, 1, 'succeeded');
    await endNewest(client, 40, 2, 'dead');
    const nested = plans.filter((plan) => /waits_for - a\.n|flow_input|steps_open - cardinality|added_by/.test(plan));
    expect(nested.length).toBeGreaterThan(5);
    expect(plans.some((plan) => plan.includes('added_by'))).toBe(true);
    expect(walksIn(plans)).toEqual([]);
  },
  60_000,
);

test.each([1, 3, 30])(
  'what moves, fails, retries, revives and cancels nested flows, planned where there were %d, walks no table either',
  async (before) => {
    await using opened = await openDatabase();
    await using client = await openClient(opened.url);
    await planOnce(client);
    await client.query(addNested(before));
    await client.query('analyze flows, flow_steps, tasks');
    await moveNestedOn(client, 1);

    await client.query(addNested(3_000));
    const plans = await listen(client);
    await moveNestedOn(client, 40);
    expect(
      plans.filter((plan) => /steps_open - cardinality|is_awaited|waits_for = coalesce/.test(plan)).length,
    ).toBeGreaterThan(100);
    expect(walksIn(plans)).toEqual([]);
  },
  60_000,
);

/** A flow with a step, a group of so many with the same name in each flow, and as many steps after it; gives its id and a task of it. */
async function addGroup(client: Client, count: number): Promise<{ readonly id: string; readonly task: string }> {
  const { rows } = await client.query(
    `with flow as (
       insert into flows (id, name, on_failure, steps_total, steps_open) values (uuid_v7(), 'group', 'stop', 1, 1) returning id
     ), task as (
       insert into tasks (id, state, max_attempts, priority, type, queue, input, started_at, finished_at, attempt, flow_id, flow_step, result)
       select uuid_v7(), 'succeeded', 3, 4, 'bench.noop', 'default', '{}', now(), now(), 1, f.id, s,
              case when s % 9 <> 0 then convert_to(to_json(repeat('x', 500))::text, 'UTF8') end
         from flow f cross join generate_series(0, 2 * ${count}) s
       returning id, flow_id, flow_step
     ), step as (
       insert into flow_steps (flow_id, step, name, member, task_id)
       select flow_id, flow_step, case when flow_step = 0 then 'first' when flow_step <= ${count} then 'many' else 's' || flow_step end,
              case when flow_step between 1 and ${count} then flow_step - 1 end, id
         from task
     )
     select flow_id as id, min(id::text) as task from task group by flow_id`,
  );
  return rows[0] as { readonly id: string; readonly task: string };
}

test.each([1, 30, 3_000])(
  'a session that planned by a group of %d reads a page of ten thousand by reading a page',
  async (before) => {
    await using opened = await openDatabase();
    await using client = await openClient(opened.url);
    await planOnce(client);
    const small = await addGroup(client, before);
    await client.query('analyze flows, flow_steps, tasks');
    const read = async (
      name: string,
      text: string,
      id: string,
      after: number,
    ): Promise<readonly { readonly step: number }[]> =>
      (await client.query({ name, text, values: [id, 'many', after, 200, 1_048_576] })).rows as { step: number }[];
    await read('by_flow', readStepResults.text, small.id, -1);
    await read('by_task', readOwnResults.text, small.task, -1);

    const large = await addGroup(client, 10_000);
    await addGroup(client, 10_000);
    const plans = await listen(client);
    for (const after of [-1, 200, 5_000, 9_800]) {
      for (const [name, text, id] of [
        ['by_flow', readStepResults.text, large.id],
        ['by_task', readOwnResults.text, large.task],
      ] as const) {
        const rows = await read(name, text, id, after);
        expect(rows.map(({ step }) => step)).toEqual(
          Array.from({ length: 200 }, (_each, n) => Math.max(after, 0) + n + 1),
        );
      }
    }
    const pages = plans.filter((plan) => plan.includes('WindowAgg'));
    expect(pages).toHaveLength(8);
    const most = plans.flatMap((plan) =>
      [...plan.matchAll(/(?:actual time=\S+ rows=|Removed by Filter: )(\d+)/g)].map(([, rows]) => Number(rows)),
    );
    // A thousand steps at a time.
    expect(most.filter((rows) => rows > 1_000)).toEqual([]);
    expect(plans.filter((plan) => plan.includes('at + reach')).length).toBeGreaterThan(8);
  },
  60_000,
);
