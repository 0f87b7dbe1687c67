/**
 * Flows that nobody chose, nested in each other, ended, failed, cancelled, retried and replayed by several at once: when nobody does anything any
 * more, nothing is left standing.
 */
import { expect, test } from '@jest/globals';
import { FlowStarter } from '../../services/producer/flow-starter.ts';
import { cancelEach } from '../../services/producer/cancel.ts';
import { expireFlowTimers, retryFlow, signalFlow } from '../../services/producer/flows.sql.ts';
import { flowBody } from '../../shared/flows/flow-body.ts';
import { planFlow } from '../../shared/flows/plan-flow.ts';
import type { Database } from '../../shared/postgres/pool.ts';
import { run } from '../../shared/postgres/statement.ts';
import { inTransaction } from '../../shared/postgres/transaction.ts';
import { newId } from '../../shared/tasks/ids.ts';
import type { Catalog, KnownType } from '../../shared/tasks/type-catalog.ts';
import { partDeps, rows } from '../support/core.ts';
import { openDatabase } from '../support/database.ts';
import { seeded } from '../support/seeded.ts';
import { SERVICE_PLANS } from '../support/task-api.ts';

type Json = Readonly<Record<string, unknown>>;
type Random = () => number;

const type = 'flow.step';
const known = { name: type, queue: 'default', priority: 4, maxAttempts: 3 } as KnownType;
const catalog: Catalog = { find: (name) => (name === type ? known : undefined), hasQueue: () => true };

const oneOf = <T>(random: Random, given: readonly T[]): T => given[Math.floor(random() * given.length)] as T;

/** Steps whose names nobody else has; an input may refer to those before it, also around it. */
function someSteps(random: Random, levels: number, around: readonly string[], names: { next: number }): Json {
  const own: string[] = [];
  const steps: Record<string, Json> = {};
  const count = Math.floor(random() * 4) + (levels === 3 ? 1 : 0);
  for (let n = 0; n < count; n += 1) {
    const name = `s${(names.next += 1)}`;
    const after = own.filter(() => random() < 0.4);
    const common = {
      ...(after.length === 0 ? {} : { after }),
      ...(random() < 0.2 ? { onFailure: oneOf(random, ['stop', 'continue', 'ignore']) } : {}),
      ...(random() < 0.3 ? { undo: { type } } : {}),
      ...(random() < 0.1 ? { delayMs: 1 } : {}),
      ...(random() < 0.1 ? { signal: { name: 'go', ...(random() < 0.5 ? { timeoutMs: 5 } : {}) } } : {}),
    };
    const visible = [...around, ...own];
    const input = visible.length > 0 && random() < 0.4 ? { input: { it: { $result: oneOf(random, visible) } } } : {};
    const kind = random();
    if (levels > 0 && kind < 0.4) steps[name] = { ...common, flow: someFlow(random, levels - 1, visible, names) };
    else if (kind < 0.5)
      steps[name] = { type, ...common, inputs: Array.from({ length: Math.floor(random() * 4) }, () => ({})) };
    else steps[name] = { type, ...common, ...input };
    own.push(name);
  }
  return steps;
}

function someFlow(random: Random, levels: number, around: readonly string[], names: { next: number }): Json {
  return {
    name: `level${levels}`,
    onFailure: oneOf(random, ['stop', 'stop', 'continue', 'compensate']),
    steps: someSteps(random, levels, around, names),
    ...(random() < 0.5 ? { failureStep: { type } } : {}),
  };
}

async function startSome(db: Database, random: Random, count: number): Promise<void> {
  const starter = new FlowStarter({
    log: partDeps.log,
    db,
    invite: async () => await Promise.resolve(true),
    holdReasonOf: () => undefined,
    metrics: partDeps.metrics,
  });
  for (let n = 0; n < count; n += 1) {
    const raw = JSON.stringify(someFlow(random, 3, [], { next: 0 }));
    const body = flowBody.parse(JSON.parse(raw));
    const id = newId<string>();
    const plan = planFlow(body, raw, catalog, { messageBytes: 1_000, depth: 8 }, { id, nestedId: newId<string> });
    if (plan.kind === 'refused') throw new Error(JSON.stringify(plan.faults));
    await starter.start({ id, body, steps: plan.steps, nested: plan.nested, createdBy: 'test' });
  }
}

/** Ends some tasks that could be claimed, as a worker does. Gives how many. */
async function work(db: Database, random: Random, deaths: number): Promise<number> {
  const ids = (
    await rows<{ id: string }>(
      db,
      `select id from tasks where state in ('pending', 'scheduled') order by random() limit 8`,
    )
  ).map(({ id }) => id);
  const states = ids.map(() =>
    random() < deaths ? oneOf(random, ['dead', 'dead', 'expired', 'cancelled']) : 'succeeded',
  );
  return await inTransaction(db, async (tx) => {
    const { rows: ended } = await tx.query({
      text: `with picked as (
               select t.id, w.state
                 from unnest($1::uuid[], $2::text[]) as w (id, state)
                 join tasks t on t.id = w.id
                where t.state in ('pending', 'scheduled')
                order by t.id
                  for no key update of t skip locked
             ), ended as (
               update tasks t
                  set state = p.state::task_state, run_at = null, finished_at = clock_timestamp(), result = '{"n": 1}'
                 from picked p
                where t.id = p.id and t.state in ('pending', 'scheduled')
               returning t.flow_id, t.flow_step, t.state::text as state
             ), moved as (
               select count(*) as n
                 from (select array_agg(flow_id) as flows, array_agg(flow_step) as steps, array_agg(state) as states
                         from ended where flow_id is not null) e
                 cross join lateral end_steps(e.flows, e.steps, e.states) freed
             )
             select count(*)::int4 as n from ended, moved where moved.n >= 0`,
      values: [ids, states],
    });
    return (ended[0] as { readonly n: number }).n;
  });
}

const someFlowId = async (db: Database, where: string): Promise<string | undefined> =>
  (await rows<{ id: string }>(db, `select id from flows where ${where} order by random() limit 1`))[0]?.id;

async function cancel(db: Database): Promise<void> {
  const id = await someFlowId(db, 'finished_at is null');
  if (id === undefined) return;
  await rows(db, `select cancel_flow($1, 'test', 'no reason')`, id);
}

/** Cancels tasks by hand, also those whose turn has not come. */
async function cancelTasks(db: Database): Promise<void> {
  const found = await rows<{ id: string }>(
    db,
    `select id from tasks where finished_at is null and (state = 'blocked' or random() < 0.3) order by random() limit 2`,
  );
  await cancelEach(
    db,
    found.map(({ id }) => id),
    { actor: { name: 'test', role: 'operator' }, reason: undefined },
  );
}

async function signal(db: Database, where: string): Promise<void> {
  const id = await someFlowId(db, where);
  if (id !== undefined) await run(db, signalFlow, id, 'go', Buffer.from('1'), 'test');
}

/** Works, without failures, until nothing can be done. */
async function finish(db: Database, random: Random): Promise<void> {
  const waiting = `finished_at is null and not exists (select from flow_signals g where g.flow_id = flows.id)`;
  for (let open = 1; open > 0;) {
    while ((await work(db, random, 0)) > 0);
    await run(db, expireFlowTimers, 100);
    for (let n = 0; n < 20; n += 1) await signal(db, waiting);
    const [left] = await rows<{ n: number }>(
      db,
      `select (select count(*) from tasks where state in ('pending', 'scheduled'))::int4 + (select count(*) from flows where ${waiting})::int4 as n`,
    );
    open = left?.n ?? 0;
  }
}

async function retry(db: Database, random: Random): Promise<void> {
  const id = await someFlowId(db, 'finished_at is not null');
  if (id === undefined) return;
  const [step] = await rows<{ name: string }>(
    db,
    `select name from flow_steps where flow_id = $1 and kind = 'step' order by random() limit 1`,
    id,
  );
  await run(db, retryFlow, id, random() < 0.5 ? null : (step?.name ?? null), 'test', 'operator', null, null);
}

async function replay(db: Database): Promise<void> {
  await inTransaction(db, async (tx) => {
    const { rows: dead } = await tx.query({
      text: `select id from tasks where state = 'dead' order by random() limit 2`,
    });
    const ids = (dead as { readonly id: string }[]).map(({ id }) => id).toSorted();
    const { rows: revived } = await tx.query({
      text: `with picked as (
               select id from tasks where id = any($1::uuid[]) and state = 'dead' order by id for no key update skip locked
             ), task as (
               update tasks t set state = 'pending', generation = generation + 1, finished_at = null
                 from picked p where t.id = p.id
               returning t.id, t.flow_id
             )
             select coalesce((select revive_steps(array_agg(id)) from task where flow_id is not null), 0) as n`,
      values: [ids],
    });
    return revived;
  });
}

/** What stands still although nobody works any more. */
async function leftStanding(db: Database): Promise<readonly unknown[]> {
  return await rows(
    db,
    `select 'flow' as what, id::text, name, state::text, phase, steps_open as open
       from flows where finished_at is null or steps_open <> 0 or is_awaited or (is_undoing and undone_at is null and not exists (
         select from flow_steps u join tasks t on t.id = u.task_id
          where u.flow_id = any(flows_within(array[flows.id])) and u.kind = 'undo' and t.state <> 'succeeded'))
     union all
     select 'task', id::text, type, state::text, null, null from tasks where finished_at is null
     union all
     -- a flow that succeeded has no step that failed and counted
     select 'step', s.flow_id::text, s.name, t.state, null, null
       from flow_steps s
       join flows f on f.id = s.flow_id and f.state = 'succeeded' and not f.is_undoing
       cross join lateral state_of_step(s.task_id, s.child_id) t
      where s.kind = 'step' and t.state <> 'succeeded' and coalesce(s.on_failure, '') <> 'ignore'
        and not exists (select from flows c where c.id = s.child_id and not c.is_awaited and c.state <> 'cancelled')`,
  );
}

/** Flows whose count of what is open is not that of their open tasks, the nested flows whose end they await, and their own beginning. */
async function miscounted(db: Database): Promise<readonly unknown[]> {
  return await rows(
    db,
    `select f.id::text, f.name, f.state::text, f.phase, f.steps_open as open, o.tasks, o.nested
       from flows f
       cross join lateral (
         select (select count(*) from flow_steps s join tasks t on t.id = s.task_id
                  where s.flow_id = f.id and t.flow_id = f.id and t.finished_at is null)::int4 as tasks,
                (select count(*) from flow_steps s join flows c on c.id = s.child_id
                  where s.flow_id = f.id and c.is_awaited and s.kind = case when c.is_undoing then 'undo' else 'step' end)::int4 as nested
       ) o
      where f.steps_open <> o.tasks + o.nested + (f.parent_id is not null and f.state = 'pending')::int4`,
  );
}

test.each([1, 2, 3, 4])(
  'whatever is done to flows in flows, by four at once, all of them end (seed %d)',
  async (seed) => {
    await using opened = await openDatabase({ settings: SERVICE_PLANS });
    const db = opened.database;
    const random = seeded(seed);
    await startSome(db, random, 60);
    const [{ n: nested } = { n: 0 }] = await rows<{ n: number }>(
      db,
      `select count(*)::int4 as n from flows where parent_id is not null`,
    );
    expect(nested).toBeGreaterThan(30);
    await Promise.all(
      Array.from({ length: 4 }, async () => {
        for (let round = 0; round < 150; round += 1) {
          const what = random();
          if (what < 0.62) await work(db, random, 0.15);
          else if (what < 0.66) await cancel(db);
          else if (what < 0.72) await cancelTasks(db);
          else if (what < 0.78) await signal(db, 'finished_at is null');
          else if (what < 0.8) await run(db, expireFlowTimers, 10);
          else if (what < 0.9) await retry(db, random);
          else await replay(db);
        }
      }),
    );
    expect(await miscounted(db)).toEqual([]);
    await finish(db, random);
    expect(await leftStanding(db)).toEqual([]);
    // And what is left of them can go on.
    const failed = `parent_id is not null and state in ('failed', 'cancelled')`;
    for (const { id } of await rows<{ id: string }>(db, `select id from flows where ${failed}`)) {
      await run(db, retryFlow, id, null, 'test', 'operator', null, null);
      if (random() < 0.3) await cancel(db);
    }
    await finish(db, random);
    expect(await leftStanding(db)).toEqual([]);
    const [deadlocks] = await rows(
      db,
      `select deadlocks::int4 as n from pg_stat_database where datname = current_database()`,
    );
    expect(deadlocks).toEqual({ n: 0 });
  },
  120_000,
);
