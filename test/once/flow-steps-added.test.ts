/** Steps that add steps to their flow while they run: each is added once, waits for the step that added it, and is waited for. */
import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import { call } from '../../scripts/call.ts';
import { DatabaseStepAdder } from '../../services/worker/step-adder.ts';
import { createMetrics } from '../../shared/observability/metrics.ts';
import { announceQueues } from '../../shared/tasks/announce.ts';
import { aHandBack, addTask, count, deadlocks, once, openFaulty, openWorker, partDeps, rows } from '../support/core.ts';
import { openDatabase } from '../support/database.ts';
import { eventually } from '../support/eventually.ts';
import { openFleet } from '../support/fleet.ts';
import type { Fleet } from '../support/fleet.ts';
import { ended, get, resultOf, start, statesOf, stepIn } from '../support/flows.ts';
import type { Json, ShownFlow } from '../support/flows.ts';

const step = 'flow.step';
const x = { name: 'x', type: step };
const group = (pieces: number, more: Json = {}): Json => ({ name: 'encode', type: step, pieces, ...more });
/** Split, encode what it comes to, join: how many there are only the first step knows. */
const splitAndJoin = (input: Json, more: Json = {}, type = 'flow.split'): Json => ({
  steps: {
    split: { type, input },
    encode: { type: step, inputs: [], after: ['split'], ...more },
    joined: { type: step, input: { all: { $result: 'encode' } } },
  },
});
/** What a step adds, as its input says it. */
const adding = (...steps: readonly Json[]): Json => ({ add: JSON.stringify(steps) });
/** An object that nests so many levels, itself counted, and one more. */
const deep = (levels: number): Json => (levels === 0 ? {} : { in: deep(levels - 1) });
const upTo = (n: number): number[] => Array.from({ length: n }, (_each, index) => index);

let fleet: Fleet;
beforeAll(async () => {
  fleet = await openFleet({ tasks: ['steps', 'splitters'], deadLetterHandlers: 1, workers: 2 });
}, 120_000);
afterAll(async () => await fleet[Symbol.asyncDispose]());

const runFlow = async (flow: Json): Promise<ShownFlow> => await ended(fleet, await start(fleet, flow));
const retry = async (id: unknown, body: Json = {}): Promise<unknown> =>
  (await call(fleet.producer().url, 'POST', `/v1/flows/${String(id)}/retry`, body)).body['tasks'];

test.each([
  [0, 'flow.split'],
  [7, 'flow.split'],
  [5, 'flow.split.thread'],
  [1_000, 'flow.split'],
])(
  'a step adds %d members to an empty group (%s), and the step after them gets all, in order',
  async (n, type) => {
    const flow = await runFlow(splitAndJoin(adding(group(n)), {}, type));
    expect(flow).toMatchObject({ state: 'succeeded', steps: { total: n + 2, open: 0, failed: 0 } });
    expect(await resultOf(fleet, String(flow['id']), 'split')).toEqual({ added: [{ tasks: n, duplicate: false }] });
    expect(await resultOf(fleet, String(flow['id']), 'joined')).toEqual({ all: upTo(n) });
    expect(stepIn(flow, 'joined')).toMatchObject({ level: n === 0 ? 1 : 2 });
    const encode = { name: 'encode', after: ['split'], level: 1, states: { succeeded: n } };
    expect(flow.graph.slice(2)).toMatchObject(n === 0 ? [] : [encode]);
  },
  120_000,
);

test('single steps: their input is what the adding step gave, or is made of results; chains of them; nobody has to know them', async () => {
  const flow = await runFlow({
    steps: {
      check: { type: step, input: { give: { id: 7 } } },
      split: {
        type: 'flow.split',
        after: ['check'],
        input: adding(
          { name: 'plain', type: step },
          {
            name: 'made',
            type: step,
            input: { id: { $result: 'check', path: '/id' }, n: 12345678901.5 },
            queue: 'default',
          },
          {
            name: 'second',
            type: step,
            after: ['made', 'plain'],
            input: { got: { $result: 'made' } },
            priority: 9,
            maxAttempts: 7,
          },
        ),
      },
      last: { type: step, after: ['split'], input: { give: 'end' } },
    },
  });
  expect(flow).toMatchObject({ state: 'succeeded', steps: { total: 6 }, result: 'end' });
  expect(await resultOf(fleet, String(flow['id']), 'plain')).toEqual({
    added: upTo(3).map(() => ({ tasks: 1, duplicate: false })),
  });
  expect(await resultOf(fleet, String(flow['id']), 'made')).toEqual({ id: 7, n: 12345678901.5 });
  expect(await resultOf(fleet, String(flow['id']), 'second')).toEqual({ got: { id: 7, n: 12345678901.5 } });
  expect(flow.graph.map(({ name, level }) => [name, level])).toEqual([
    ['check', 0],
    ['split', 1],
    ['last', 4],
    ['plain', 2],
    ['made', 2],
    ['second', 3],
  ]);
  const after = stepIn(flow, 'last')['after'] as readonly string[];
  expect(after.toSorted()).toEqual(['made', 'plain', 'second', 'split']);
  const { body } = await call(fleet.producer().url, 'GET', `/v1/tasks/${stepIn(flow, 'second').taskId ?? ''}`);
  expect(body).toMatchObject({ priority: 9, maxAttempts: 7, flow: { step: 'second' } });
});

test('members are added to a group that has some, by each of a group of steps; what follows the group waits for all', async () => {
  const before = await deadlocks(fleet.database.database);
  const x2 = { name: 'more', type: step, inputs: [{}] };
  const flow = await runFlow({
    steps: {
      encode: { type: step, inputs: [{ give: 'a' }, { give: 'b' }] },
      split: { type: 'flow.split', inputs: upTo(20).map(() => adding(group(3), x2)) },
      joined: { type: step, after: ['split'], input: { all: { $result: 'encode' } } },
    },
  });
  expect(flow).toMatchObject({ state: 'succeeded', steps: { total: 2 + 20 + 20 * 4 + 1 } });
  const { all } = (await resultOf(fleet, String(flow['id']), 'joined')) as { readonly all: readonly unknown[] };
  expect(all.slice(0, 2)).toEqual(['a', 'b']);
  expect(all.slice(2).toSorted((a, b) => Number(a) - Number(b))).toEqual(upTo(60).map((n) => Math.floor(n / 20)));
  expect(await deadlocks(fleet.database.database)).toBe(before);
});

test('what was added adds to its own group, level by level, and the step after it waits for all of that', async () => {
  const nested = (levels: number): Json =>
    levels === 0
      ? {}
      : adding({ name: 'encode', type: 'flow.split', inputs: [nested(levels - 1), nested(levels - 1)] });
  const flow = await runFlow(splitAndJoin(nested(3)));
  expect(flow).toMatchObject({ state: 'succeeded', steps: { total: 2 + 2 + 4 + 8 } });
  expect(stepIn(flow, 'joined')).toMatchObject({ level: 4, after: expect.arrayContaining(['split', 'encode']) });
  const { all } = (await resultOf(fleet, String(flow['id']), 'joined')) as { readonly all: readonly unknown[] };
  expect(all).toHaveLength(14);
});

test('an attempt that failed after it added, and is repeated, finds what it added', async () => {
  const add = adding(group(4), { name: 'more', type: step });
  const flow = await runFlow(splitAndJoin({ ...add, failures: 2 }));
  expect(flow).toMatchObject({ state: 'succeeded', steps: { total: 7, open: 0, failed: 0 } });
  expect(await resultOf(fleet, String(flow['id']), 'split')).toEqual({
    added: [
      { tasks: 4, duplicate: true },
      { tasks: 1, duplicate: true },
    ],
  });
  expect(await resultOf(fleet, String(flow['id']), 'joined')).toEqual({ all: [0, 1, 2, 3] });
});

test('invariant 3: a worker that is killed after it added has added once, and each step runs once', async () => {
  const input = { ...adding(group(10)), killedIn: 1, journal: fleet.journal };
  const id = await start(fleet, splitAndJoin(input));
  await fleet.start('worker').ready();
  const flow = await ended(fleet, id);
  expect(flow).toMatchObject({ state: 'succeeded', steps: { total: 12 } });
  const { attempt } = stepIn(flow, 'split');
  expect(attempt).toBe(2);
  expect(await resultOf(fleet, String(flow['id']), 'split')).toEqual({ added: [{ tasks: 10, duplicate: true }] });
  expect(await resultOf(fleet, String(flow['id']), 'joined')).toEqual({ all: upTo(10) });
  const ran = fleet.entries().filter(({ note }) => note?.startsWith('encode-'));
  expect(ran).toHaveLength(10);
  expect(new Set(ran.map(({ note }) => note))).toEqual(new Set(upTo(10).map((n) => `encode-${n}`)));
});

test('what was added shares the fate of what comes after: a step that dies stops, is gone past, or is ignored', async () => {
  const dying = { ...adding(group(3)), failures: 3 };
  const stopped = await runFlow(splitAndJoin(dying));
  expect(stopped).toMatchObject({ state: 'failed', steps: { total: 5, open: 0, failed: 1 } });
  expect(statesOf(stopped)).toMatchObject({ split: 'dead', encode: { cancelled: 3 }, joined: 'cancelled' });
  const partial = await runFlow({ ...splitAndJoin(dying), onFailure: 'continue' });
  expect(partial).toMatchObject({ state: 'partial' });
  expect(statesOf(partial)).toMatchObject({ split: 'dead', encode: { cancelled: 3 }, joined: 'cancelled' });
  const ignoring = splitAndJoin(dying);
  const { split, ...others } = ignoring['steps'] as Record<string, Json>;
  const ignored = await runFlow({ steps: { split: { ...split, onFailure: 'ignore' }, ...others } });
  expect(statesOf(ignored)).toMatchObject({ split: 'dead', encode: { succeeded: 3 }, joined: 'succeeded' });

  // A member that dies is as any step; its group's rule is its rule.
  const member = { name: 'encode', type: step, inputs: [{ failures: 2 }, { give: 1 }] };
  expect(await runFlow(splitAndJoin(adding(member)))).toMatchObject({ state: 'failed' });
  const spared = await runFlow(splitAndJoin(adding(member), { onFailure: 'ignore' }));
  expect(spared).toMatchObject({ state: 'succeeded' });
  expect(await resultOf(fleet, String(spared['id']), 'joined')).toEqual({ all: [null, 1] });
});

test('a replay of the step that died, and a retry from it, make what it added anew, and it is found', async () => {
  const failed = await runFlow(splitAndJoin({ ...adding(group(3)), failures: 3 }));
  const { url } = fleet.deadLetterHandler();
  const letter = `/v1/dead-letters/${String(stepIn(failed, 'split')['deadLetterId'])}/replay`;
  expect((await call(url, 'POST', letter, { reason: 'mended' })).status).toBe(200);
  const mended = await eventually(async () => {
    const flow = await get(fleet, String(failed['id']));
    expect(flow).toMatchObject({ state: 'succeeded' });
    return flow;
  });
  expect(mended).toMatchObject({ steps: { total: 5, open: 0, failed: 0 } });
  expect(await resultOf(fleet, String(mended['id']), 'split')).toEqual({ added: [{ tasks: 3, duplicate: true }] });
  expect(await resultOf(fleet, String(mended['id']), 'joined')).toEqual({ all: [0, 1, 2] });

  const flow = await runFlow(splitAndJoin(adding(group(3))));
  expect(await retry(flow['id'], { from: 'split' })).toBe(5);
  const again = await ended(fleet, String(flow['id']));
  expect(again).toMatchObject({ state: 'succeeded', steps: { total: 5, open: 0, failed: 0 } });
  expect(stepIn(again, 'split').taskId).not.toBe(stepIn(flow, 'split').taskId);
  expect(await resultOf(fleet, String(again['id']), 'split')).toEqual({ added: [{ tasks: 3, duplicate: true }] });
  expect(await resultOf(fleet, String(again['id']), 'joined')).toEqual({ all: [0, 1, 2] });
  const { rows: members } = await fleet.database.database.query({
    text: `select t.state::text as state, cardinality(s.earlier) as earlier from flow_steps s join tasks t on t.id = s.task_id
            where s.flow_id = $1 and s.name = 'encode'`,
    values: [flow['id']],
  });
  expect(members).toEqual(upTo(3).map(() => ({ state: 'succeeded', earlier: 1 })));
});

test.each([
  ['without members', []],
  ['with one', [{ give: 's' }]],
])(
  'what was added is undone with the rest: members of a group declared %s by its undo, before what they came from',
  async (what, inputs) => {
    const { journal } = fleet;
    const flow = await runFlow({
      onFailure: 'compensate',
      steps: {
        split: {
          type: 'flow.split',
          input: adding(group(3)),
          undo: { type: step, input: { journal, name: `un-split ${what}` } },
        },
        encode: {
          type: step,
          inputs,
          after: ['split'],
          undo: { type: step, input: { journal, name: `un-encode ${what}`, give: { $result: 'encode' } } },
        },
        joined: { type: step, after: ['encode'], input: { failures: 2 } },
      },
    });
    expect(flow).toMatchObject({ state: 'failed', phase: 'undo' });
    expect(statesOf(flow)).toMatchObject({
      'undo encode': { succeeded: inputs.length + 3 },
      'undo split': 'succeeded',
    });
    const undone = fleet.entries().filter(({ note }) => note?.startsWith('un-') === true && note.endsWith(what));
    expect(undone.map(({ note }) => note)).toEqual([
      ...upTo(inputs.length + 3).map(() => `un-encode ${what}`),
      `un-split ${what}`,
    ]);
    const { rows: gave } = await fleet.database.database.query({
      text: `select convert_from(t.result, 'UTF8') as result from flow_steps s join tasks t on t.id = s.task_id
            where s.flow_id = $1 and s.name = 'undo encode' order by s.member`,
      values: [flow['id']],
    });
    expect(gave.map((row) => (row as { readonly result: string }).result)).toEqual([
      ...inputs.map(({ give }) => JSON.stringify(give)),
      ...upTo(3).map(String),
    ]);
  },
);

test('a step that waits for a signal waits for what is added first, and its time runs anew from then; inputs refer to signals', async () => {
  const id = await start(fleet, {
    onFailure: 'continue',
    steps: {
      encode: { type: step, inputs: [{ give: 1 }] },
      split: {
        type: 'flow.split',
        input: { ...adding({ ...x, name: 'encode', inputs: [{ ms: 1_200 }] }), beforeMs: 100 },
      },
      late: { type: step, after: ['encode'], signal: { name: 'never', timeoutMs: 800 } },
      go: { type: step, signal: { name: 'go' } },
      asked: {
        type: 'flow.split',
        after: ['go'],
        input: adding({ ...x, input: { got: { $signal: 'go', path: '/n' } } }),
      },
    },
  });
  await call(fleet.producer().url, 'POST', `/v1/flows/${id}/signals/go`, { data: { n: [1.5] } });
  const flow = await ended(fleet, id);
  expect(flow).toMatchObject({ state: 'partial' });
  expect(statesOf(flow)).toMatchObject({ encode: { succeeded: 2 }, late: 'expired', x: 'succeeded' });
  expect(await resultOf(fleet, String(flow['id']), 'x')).toEqual({ got: [1.5] });
  const { rows: times } = await fleet.database.database.query({
    text: `select max(t.finished_at) filter (where s.name = 'late') - max(t.finished_at) filter (where s.name = 'encode') > interval '700 ms' as is_late
             from flow_steps s join tasks t on t.id = s.task_id where s.flow_id = $1`,
    values: [id],
  });
  expect(times).toEqual([{ is_late: true }]);
});

test('what was added has the business key of its flow, and an erasure leaves nothing of how it was asked for', async () => {
  const flow = await runFlow({
    ...splitAndJoin(adding(group(2)), { undo: { type: step, input: { secret: 'of Mary' } } }),
    businessType: 'person',
    businessKey: 'mary',
  });
  const erasure = { businessKey: 'mary', reason: 'request 7' };
  const { status, body } = await call(fleet.producer().url, 'POST', '/v1/erasures', erasure);
  expect([status, body]).toMatchObject([200, { erased: { tasks: 4 } }]);
  const { rows: left } = await fleet.database.database.query({
    text: `select count(*) filter (where f.groups is not null or s.added_as is not null or s.refs is not null or s.spec is not null)::int4 as n
             from flows f join flow_steps s on s.flow_id = f.id where f.id = $1`,
    values: [flow['id']],
  });
  expect(left).toEqual([{ n: 0 }]);
});

describe('what cannot be added is refused by name, and the handler may go on', () => {
  test('its members', async () => {
    const bad: readonly (readonly [Json, string, string, RegExp])[] = [
      [{ name: '1bad', type: step }, 'field-invalid', 'name', /must be a letter/],
      [{ name: 'x' }, 'field-invalid', 'type', /is required/],
      [{ name: 'x', type: 'no.such' }, 'task-type-unknown', 'type', /no announced/],
      [{ name: 'x', type: 'warren.webhook' }, 'field-invalid', 'type', /for Warren alone/],
      [{ ...x, queue: 'no-such' }, 'queue-unknown', 'queue', /no queue/],
      [{ ...x, priority: 10 }, 'field-invalid', 'priority', /from 0 to 9/],
      [{ ...x, maxAttempts: 0 }, 'field-invalid', 'maxAttempts', /from 1 to 100/],
      [{ ...x, delayMs: -1 }, 'field-invalid', 'delayMs', /from 0 to/],
      [{ ...x, onFailure: 'maybe' }, 'field-invalid', 'onFailure', /one of stop, continue, ignore/],
      [{ ...x, signal: { name: 's' } }, 'field-invalid', 'signal', /allowed are type, input/],
      [{ ...x, input: {}, inputs: [] }, 'field-invalid', 'inputs', /together with input/],
      [{ ...x, input: [] }, 'field-invalid', 'input', /an object/],
      [{ ...x, inputs: [{}, { text: 'a\0b' }] }, 'text-invalid', 'inputs[1].text', /U\+0000/],
      [{ ...x, input: { n: 2 ** 60 } }, 'number-not-exact', 'input.n', /as a string/],
      [{ ...x, input: deep(64) }, 'body-too-large', 'input', /deeper than 64/],
      [{ ...x, length: 262_144 }, 'body-too-large', 'input', /more than 262144/],
      [{ ...x, pieces: 10_001 }, 'field-invalid', 'inputs', /must be at most 10000 inputs at once/],
      [{ ...x, after: ['split', 'no'] }, 'field-invalid', 'after[1]', /no step that is in this flow/],
      [{ ...x, after: ['x'] }, 'field-invalid', 'after[0]', /no step that is in this flow/],
      [{ ...x, after: ['joined'] }, 'field-invalid', 'after', /circle/],
      [{ ...x, inputs: [{ a: [{ $result: 'nobody' }] }] }, 'field-invalid', 'inputs[0].a[0]', /no step/],
      [{ ...x, input: { a: { $signal: 'nobody' } } }, 'field-invalid', 'input.a', /no step waits for/],
      [{ ...x, input: { a: { $result: 'split', path: 'x' } } }, 'field-invalid', 'input.a', /RFC 6901/],
      [{ name: 'joined', type: step }, 'step-refused', 'name', /is a step of this flow already/],
      [{ name: 'encode', type: step }, 'step-refused', 'name', /is a group of this flow/],
    ];
    const add = adding(...bad.map(([asked]) => asked));
    const flow = await runFlow(splitAndJoin({ ...add, catches: true }));
    expect(flow).toMatchObject({ state: 'succeeded', steps: { total: 2 } });
    const { added } = (await resultOf(fleet, String(flow['id']), 'split')) as { readonly added: readonly Json[] };
    expect(added).toEqual(
      bad.map(([, code, field, reason]) => ({ code, field, reason: expect.stringMatching(reason) })),
    );
  });

  test('a task that is no step, and a flow that has stopped', async () => {
    const { url } = fleet.producer();
    const { body } = await call(url, 'POST', '/v1/tasks', {
      type: 'flow.split',
      input: { ...adding(group(1)), catches: true },
    });
    await eventually(async () => {
      const { body: task } = await call(url, 'GET', `/v1/tasks/${String(body['id'])}`);
      expect(task['result']).toEqual({
        added: [{ code: 'step-refused', field: 'task', reason: expect.stringContaining('is no step of a flow') }],
      });
    });
    const flow = await runFlow({
      steps: {
        dies: { type: step, input: { failures: 2 } },
        split: { type: 'flow.split', input: { ...adding(group(1)), beforeMs: 1_500, catches: true } },
      },
    });
    expect(await resultOf(fleet, String(flow['id']), 'split')).toEqual({
      added: [{ code: 'step-refused', field: 'flow', reason: expect.stringContaining('has stopped') }],
    });
  });

  test('the same name with other content, and after what waits for the group has begun', async () => {
    const flow = await runFlow({
      steps: {
        early: { type: step, inputs: [{ give: 1 }] },
        done: { type: step, after: ['early'] },
        split: {
          type: 'flow.split',
          input: {
            ...adding(
              { name: 'x', type: step, input: { a: 1, b: 2 } },
              { name: 'x', type: step, input: { b: 2, a: 1 } },
              { name: 'x', type: step, input: { a: 2 } },
              { ...group(2), name: 'many' },
              { ...group(3), name: 'many' },
              { ...group(1), name: 'early' },
            ),
            beforeMs: 1_500,
            catches: true,
          },
        },
      },
    });
    expect(flow).toMatchObject({ state: 'succeeded', steps: { total: 6 } });
    const other = { code: 'step-refused', field: 'name', reason: expect.stringContaining('other content') };
    expect(await resultOf(fleet, String(flow['id']), 'split')).toEqual({
      added: [
        { tasks: 1, duplicate: false },
        { tasks: 1, duplicate: true },
        other,
        { tasks: 2, duplicate: false },
        other,
        { code: 'step-refused', field: 'name', reason: 'is waited for by done, which has begun' },
      ],
    });
  });
});

test('invariant 2: an attempt that has lost its claim adds nothing, and 20 that add the same at once add it once', async () => {
  await using opened = await openDatabase();
  const db = opened.database;
  const worker = await openWorker(db);
  const metrics = createMetrics({ service: 'worker', version: '', withProcess: false });
  const adder = new DatabaseStepAdder({ ...partDeps, db, metrics }, { messageBytes: 10_000, depth: 8 });
  const { signal } = new AbortController();
  const taskId = await addTask(db);
  await announceQueues(db, ['default']);
  await db.query({
    text: `insert into task_types (name, queue, priority, timeout_ms, max_attempts, description, code_version)
           values ('test.noop', 'default', 4, 1000, 3, '{}', '') on conflict do nothing`,
  });
  const [flow] = await rows<{ id: string }>(
    db,
    `with f as (insert into flows (id, name, on_failure, steps_total, steps_open) values (uuid_v7(), 'x', 'stop', 1, 1) returning id),
          s as (insert into flow_steps (flow_id, step, name, task_id) select id, 0, 'only', $1::uuid from f)
     update tasks set flow_id = f.id, flow_step = 0 from f where tasks.id = $1::uuid returning f.id`,
    taskId,
  );
  const lost = await worker.win(taskId);
  await worker.settles.settle(lost, aHandBack());
  const claim = await worker.win(taskId);
  const asked = { name: 'more', options: JSON.stringify({ type: 'test.noop', inputs: [{ n: 1 }, { n: 2 }] }) };
  await expect(adder.add(lost, asked, signal)).rejects.toMatchObject({ code: 'claim-lost' });
  expect(await count(db, 'flow_steps')).toBe(1);
  await using faulty = await openFaulty(db);
  faulty.fault = once('add_steps', 'lose');
  const unheard = new DatabaseStepAdder({ ...partDeps, db: faulty, metrics }, { messageBytes: 10_000, depth: 8 });
  expect(await unheard.add(claim, { ...asked, name: 'first' }, signal)).toMatchObject({ duplicate: true });
  expect(await count(db, 'flow_steps')).toBe(3);
  const answers = await Promise.all(upTo(20).map(async () => await adder.add(claim, asked, signal)));
  expect(answers.filter(({ duplicate }) => !duplicate)).toHaveLength(1);
  expect(new Set(answers.map(({ taskIds }) => taskIds.join()))).toHaveProperty('size', 1);
  expect(await count(db, 'flow_steps', `flow_id = '${flow?.id ?? ''}'`)).toBe(5);
  expect(await rows(db, 'select steps_total, steps_open from flows')).toEqual([{ steps_total: 5, steps_open: 5 }]);
  expect(await worker.settles.succeed(claim, undefined)).toBe('succeeded');
  await expect(adder.add(claim, asked, signal)).rejects.toMatchObject({ code: 'claim-lost' });
  expect(await count(db, 'tasks', `state = 'pending'`)).toBe(4);
});
