/** Failure groups over HTTP: what a dead letter does to them, and how people change them. */
import { afterAll, beforeAll, expect, test } from '@jest/globals';
import { openDesk } from '../support/dead-letters.ts';
import type { ApiAnswer, DeadLetterDesk, TestHandler } from '../support/dead-letters.ts';
import { eventually } from '../support/eventually.ts';

let desk: DeadLetterDesk;
let handler: TestHandler;
beforeAll(async () => {
  desk = await openDesk();
  handler = await desk.handler();
});
afterAll(async () => await desk[Symbol.asyncDispose]());

interface Group {
  readonly id: string;
  readonly openLetters: number;
  readonly version: number;
}
const groups = async (query = ''): Promise<readonly Group[]> =>
  (await handler.get(`/v1/failure-groups${query}`)).json['items'] as Group[];

async function groupOf(where: string, letters: number): Promise<Group> {
  const id = await eventually(async () => {
    const found = await desk.letters(where);
    expect(found.filter((letter) => letter.group_id !== null)).toHaveLength(letters);
    return found[0]?.group_id ?? '';
  });
  return (await handler.get(`/v1/failure-groups/${id}`)).json as unknown as Group;
}

async function change(id: string, body: unknown, ifMatch?: string): Promise<ApiAnswer> {
  const answer = await fetch(`${handler.url}/v1/failure-groups/${id}`, {
    method: 'PATCH',
    headers: { 'content-type': 'application/json', ...(ifMatch === undefined ? {} : { 'if-match': ifMatch }) },
    body: JSON.stringify(body),
  });
  const text = await answer.text();
  return { status: answer.status, type: '', text, json: JSON.parse(text) as Record<string, unknown> };
}

test('dead tasks, refused messages and foreign ones come into groups of their own', async () => {
  await desk.rejectInvitation(await desk.deadTask());
  await desk.rejectInvitation(await desk.deadTask());
  await desk.door.publish('no.such', '{"a":1}', { messageId: 'g1' });
  await desk.publish(desk.door.names.dlx, 'somewhere', 'x', { messageId: 'g2' });
  expect(await groupOf(`kind = 'task'`, 2)).toMatchObject({
    kind: 'task',
    type: 'test.noop',
    error: { type: 'DiskFull', message: 'no space' },
    openLetters: 2,
    queues: ['default'],
    youngest: [{ reason: 'non_retryable' }, { reason: 'non_retryable' }],
  });
  expect(await groupOf(`kind = 'refused'`, 1)).toMatchObject({ type: 'no.such', error: { type: 'task-type-unknown' } });
  expect(await groupOf(`kind = 'foreign'`, 1)).toMatchObject({ kind: 'foreign', error: { type: 'unknown' } });
  const all = await groups();
  expect(all.map(({ openLetters }) => openLetters)).toEqual([2, 1, 1]);
  const first = await handler.get('/v1/failure-groups?limit=2');
  const next = await handler.get(`/v1/failure-groups?limit=2&cursor=${String(first.json['nextCursor'])}`);
  expect([first, next].flatMap(({ json }) => (json['items'] as Group[]).map(({ id }) => id))).toEqual(
    all.map(({ id }) => id),
  );
});

test('a discarded letter is no longer open in its group', async () => {
  await desk.door.publish('other.such', '{}', { messageId: 'g3' });
  const { id } = await groupOf(`routing_key = 'other.such'`, 1);
  const [letter] = await desk.letters(`routing_key = 'other.such'`);
  await handler.post(`/v1/dead-letters/${letter?.id ?? ''}/discard`, { reason: 'not ours' });
  expect((await handler.get(`/v1/failure-groups/${id}`)).json).toMatchObject({
    openLetters: 0,
    letters: 1,
    youngest: [],
  });
});

test('of two operators who looked at the same, one is told that the other was faster', async () => {
  await desk.door.publish('third.such', '{}', { messageId: 'g4' });
  const { id, version } = await groupOf(`routing_key = 'third.such'`, 1);
  const etag = `"${version}"`;
  expect(await change(id, { state: 'acknowledged', assignee: 'night shift' }, etag)).toMatchObject({
    status: 200,
    json: { state: 'acknowledged', assignee: 'night shift', changedBy: 'local', version: version + 1 },
  });
  expect(await change(id, { state: 'ignored' }, etag)).toMatchObject({
    status: 412,
    json: { type: 'precondition-failed', version: version + 1, changedBy: 'local' },
  });
  expect((await handler.get(`/v1/failure-groups/${id}`)).json).toMatchObject({ state: 'acknowledged' });
});

test.each([
  ['no member', {}, undefined, 400, 'body'],
  ['an unknown member', { colour: 'red' }, undefined, 400, 'colour'],
  ['an unknown state', { state: 'gone' }, undefined, 400, 'state'],
  ['U+0000 in a note', { note: 'a\0b' }, undefined, 400, 'note'],
  ['a note that is too long', { note: 'x'.repeat(10_001) }, undefined, 400, 'note'],
  ['an If-Match that is no ETag', { note: 'x' }, 'seven', 400, 'If-Match'],
])('a change with %s is refused, with the field', async (_what, body, ifMatch, status, field) => {
  const [{ id } = { id: '' }] = await groups();
  const answer = await change(id, body, ifMatch);
  expect(answer.status).toBe(status);
  expect(answer.text).toContain(field === 'body' ? 'state, note or assignee' : field);
});

test('a group that there is not, and an id that is none', async () => {
  const unknown = '3f2b8c1d-7e6f-8a5b-9c4d-0b5298f3a47e';
  expect((await handler.get(`/v1/failure-groups/${unknown}`)).json).toMatchObject({ type: 'failure-group-not-found' });
  expect(await change(unknown, { note: 'x' })).toMatchObject({ status: 404 });
  expect((await handler.get('/v1/failure-groups/seven')).status).toBe(400);
  expect((await handler.get('/v1/failure-groups?state=gone')).status).toBe(400);
});
