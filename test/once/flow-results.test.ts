/** Results of groups, read page by page: in a handler, over HTTP, by the client and on the command line. */
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import { call } from '../../scripts/call.ts';
import { createClient } from '../../client/src/client.ts';
import type { StepResult } from '../../client/src/flow-client.ts';
import { DatabaseStepReader } from '../../services/worker/step-reader.ts';
import type { ResultsPage } from '../../services/worker/step-reader.ts';
import { addTask, once, openFaulty, partDeps, rows } from '../support/core.ts';
import { warren } from '../support/cli-io.ts';
import { openDatabase } from '../support/database.ts';
import { eventually } from '../support/eventually.ts';
import { openFleet } from '../support/fleet.ts';
import type { Fleet } from '../support/fleet.ts';
import { ended, resultOf, start, statesOf, stepIn } from '../support/flows.ts';
import type { Json, ShownFlow } from '../support/flows.ts';

const step = 'flow.step';
const SUMS = ['flow.sum', 'flow.sum.thread'] as const;
const upTo = (n: number): number[] => Array.from({ length: n }, (_each, index) => index);

let folder: string;
let fleet: Fleet;
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'warren-results-'));
  fleet = await openFleet({
    tasks: ['steps', 'splitters', 'joiners'],
    deadLetterHandlers: 1,
    workers: 2,
    env: { WARREN_FILES_STORE: 'fs', WARREN_FILES_DIRECTORY: folder },
  });
}, 120_000);
afterAll(async () => {
  await fleet[Symbol.asyncDispose]();
  await rm(folder, { recursive: true });
});

const runFlow = async (flow: Json): Promise<ShownFlow> => await ended(fleet, await start(fleet, flow), 120_000);
/** A flow with a step of each kind that reads `group`, on the loop and in a thread. */
const readBoth = (group: Json, input: Json, more: Json = {}): Json => ({
  steps: {
    group,
    ...Object.fromEntries(SUMS.map((type) => [type.replaceAll('.', '-'), { type, after: ['group'], input }])),
  },
  ...more,
});
/** What both of them gave. */
const both = async (flow: ShownFlow): Promise<readonly unknown[]> =>
  await Promise.all(SUMS.map(async (type) => await resultOf(fleet, String(flow['id']), type.replaceAll('.', '-'))));

interface Page {
  readonly items: readonly StepResult[];
  readonly nextCursor?: string;
}

const readPage = async (path: string): Promise<Page> => {
  const { status, body } = await call(fleet.producer().url, 'GET', path);
  if (status !== 200) throw new Error(JSON.stringify(body));
  return body as unknown as Page;
};
/** All pages over HTTP. */
async function readPages(flow: ShownFlow, name: string, limit: number): Promise<readonly Page[]> {
  const path = `/v1/flows/${String(flow['id'])}/steps/${name}/results?limit=${limit}`;
  const pages = [await readPage(path)];
  for (let cursor = pages[0]?.nextCursor; cursor !== undefined; cursor = pages.at(-1)?.nextCursor) {
    pages.push(await readPage(`${path}&cursor=${cursor}`));
  }
  return pages;
}
const itemsOf = async (flow: ShownFlow, name: string): Promise<readonly StepResult[]> =>
  (await readPages(flow, name, 200)).flatMap(({ items }) => items);
async function byClient(flow: ShownFlow, name: string): Promise<readonly StepResult[]> {
  const client = createClient({ url: fleet.producer().url });
  const items: StepResult[] = [];
  for await (const item of client.flows.results(String(flow['id']), name)) items.push(item);
  return items;
}
const run = async (flow: ShownFlow, ...args: readonly string[]): ReturnType<typeof warren> =>
  await warren(['flow', 'results', String(flow['id']), ...args], { env: { WARREN_URL: fleet.producer().url } });

test('three thousand results of 500 bytes are summed on the loop and in a thread, and each is given once by every door', async () => {
  const n = 3_000;
  const group = { type: step, inputs: upTo(n).map((i) => ({ give: { n: i, text: 'x'.repeat(480) } })) };
  const all = { $result: 'group' };
  const flow = await runFlow(readBoth(group, { step: 'group', all }));
  expect(flow).toMatchObject({ state: 'succeeded', steps: { total: n + 2 } });
  const bytes = upTo(n).reduce((sum, i) => sum + JSON.stringify({ n: i, text: 'x'.repeat(480) }).length + 1, 1);
  const omitted = { $omitted: 'results', bytes, flow: flow['id'], step: 'group', count: n };
  const summed = { count: n, total: (n * (n - 1)) / 2, inOrder: true, all: omitted };
  expect(await both(flow)).toEqual([summed, summed]);

  const pages = await readPages(flow, 'group', 200);
  expect(pages.map(({ items }) => items.length)).toEqual(upTo(15).map(() => 200));
  const items = pages.flatMap((page) => page.items);
  expect(items.map(({ member }) => member)).toEqual(upTo(n));
  expect(new Set(items.map(({ taskId }) => taskId)).size).toBe(n);
  expect(items[7]).toEqual({
    member: 7,
    taskId: expect.any(String),
    state: 'succeeded',
    result: { n: 7, text: 'x'.repeat(480) },
  });
  expect(await byClient(flow, 'group')).toEqual(items);
  const whole = await run(flow, 'group', '--all', '--json');
  expect(whole.json()).toEqual({ items });
  const table = (await run(flow, 'group', '--all')).stdout.trim().split('\n');
  expect(table.map((line) => line.split(' ')[0])).toEqual(['MEMBER', ...upTo(n).map(String)]);
  const shown = await run(flow, 'group', '--limit', '2');
  expect(shown.stdout).toMatch(/^MEMBER +TASK +STATE +RESULT\n0 +[\w-]{36} +succeeded +\{"n":0,"text":"x+"\}\n/);
  expect(shown).toMatchObject({ exitCode: 0, stderr: expect.stringMatching(/More: add --cursor/) });
  expect(shown.stdout.trim().split('\n')).toHaveLength(3);
  const part = (await run(flow, 'group', '--limit', '2', '--json')).json<Page>();
  expect(part).toEqual({ items: items.slice(0, 2), nextCursor: expect.any(String) });
}, 240_000);

test.each([0, 1])('a group of %d, and a single step, are read as any other', async (n) => {
  const flow = await runFlow(
    readBoth({ type: step, inputs: upTo(n).map((i) => ({ give: { n: i } })) }, { step: 'group' }),
  );
  const summed = { count: n, total: 0, inOrder: true };
  expect(await both(flow)).toEqual([summed, summed]);
  expect(await readPages(flow, 'group', 1)).toEqual([
    { items: upTo(n).map((i) => ({ member: i, taskId: expect.any(String), state: 'succeeded', result: { n: i } })) },
  ]);
  expect(await byClient(flow, 'group')).toHaveLength(n);
  const found = await run(flow, 'group', '--all');
  expect([found.stdout === '', found.stderr]).toEqual(n === 0 ? [true, 'Nothing found.\n'] : [false, '']);
  expect((await run(flow, 'group', '--all', '--json')).json<Page>().items).toHaveLength(n);

  const single = await runFlow(
    readBoth({ type: step, input: { give: { who: { id: 7.5 } } } }, { step: 'group', whole: true, path: '/who/id' }),
  );
  expect(await both(single)).toEqual([[7.5], [7.5]]);
  const { taskId } = stepIn(single, 'group');
  expect(await itemsOf(single, 'group')).toEqual([{ taskId, state: 'succeeded', result: { who: { id: 7.5 } } }]);
});

test('null stands for what gave nothing, failed and is ignored, or has nothing at the path; a result in the store is its reference', async () => {
  const inputs = [{ give: [1, { a: 'first' }] }, { failures: 2 }, { repeat: 100_000 }, { give: null }, {}];
  const group = { type: step, inputs, onFailure: 'ignore' };
  const file = { $file: expect.any(String), name: 'result.json', contentType: 'application/json', bytes: 100_002 };
  const whole = await runFlow(readBoth(group, { step: 'group', whole: true }));
  expect(whole).toMatchObject({ state: 'succeeded' });
  const results = [[1, { a: 'first' }], null, file, null, {}];
  expect(await both(whole)).toEqual([results, results]);
  expect((await itemsOf(whole, 'group')).map(({ member, state, result }) => [member, state, result])).toEqual([
    [0, 'succeeded', [1, { a: 'first' }]],
    [1, 'dead', undefined],
    [2, 'succeeded', file],
    [3, 'succeeded', null],
    [4, 'succeeded', {}],
  ]);
  const part = await runFlow(readBoth(group, { step: 'group', whole: true, path: '/1/a' }));
  expect(await both(part)).toEqual([
    ['first', null, null, null, null],
    ['first', null, null, null, null],
  ]);
}, 60_000);

test('a page is bounded by the bytes of its results, and a result larger than that is a page by itself', async () => {
  const group = { type: step, inputs: upTo(40).map(() => ({ repeat: 60_000 })) };
  const flow = await runFlow(readBoth(group, { step: 'group' }));
  expect((await readPages(flow, 'group', 200)).map(({ items }) => items.length)).toEqual([17, 17, 6]);
  expect(await both(flow)).toMatchObject([{ count: 40 }, { count: 40 }]);
  // As a worker with another worker.resultMaxBytes would have left it.
  await fleet.database.database.query({
    text: `update tasks set result = convert_to(to_json(repeat('y', 3000000))::text, 'UTF8')
            where id = (select task_id from flow_steps where flow_id = $1 and member = 16 and name = 'group')`,
    values: [flow['id']],
  });
  expect((await readPages(flow, 'group', 200)).map(({ items }) => items.length)).toEqual([16, 1, 17, 6]);
  expect((await byClient(flow, 'group')).map(({ member }) => member)).toEqual(upTo(40));
}, 60_000);

test('a result has the very bytes that were stored', async () => {
  const flow = await runFlow({ steps: { group: { type: step, inputs: [{}] } } });
  await fleet.database.database.query({
    text: `update tasks set result = $2 where id = (select task_id from flow_steps where flow_id = $1)`,
    values: [flow['id'], Buffer.from('{ "n": 1.500, "m": [ ] }')],
  });
  const path = `/v1/flows/${String(flow['id'])}/steps/group/results`;
  const answer = await fetch(fleet.producer().url + path);
  expect(await answer.text()).toContain('"result":{ "n": 1.500, "m": [ ] }}]');
  expect((await run(flow, 'group', '--json')).stdout).toContain('{ "n": 1.500, "m": [ ] }');
});

test('results are read as they are while the flow runs', async () => {
  const id = await start(fleet, {
    steps: {
      group: { type: step, inputs: [{ give: 1 }, { give: 2, ms: 60_000 }] },
      early: { type: 'flow.sum', input: { step: 'group', whole: true } },
    },
  });
  const items = await eventually(async () => {
    const page = await readPage(`/v1/flows/${id}/steps/group/results`);
    expect(page.items).toMatchObject([{ state: 'succeeded' }, { state: 'running' }]);
    return page.items;
  });
  expect(items.map((item) => [Object.hasOwn(item, 'result'), item.result])).toEqual([
    [true, 1],
    [false, undefined],
  ]);
  await call(fleet.producer().url, 'POST', `/v1/flows/${id}/cancel`, {});
  const flow = await ended(fleet, id);
  expect(statesOf(flow)).toMatchObject({ early: 'succeeded' });
});

test('members that were added between those of another group are given once, after those that were there', async () => {
  const add = JSON.stringify([
    { name: 'group', type: step, pieces: 3 },
    { name: 'others', type: step, pieces: 1 },
  ]);
  const flow = await runFlow({
    steps: {
      split: { type: 'flow.split', inputs: upTo(20).map(() => ({ add })) },
      group: { type: step, inputs: [{ give: 'first' }], undo: { type: step } },
      sum: { type: 'flow.sum', after: ['split', 'group'], input: { step: 'group', whole: true } },
    },
  });
  const given = await resultOf(fleet, String(flow['id']), 'sum');
  expect(given).toEqual(['first', ...upTo(60).map((n) => n % 3)]);
  const items = (await readPages(flow, 'group', 7)).flatMap((page) => page.items);
  expect(items.map(({ member, result }) => [member, result])).toEqual((given as unknown[]).map((r, n) => [n, r]));
  expect(new Set(items.map(({ taskId }) => taskId)).size).toBe(61);
  expect((await itemsOf(flow, 'others')).map(({ result }) => result)).toEqual(upTo(20).map(() => 0));
});

test('what undoes and what runs for a failure read the results of their flow', async () => {
  const reading = { type: 'flow.sum', input: { step: 'group', whole: true } };
  const flow = await runFlow({
    onFailure: 'compensate',
    failureStep: reading,
    steps: {
      group: { type: step, inputs: [{ give: 1 }, { give: 2 }] },
      done: { type: step, after: ['group'], undo: reading },
      dies: { type: step, after: ['done'], input: { failures: 2 } },
    },
  });
  const readers = flow.graph.filter(({ kind }) => kind !== 'step');
  expect(readers.map(({ kind, state }) => [kind, state])).toEqual([
    ['undo', 'succeeded'],
    ['failure', 'succeeded'],
  ]);
  for (const { name } of readers) expect(await resultOf(fleet, String(flow['id']), name)).toEqual([1, 2]);
});

test('what stands for the result of one member, in what undoes it, says which', async () => {
  const ref = { $result: 'group' };
  const undo = { type: step, input: { before: upTo(17).map(() => ref), give: ref } };
  const flow = await runFlow({
    onFailure: 'compensate',
    steps: {
      group: { type: step, inputs: upTo(2).map(() => ({ repeat: 63_000 })), undo },
      dies: { type: step, after: ['group'], input: { failures: 2 } },
    },
  });
  expect(statesOf(flow)).toMatchObject({ 'undo group': { succeeded: 2 } });
  const { rows: undone } = await fleet.database.database.query({
    text: `select convert_from(t.result, 'UTF8')::json as result from flow_steps s join tasks t on t.id = s.task_id
            where s.flow_id = $1 and s.kind = 'undo' order by s.member`,
    values: [flow['id']],
  });
  const omitted = { $omitted: 'results', bytes: 63_002, flow: flow['id'], step: 'group', count: 1 };
  expect(undone).toEqual(upTo(2).map((member) => ({ result: { ...omitted, member } })));
});

test('pages of a handler are bounded by results and by bytes, and are asked for again where the answer was lost', async () => {
  await using opened = await openDatabase();
  const db = opened.database;
  const taskId = await addTask(db);
  await rows(
    db,
    `with f as (insert into flows (id, name, on_failure, steps_total, steps_open) values (uuid_v7(), 'x', 'stop', 1, 1) returning id),
          own as (update tasks set flow_id = f.id, flow_step = 0 from f where tasks.id = $1::uuid),
          made as (insert into tasks (id, state, max_attempts, priority, type, queue, input, started_at, finished_at, attempt, flow_id, flow_step, result)
                   select uuid_v7(), 'succeeded', 3, 4, 'test.noop', 'default', '{}', now(), now(), 1, f.id, n,
                          convert_to(to_json(n || repeat('x', case when n <= 1200 then 100 else 3000 end))::text, 'UTF8')
                     from f cross join generate_series(1, 2000) n returning id, flow_id, flow_step)
     insert into flow_steps (flow_id, step, name, member, task_id)
     select f.id, 0, 'own', null, $1::uuid from f union all select flow_id, flow_step, 'many', flow_step - 1, id from made`,
    taskId,
  );
  await using faulty = await openFaulty(db);
  const reader = new DatabaseStepReader({ ...partDeps, db: faulty });
  const { signal } = new AbortController();
  // No attempt has it: reading shows no claim.
  const proof = { taskId, attempt: 7, claimId: taskId };
  const sizes: (readonly [results: number, kibibytes: number])[] = [];
  const all: string[] = [];
  for (let after: number | undefined = -1; after !== undefined;) {
    faulty.fault = once('read_own_results', 'lose');
    const { results, next }: ResultsPage = await reader.read(proof, { name: 'many', after }, signal);
    expect(faulty.fault('read_own_results')).toBeUndefined(); // it was lost, and is no more
    sizes.push([results.length, Math.ceil(results.join('').length / 1_024)]);
    all.push(...results.map((text) => String(JSON.parse(text ?? '')).replaceAll('x', '')));
    after = next;
  }
  expect(all).toEqual(upTo(2_000).map((n) => String(n + 1)));
  expect(sizes).toEqual([
    [500, 52],
    [500, 52],
    [500, 902],
    [348, 1_022],
    [152, 447],
  ]);
}, 60_000);

test('what was erased is there without its result, and what retention has deleted without its state', async () => {
  const group = { type: step, inputs: [{ give: 'secret' }, { give: 'of Mary' }] };
  const flow = await runFlow({ ...readBoth(group, { step: 'group' }), businessType: 'person', businessKey: 'mary' });
  const { status } = await call(fleet.producer().url, 'POST', '/v1/erasures', { businessKey: 'mary', reason: 'asked' });
  expect(status).toBe(200);
  const taskId = expect.any(String);
  expect(await itemsOf(flow, 'group')).toEqual([
    { member: 0, taskId, state: 'succeeded' },
    { member: 1, taskId, state: 'succeeded' },
  ]);
  await fleet.database.database.query({
    text: `delete from tasks where id = (select task_id from flow_steps where flow_id = $1 and member = 1)`,
    values: [flow['id']],
  });
  expect(await itemsOf(flow, 'group')).toEqual([
    { member: 0, taskId, state: 'succeeded' },
    { member: 1, taskId },
  ]);
  expect((await run(flow, 'group')).stdout).toMatch(/1 +[\w-]{36} +deleted\n$/);
});

describe('what cannot be read is refused by name', () => {
  test('in a handler: a task that is no step, a step that its flow does not have, a path that is none', async () => {
    const catches = true;
    const lone = async (type: string): Promise<unknown> => {
      const { url } = fleet.producer();
      const { body } = await call(url, 'POST', '/v1/tasks', { type, input: { step: 'group', catches } });
      return await eventually(async () => {
        const { body: task } = await call(url, 'GET', `/v1/tasks/${String(body['id'])}`);
        expect(task).toMatchObject({ state: 'succeeded' });
        return task['result'];
      });
    };
    const noStep = { code: 'step-not-found', field: 'task', reason: expect.stringContaining('is no step of a flow') };
    expect(await Promise.all(SUMS.map(lone))).toEqual([noStep, noStep]);

    // Of another flow, which has such a step.
    await runFlow({ steps: { theirs: { type: step, input: { give: 1 } } } });
    const other = await runFlow(readBoth({ type: step, inputs: [{}] }, { step: 'theirs', catches }));
    const unknown = { code: 'step-not-found', field: 'name', reason: 'names no step of this flow', step: 'theirs' };
    expect(await both(other)).toEqual([unknown, unknown]);
    const badPath = await runFlow(readBoth({ type: step, inputs: [{}] }, { step: 'group', path: 'n', catches }));
    const refused = { code: 'field-invalid', field: 'path', reason: expect.stringContaining('RFC 6901') };
    expect(await both(badPath)).toEqual([refused, refused]);
  });

  test('over HTTP, by the client and on the command line', async () => {
    const flow = await runFlow({ steps: { only: { type: step, input: {} } } });
    const { url } = fleet.producer();
    const id = String(flow['id']);
    const nobody = '0198f3a2-7c10-7d3e-9a4b-2f6c1d8e5b70';
    for (const [path, status, code, field] of [
      [`/v1/flows/${id}/steps/other/results`, 404, 'step-not-found', 'name'],
      [`/v1/flows/${nobody}/steps/only/results`, 404, 'flow-not-found', undefined],
      ['/v1/flows/x/steps/only/results', 400, 'field-invalid', 'id'],
      [`/v1/flows/${id}/steps/only/results?limit=0`, 400, 'field-invalid', 'limit'],
      [`/v1/flows/${id}/steps/only/results?cursor=abc`, 400, 'cursor-invalid', 'cursor'],
    ] as const) {
      const answer = await call(url, 'GET', path);
      expect([path, answer.status, String(answer.body['type']).split('/').at(-1), answer.body['field']]).toEqual([
        path,
        status,
        code,
        field,
      ]);
    }
    await expect(byClient(flow, 'other')).rejects.toMatchObject({ code: 'step-not-found' });
    const refused = await run(flow, 'other');
    expect(refused.exitCode).not.toBe(0);
    expect(refused.stderr).toContain('names no step of this flow');
  });
});
