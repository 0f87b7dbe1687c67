/** The Dead Letter API: lists, whole letters, roles, problem documents, the OpenAPI document. */
import { readFile } from 'node:fs/promises';
import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import { newId } from '../../shared/tasks/ids.ts';
import { addTask, rows } from '../support/core.ts';
import { openDesk } from '../support/dead-letters.ts';
import type { DeadLetterDesk, TestHandler } from '../support/dead-letters.ts';
import { eventually } from '../support/eventually.ts';

const PROBLEM = 'application/problem+json; charset=utf-8';
const NO_LETTER = '0198f3a4-0b52-7e6f-8c1d-4a9e7b3f2c60';

let desk: DeadLetterDesk;
let handler: TestHandler;
beforeAll(async () => {
  desk = await openDesk();
  handler = await desk.handler();
});
afterAll(async () => {
  await desk.drained();
  await desk[Symbol.asyncDispose]();
});

const db = (): DeadLetterDesk['door']['db']['database'] => desk.door.db.database;
const get = async (path: string): ReturnType<TestHandler['get']> => await handler.get(`/v1/dead-letters${path}`);
const post = async (path: string, body: unknown): ReturnType<TestHandler['post']> =>
  await handler.post(`/v1/dead-letters/${path}`, body);

interface Page {
  readonly items: readonly { readonly id: string; readonly diedAt: string }[];
  readonly nextCursor?: string;
}

async function list(query: string): Promise<Page> {
  const { status, json } = await get(`?${query}`);
  expect(status).toBe(200);
  return json as unknown as Page;
}

describe('a whole letter', () => {
  test('of a task has the input byte for byte, what its publisher sent, the error and each attempt', async () => {
    const input = '{ "n": 1.10, "u": "\\u00e4ä",\n "big": "9007199254740993", "__proto__": {"a": [1 , 2]} }';
    const messageId = newId() as string;
    await desk.door.publish('test.noop', input, {
      messageId,
      correlationId: 'c1',
      replyTo: 'nowhere',
      headers: { 'warren-business-key': 'b1', trace: 't1' },
    });
    const taskId = await eventually(async () => {
      const [task] = await rows<{ id: string }>(db(), 'select id from tasks where external_id = $1', messageId);
      if (task === undefined) throw new Error('not accepted yet');
      return task.id;
    });
    await desk.kill(taskId);
    await desk.rejectInvitation(taskId);
    const { id } = await desk.letter(`task_id = '${taskId}' and recorded_at is not null`);
    const { status, text, json } = await get(`/${id}`);
    expect(status).toBe(200);
    expect(text).toContain(`"input":${input}`);
    expect(json).toMatchObject({
      id,
      kind: 'task',
      state: 'open',
      reason: 'non_retryable',
      taskId,
      error: { type: 'DiskFull', message: 'no space' },
      exchange: desk.door.names.tasks,
      routingKey: 'test.noop',
      properties: { replyTo: 'nowhere' },
      headers: { trace: 't1' },
      evidence: { exchange: desk.door.names.work, routingKey: 'default' },
      xDeath: { isVerified: false, value: [{ reason: 'rejected' }] },
      task: { id: taskId, state: 'dead', businessKey: 'b1', correlationId: 'c1', externalId: messageId, attempt: 1 },
      attempts: [{ attempt: 1, outcome: 'failed', error: { type: 'DiskFull' }, codeVersion: 'test' }],
      letters: [{ id, state: 'open' }],
      audit: [],
    });
  });

  test('of another message has its bytes in base64, and as text where they are one', async () => {
    for (const [body, text] of [
      [Buffer.from('{"ü":1}'), '{"ü":1}'],
      [Buffer.from([0xff, 0x00, 0x41]), null],
    ] as const) {
      const messageId = newId() as string;
      await desk.publish(desk.door.names.dlx, 'k', body, { messageId });
      const { id } = await desk.letter(`properties->>'messageId' = '${messageId}'`);
      expect((await get(`/${id}`)).json).toMatchObject({
        kind: 'foreign',
        body: body.toString('base64'),
        text,
        bodyBytes: body.length,
        properties: { messageId },
        attempts: [],
        letters: [],
      });
    }
  });
});

describe('the list', () => {
  test('shows open letters, newest first, in pages that neither repeat nor miss one', async () => {
    for (let letter = 0; letter < 7; letter += 1)
      await desk.publish(desk.door.names.dlx, 'paged', `${letter}`, { messageId: `p${letter}` });
    await eventually(async () => expect(await desk.letters(`routing_key = 'paged'`)).toHaveLength(7));
    const seen: string[] = [];
    let cursor: string | undefined;
    do {
      const page = await list(`limit=3${cursor === undefined ? '' : `&cursor=${cursor}`}`);
      seen.push(...page.items.map(({ id }) => id));
      cursor = page.nextCursor;
    } while (cursor !== undefined);
    const open = await desk.letters(`state = 'open'`);
    expect(seen).toEqual(open.map(({ id }) => id).toReversed());
  });

  test('is narrowed by state, kind, reason, type, queue, task and time of death', async () => {
    const taskId = await desk.deadTask();
    const letter = await desk.letter(`task_id = '${taskId}'`);
    const other = await desk.deadTask();
    const closed = await desk.letter(`task_id = '${other}'`);
    await post(`${closed.id}/discard`, { reason: 'not needed' });
    const ids = async (query: string): Promise<readonly string[]> => (await list(query)).items.map(({ id }) => id);
    expect(await ids(`taskId=${taskId}`)).toEqual([letter.id]);
    expect(await ids(`taskId=${other}`)).toEqual([]);
    expect(await ids(`taskId=${other}&state=all`)).toEqual([closed.id]);
    expect(await ids(`state=discarded&state=replayed`)).toEqual([closed.id]);
    expect(await ids('kind=task&type=test.noop&queue=default&reason=non_retryable')).toContain(letter.id);
    expect(await ids('kind=foreign&kind=refused')).not.toContain(letter.id);
    expect(await ids('type=other')).toEqual([]);
    expect(await ids('reason=timeout')).toEqual([]);
    expect(await ids('queue=other')).toEqual([]);
    const [{ diedAt } = { diedAt: '' }] = (await list(`taskId=${taskId}`)).items;
    expect(await ids(`taskId=${taskId}&diedAfter=${diedAt}`)).toEqual([letter.id]);
    expect(await ids(`taskId=${taskId}&diedBefore=${diedAt}`)).toEqual([]);
    expect(await ids(`taskId=${taskId}&diedAfter=2999-01-01T00:00:00Z`)).toEqual([]);
  });

  test('is narrowed by a filter, together with the other parameters', async () => {
    const taskId = await addTask(db());
    await rows(db(), `update tasks set tags = '{vip}' where id = $1`, taskId);
    await desk.kill(taskId);
    await desk.rejectInvitation(taskId);
    const letter = await desk.letter(`task_id = '${taskId}' and group_id is not null`);
    const filtered = async (filter: string, more = ''): Promise<readonly string[]> =>
      (await list(`filter=${encodeURIComponent(filter)}${more}`)).items.map(({ id }) => id);
    expect(await filtered(`task:${taskId} tag:vip "no space" age:<1h attempts:>=1`)).toEqual([letter.id]);
    expect(await filtered(`task:${taskId} -tag:vip`)).toEqual([]);
    expect(await filtered('tag:vip', `&taskId=${taskId}`)).toEqual([letter.id]);
    expect(await filtered('tag:vip', '&reason=timeout')).toEqual([]);
    expect(await filtered('tag:vip state:all', '&state=replayed')).toEqual([]);
    const { items } = await list(`filter=${encodeURIComponent(`task:${taskId}`)}`);
    expect(items).toMatchObject([{ id: letter.id, tags: ['vip'] }]);
    expect((await get(`/${letter.id}`)).json).toMatchObject({ tags: ['vip'] });
  });

  test('a filter that cannot be read is refused with the place and what is allowed', async () => {
    expect(await get(`?filter=${encodeURIComponent('type:a age:1h')}`)).toMatchObject({
      status: 400,
      type: PROBLEM,
      json: {
        field: 'filter',
        position: 12,
        reason: expect.stringMatching(/^at character 12: age takes a comparison/),
      },
    });
  });

  test.each([
    ['limit=0', 'limit'],
    ['filter=a:b', 'filter'],
    ['filter=a&filter=b', 'filter'],
    ['limit=201', 'limit'],
    ['limit=abc', 'limit'],
    ['state=asleep', 'state'],
    ['kind=%00', 'kind'],
    ['reason=%00', 'reason'],
    ['taskId=7', 'taskId'],
    ['diedAfter=yesterday', 'diedAfter'],
    ['diedBefore=2026-02-30T00:00:00Z', 'diedBefore'],
    ['cursor=!', 'cursor'],
    ['cursor=Ilx1MDAwMCI', 'cursor'],
  ])('refuses %s with a problem document that names the field', async (query, field) => {
    expect(await get(`?${query}`)).toMatchObject({ status: 400, type: PROBLEM, json: { status: 400, field } });
  });
});

describe('what cannot be done', () => {
  test.each([
    ['show', async () => await get(`/${NO_LETTER}`)],
    ['replay', async () => await post(`${NO_LETTER}/replay`, {})],
    ['discard', async () => await post(`${NO_LETTER}/discard`, { reason: 'x' })],
  ])('%s of a letter that is not there is answered 404', async (_what, ask) => {
    expect(await ask()).toMatchObject({ status: 404, type: PROBLEM, json: { type: 'dead-letter-not-found' } });
  });

  test.each([
    ['discard', {}, 'reason'],
    ['discard', { reason: '' }, 'reason'],
    ['discard', { reason: 'a\0b' }, 'reason'],
    ['discard', { reason: 'x'.repeat(1_001) }, 'reason'],
    ['discard', { reason: 'x', force: true }, 'force'],
    ['replay', { reason: 7 }, 'reason'],
    ['replay', { destination: 'x' }, 'destination'],
    ['replay', [], 'body'],
    ['replay', 'no json', 'body'],
    ['replay', '{"reason":"a","reason":"b"}', 'reason'],
    ['replay', '{"__proto__":{"state":"open"}}', '__proto__'],
  ])('%s with a wrong body (%#) is refused by the field at fault, and changes nothing', async (action, body, field) => {
    const taskId = await desk.deadTask();
    const { id } = await desk.letter(`task_id = '${taskId}'`);
    expect(await post(`${id}/${action}`, body)).toMatchObject({ status: 400, type: PROBLEM, json: { field } });
    expect((await desk.letter(`id = '${id}'`)).state).toBe('open');
    expect(({} as Record<string, unknown>)['state']).toBeUndefined();
  });

  test('an id that is none is refused', async () => {
    expect(await get('/7')).toMatchObject({ status: 400, type: PROBLEM, json: { field: 'id' } });
  });

  test('a task that is gone cannot be replayed, and its letter can still be discarded', async () => {
    const taskId = await desk.deadTask();
    await rows(db(), 'delete from tasks where id = $1', taskId);
    const { id } = await desk.letter(`task_id = '${taskId}'`);
    expect((await get(`/${id}`)).json).toMatchObject({ task: null });
    expect(await post(`${id}/replay`, {})).toMatchObject({ status: 404, json: { type: 'task-not-found' } });
    expect((await post(`${id}/discard`, { reason: 'its task is gone' })).status).toBe(200);
  });
});

test('each action needs the role operator and is recorded with the name of the token', async () => {
  const tokens = [
    { name: 'vera', role: 'viewer', token: 'viewer-token-0123456789abcdef' },
    { name: 'olga', role: 'operator', token: 'operator-token-0123456789abcdef' },
  ];
  await using guarded = await desk.handler({ WARREN_TOKENS: JSON.stringify(tokens) });
  const as = (index: number): Record<string, string> => ({ authorization: `Bearer ${tokens[index]?.token ?? ''}` });
  const taskId = await desk.deadTask();
  const { id } = await desk.letter(`task_id = '${taskId}'`);
  expect((await guarded.get(`/v1/dead-letters/${id}`, as(0))).status).toBe(200);
  expect(await guarded.post(`/v1/dead-letters/${id}/replay`, {}, as(0))).toMatchObject({
    status: 403,
    json: { type: 'role-insufficient' },
  });
  expect((await guarded.get('/v1/dead-letters', { authorization: 'Bearer wrong' })).status).toBe(401);
  expect((await guarded.post(`/v1/dead-letters/${id}/replay`, {}, as(1))).status).toBe(200);
  expect((await get(`/${id}`)).json).toMatchObject({
    closedBy: 'olga',
    audit: [{ actor: 'olga', role: 'operator', action: 'dead-letter.replay' }],
  });
});

test('no web page can replay: neither another origin nor a form', async () => {
  const path = `/v1/dead-letters/${NO_LETTER}/replay`;
  expect((await handler.post(path, {}, { origin: 'https://example.com' })).json).toMatchObject({
    type: 'origin-refused',
  });
  expect((await handler.post(path, 'a=b', { 'content-type': 'text/plain' })).status).toBe(415);
});

test('the OpenAPI document is the golden one', async () => {
  const golden = await readFile(new URL('../golden/openapi-dead-letters.json', import.meta.url), 'utf8');
  expect((await handler.get('/openapi.json')).json).toEqual(JSON.parse(golden));
});

describe('an act with If-Match', () => {
  const etagOf = async (id: string): Promise<string> =>
    (await fetch(`${handler.url}/v1/dead-letters/${id}`)).headers.get('etag') ?? '';
  const open = async (): Promise<string> => (await desk.letter(`task_id = '${await desk.deadTask()}'`)).id;

  test('is done on the letter that was looked at, once; the second one is told that somebody was faster', async () => {
    const id = await open();
    const headers = { 'if-match': await etagOf(id) };
    expect((await handler.post(`/v1/dead-letters/${id}/discard`, { reason: 'x' }, headers)).status).toBe(200);
    const second = [
      await handler.post(`/v1/dead-letters/${id}/replay`, {}, headers),
      await handler.post(`/v1/dead-letters/${id}/discard`, { reason: 'y' }, headers),
    ];
    for (const answer of second) {
      expect(answer).toMatchObject({
        status: 412,
        json: { type: 'precondition-failed', state: 'discarded', closedBy: 'local' },
      });
    }
    expect(await etagOf(id)).not.toBe(headers['if-match']);
  });

  test('of ten at once is done once', async () => {
    const id = await open();
    const headers = { 'if-match': await etagOf(id) };
    const answers = await Promise.all(
      Array.from({ length: 10 }, async () => await handler.post(`/v1/dead-letters/${id}/replay`, {}, headers)),
    );
    expect(answers.map(({ status }) => status).toSorted((a, b) => a - b)).toEqual([200, ...Array<number>(9).fill(412)]);
  });

  test('of any ETag is done whatever it is', async () => {
    const id = await open();
    expect((await handler.post(`/v1/dead-letters/${id}/discard`, { reason: 'x' }, { 'if-match': '*' })).status).toBe(
      200,
    );
  });
});
