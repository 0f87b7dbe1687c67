/** The audit: what is acted is written with who and from where, can be found, and cannot be changed. */
import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import { newId } from '../../shared/tasks/ids.ts';
import { systemClock } from '../../shared/time/clock.ts';
import { rows } from '../support/core.ts';
import { openDesk } from '../support/dead-letters.ts';
import type { ApiAnswer, DeadLetterDesk, TestHandler } from '../support/dead-letters.ts';

const TOKENS = [
  { name: 'eyes', role: 'viewer', token: 'viewer-token-0123456789' },
  { name: 'hands', role: 'operator', token: 'operator-token-0123456789' },
] as const;
const as = (index: 0 | 1): Record<string, string> => ({ authorization: `Bearer ${TOKENS[index].token}` });

let desk: DeadLetterDesk;
let handler: TestHandler;
beforeAll(async () => {
  desk = await openDesk();
  handler = await desk.handler({ WARREN_TOKENS: JSON.stringify(TOKENS) });
});
afterAll(async () => {
  await desk.drained();
  await desk[Symbol.asyncDispose]();
});

const db = (): DeadLetterDesk['door']['db']['database'] => desk.door.db.database;

interface Line {
  readonly id: string;
  readonly at: string;
  readonly actor: string;
  readonly action: string;
  readonly target: string;
}

async function list(query: string): Promise<{ readonly items: readonly Line[]; readonly nextCursor?: string }> {
  const { status, json } = await handler.get(`/v1/audit?${query}`, as(0));
  expect(status).toBe(200);
  return json as unknown as { items: Line[]; nextCursor?: string };
}

/** Lines as an act writes them, `secondsAgo` by Postgres's clock; those of one call have one instant. */
async function addLines(
  count: number,
  { actor = 'anna', action = 'test.act', target = 't', secondsAgo = 0 } = {},
): Promise<void> {
  await db().query({
    text: `insert into audit (id, at, actor, role, action, target)
           select gen_random_uuid(), now() - $5::int4 * interval '1 s' - interval '7 microseconds', $1, 'operator', $2, $3
             from generate_series(1, $4::int4)`,
    values: [actor, action, target, count, secondsAgo],
  });
}

describe('what an operator does', () => {
  test('is written with name, role, address, reason, and a viewer may read it', async () => {
    const taskId = await desk.deadTask();
    const { id } = await desk.letter(`task_id = '${taskId}'`);
    await handler.post(`/v1/dead-letters/${id}/replay`, { reason: 'disk is free' }, as(1));
    await desk.nextInvitation();
    await desk.kill(taskId);
    const second = await desk.letter(`task_id = '${taskId}' and state = 'open'`);
    await handler.post(`/v1/dead-letters/${second.id}/discard`, { reason: 'withdrawn' }, as(1));
    const by = {
      actor: 'hands',
      role: 'operator',
      address: '127.0.0.1',
      at: expect.any(String),
      id: expect.any(String),
    };
    expect(await list('actor=hands')).toEqual({
      items: [
        {
          ...by,
          action: 'dead-letter.discard',
          target: second.id,
          detail: { kind: 'task', taskId, reason: 'withdrawn' },
        },
        {
          ...by,
          action: 'dead-letter.replay',
          target: id,
          detail: { kind: 'task', taskId, generation: 2, reason: 'disk is free' },
        },
      ],
    });
    expect((await handler.get(`/v1/dead-letters/${id}`, as(0))).json['audit']).toMatchObject([
      { address: '127.0.0.1' },
    ]);
  });

  test('is recorded with the address of the connection, whatever a header says', async () => {
    await desk.publish(desk.door.names.dlx, 'k', 'x', { messageId: 'forged' });
    const { id } = await desk.letter(`properties->>'messageId' = 'forged'`);
    await handler.post(
      `/v1/dead-letters/${id}/discard`,
      { reason: 'no' },
      { ...as(1), 'x-forwarded-for': '203.0.113.9' },
    );
    expect(await list(`target=${id}`)).toMatchObject({ items: [{ address: '127.0.0.1' }] });
  });

  test('can be read by nobody with a token that is not known', async () => {
    const answer = await handler.get('/v1/audit', { authorization: 'Bearer somebody-elses-token-0123456789' });
    expect(answer.json).toMatchObject({ type: 'token-invalid', status: 401 });
  });
});

describe('the list', () => {
  test('goes on in pages, newest first, that neither repeat nor miss a line of one instant', async () => {
    await addLines(7, { action: 'test.paged' });
    await addLines(3, { action: 'test.paged', secondsAgo: 60 });
    const seen: Line[] = [];
    let cursor: string | undefined;
    do {
      const page: Awaited<ReturnType<typeof list>> = await list(
        `action=test.paged&limit=3${cursor === undefined ? '' : `&cursor=${cursor}`}`,
      );
      seen.push(...page.items);
      cursor = page.nextCursor;
    } while (cursor !== undefined);
    const written = await rows<{ id: string }>(
      db(),
      `select id from audit where action = 'test.paged' order by at desc, id desc`,
    );
    expect(seen.map(({ id }) => id)).toEqual(written.map(({ id }) => id));
  });

  test('is narrowed by target, actor, action and time', async () => {
    const target = newId() as string;
    await addLines(1, { target, actor: 'berta', action: 'test.one', secondsAgo: 7_200 });
    await addLines(1, { target, actor: 'carla', action: 'test.two', secondsAgo: 60 });
    const actors = async (query: string): Promise<readonly string[]> =>
      (await list(`target=${target}&${query}`)).items.map(({ actor }) => actor);
    expect(await actors('')).toEqual(['carla', 'berta']);
    expect(await actors('actor=berta')).toEqual(['berta']);
    expect(await actors('action=test.two')).toEqual(['carla']);
    const anHourAgo = new Date(systemClock.now().getTime() - 3_600_000).toISOString();
    expect(await actors(`after=${anHourAgo}`)).toEqual(['carla']);
    expect(await actors(`before=${anHourAgo}`)).toEqual(['berta']);
    expect((await list('target=nobody')).items).toEqual([]);
  });

  test.each([
    ['limit=0', 'limit'],
    ['after=yesterday', 'after'],
    ['before=2026-02-30T00:00:00Z', 'before'],
    ['target=%00', 'target'],
    ['cursor=!', 'cursor'],
    [`cursor=${Buffer.from('["x","y"]').toString('base64url')}`, 'cursor'],
  ])('refuses %s and names the field', async (query, field) => {
    const answer: ApiAnswer = await handler.get(`/v1/audit?${query}`, as(0));
    expect(answer.status).toBe(400);
    expect(answer.text).toContain(field);
  });
});

describe('no line', () => {
  test.each([
    ['be changed', `update audit set actor = 'somebody'`],
    ['be removed', 'delete from audit'],
    ['be removed with all others', 'truncate audit'],
    [
      'be changed on its return',
      `insert into audit (id, actor, role, action, target) select id, 'x', 'x', 'x', 'x' from audit
                                   on conflict (id) do update set actor = excluded.actor`,
    ],
  ])('can %s', async (_what, text) => {
    await addLines(1);
    const before = await rows(db(), 'select * from audit order by id');
    await expect(db().query({ text })).rejects.toMatchObject({ message: 'audit is append-only' });
    expect(await rows(db(), 'select * from audit order by id')).toEqual(before);
  });
});
