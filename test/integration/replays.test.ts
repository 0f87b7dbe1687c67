/** Replays over HTTP and from the command line, with a real handler and a real broker. */
import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import { announceTypes } from '../../shared/tasks/announce.ts';
import { newId } from '../../shared/tasks/ids.ts';
import { warren } from '../support/cli-io.ts';
import { aDeath, count, openWorker, readTask, rows } from '../support/core.ts';
import { openDesk } from '../support/dead-letters.ts';
import type { DeadLetterDesk, LetterRow, TestHandler } from '../support/dead-letters.ts';
import { eventually } from '../support/eventually.ts';
import { aType } from '../support/task-api.ts';

const TOKENS = [
  { name: 'vic', role: 'viewer', token: 'viewer-token-0123456789' },
  { name: 'olga', role: 'operator', token: 'operator-token-0123456789' },
  { name: 'edda', role: 'editor', token: 'editor-token-0123456789' },
];
const bearer = (role: string): Record<string, string> => ({ authorization: `Bearer ${role}-token-0123456789` });

let desk: DeadLetterDesk;
let handler: TestHandler;
let second: TestHandler;
let target: string;
beforeAll(async () => {
  desk = await openDesk();
  target = await desk.door.broker.queue();
  const env = {
    WARREN_DEAD_LETTERS_REPLAY_DESTINATIONS: `/${target}`,
    WARREN_TOKENS: JSON.stringify(TOKENS),
  };
  handler = await desk.handler(env);
  second = await desk.handler(env);
});
afterAll(async () => {
  await desk.drained();
  await desk[Symbol.asyncDispose]();
});

const db = (): DeadLetterDesk['door']['db']['database'] => desk.door.db.database;

interface Shown {
  readonly id: string;
  readonly state: string;
  readonly counts: Record<string, number>;
  readonly [member: string]: unknown;
}

async function show(id: string): Promise<Shown> {
  return (await second.get(`/v1/replays/${id}`)).json as unknown as Shown;
}

async function items(id: string, query = ''): Promise<readonly Record<string, unknown>[]> {
  return (await handler.get(`/v1/replays/${id}/items${query}`)).json['items'] as readonly Record<string, unknown>[];
}

async function dead(howMany: number): Promise<{ readonly taskIds: string[]; readonly letterIds: string[] }> {
  const taskIds: string[] = [];
  for (let n = 0; n < howMany; n += 1) taskIds.push(await desk.deadTask());
  const letters = await desk.letters(`task_id = any('{${taskIds.join(',')}}') and state = 'open'`);
  return { taskIds, letterIds: letters.map(({ id }) => id) };
}

/** Takes invitations off the queue and ends their tasks well, or lets them die. */
async function work(howMany: number, ends: 'succeed' | 'die' = 'succeed'): Promise<void> {
  const worker = await openWorker(db());
  for (let n = 0; n < howMany; n += 1) {
    const { taskId, generation } = JSON.parse((await desk.nextInvitation()).content.toString()) as {
      readonly taskId: string;
      readonly generation: number;
    };
    const claim = await worker.win(taskId, generation);
    if (ends === 'succeed') await worker.settles.succeed(claim, Buffer.from('{}'));
    else await worker.settles.settle(claim, aDeath({ error: { type: 'DiskFull', message: 'no space', causes: [] } }));
  }
}

async function refused(type: string, messageId: string | undefined): Promise<LetterRow> {
  const appId = newId() as string;
  await desk.door.publish(type, '{"a":1}', { ...(messageId === undefined ? {} : { messageId }), appId });
  return await desk.letter(`properties->>'appId' = '${appId}' and state = 'open'`);
}

async function foreign(): Promise<LetterRow> {
  const appId = newId() as string;
  await desk.publish('', desk.door.names.dead, 'bytes', { appId });
  return await desk.letter(`properties->>'appId' = '${appId}'`);
}

describe('over HTTP', () => {
  test('a replay is made, found at its address, followed wave by wave, and finished', async () => {
    const { letterIds, taskIds } = await dead(6);
    const made = await handler.post('/v1/replays', { ids: letterIds, reason: 'the disk is free' }, bearer('operator'));
    expect(made).toMatchObject({ status: 201, json: { state: 'running', items: 6, createdBy: 'olga', wave: 0 } });
    const id = String(made.json['id']);
    await work(1);
    await work(5);
    const done = await eventually(async () => {
      const shown = await show(id);
      expect(shown.state).toBe('finished');
      return shown;
    });
    expect(done).toMatchObject({
      counts: { succeeded: 6 },
      waveCounts: [
        { wave: 1, items: 1, counts: { succeeded: 1 }, failedFirst: 0, sameFailure: 0 },
        { wave: 2, items: 5, counts: { succeeded: 5 }, failedFirst: 0, sameFailure: 0 },
      ],
    });
    const first = await handler.get(`/v1/replays/${id}/items?limit=4`);
    const rest = await handler.get(`/v1/replays/${id}/items?limit=4&cursor=${String(first.json['nextCursor'])}`);
    const listed = [first, rest].flatMap(({ json }) => json['items'] as readonly Record<string, unknown>[]);
    expect(listed.map(({ n }) => n)).toEqual([1, 2, 3, 4, 5, 6]);
    expect(new Set(listed.map(({ taskId }) => taskId))).toEqual(new Set(taskIds));
    expect(await items(id, '?state=dead')).toEqual([]);
    // Lineage both ways.
    const letter = (await handler.get(`/v1/dead-letters/${letterIds[0] ?? ''}`)).json;
    expect(letter['replays']).toMatchObject([{ replayId: id, n: 1, state: 'succeeded', taskId: letter['taskId'] }]);
    const listing = (await handler.get('/v1/replays?state=finished')).json['items'];
    expect(listing).toMatchObject([{ id, items: 6, sent: 6 }]);
  });

  test('whoever saw another version changes nothing', async () => {
    const { letterIds } = await dead(1);
    const made = await handler.post(
      '/v1/replays',
      { ids: letterIds, reason: 'r', waitForVersion: '>=99' },
      bearer('operator'),
    );
    const path = `/v1/replays/${String(made.json['id'])}`;
    const etag = (await fetch(`${handler.url}${path}`, { headers: bearer('viewer') })).headers.get('etag') ?? '';
    expect(etag).toBe('"1"');
    const headers = { ...bearer('operator'), 'if-match': etag };
    expect(await handler.post(`${path}/pause`, {}, headers)).toMatchObject({
      status: 200,
      json: { state: 'paused', stateReason: 'paused by olga', version: 2 },
    });
    expect(await second.post(`${path}/cancel`, {}, headers)).toMatchObject({
      status: 412,
      json: { type: 'precondition-failed', version: 2, state: 'paused' },
    });
    expect(await handler.post(`${path}/pause`, {}, bearer('operator'))).toMatchObject({
      status: 409,
      json: { type: 'replay-state-wrong' },
    });
    expect((await handler.post(`${path}/cancel`, {}, bearer('operator'))).json).toMatchObject({
      state: 'cancelled',
      counts: { skipped: 1 },
      skipped: { cancelled: 1 },
    });
  });

  test.each([
    ['nothing chosen', { reason: 'r' }, 400, 'must have one of filter, ids and group'],
    ['two choices', { filter: 'type:x', group: newId(), reason: 'r' }, 400, 'must have one of'],
    ['no reason', { filter: 'type:x' }, 400, 'is required: say why'],
    ['everything without saying so', { filter: '', reason: 'r' }, 400, 'add "all": true'],
    ['a filter that is none', { filter: 'nothing:x', reason: 'r' }, 400, 'filter'],
    ['a patch that is none', { filter: 'type:x', reason: 'r', patch: [{ op: 'grow' }] }, 400, 'operation 1'],
    ['a queue that is none', { filter: 'type:x', reason: 'r', queue: 'nowhere' }, 422, 'names no queue'],
    ['a version that is none', { filter: 'type:x', reason: 'r', waitForVersion: 'soon' }, 400, 'range of versions'],
    ['nothing found', { filter: 'type:no.such.type', reason: 'r' }, 422, 'no open dead letter'],
    ['an id that is none', { ids: [newId()], reason: 'r' }, 404, ''],
    ['an unknown member', { filter: 'type:x', reason: 'r', speed: 1 }, 400, 'speed'],
  ])('%s is answered clearly', async (_what, body, status, words) => {
    const answer = await handler.post('/v1/replays', body, bearer('editor'));
    expect(answer.status).toBe(status);
    expect(answer.text).toContain(words.replaceAll('"', '\\"'));
  });

  test('looking is for viewers, replaying for operators, mending for editors', async () => {
    const { letterIds } = await dead(1);
    const body = { ids: letterIds, reason: 'r', patch: { a: 1 }, waves: 'none' };
    expect((await handler.post('/v1/replays', body, bearer('viewer'))).status).toBe(403);
    expect(await handler.post('/v1/replays', body, bearer('operator'))).toMatchObject({
      status: 403,
      json: { type: 'role-insufficient', needed: 'editor' },
    });
    const dry = await handler.post('/v1/replays', { ...body, dryRun: true }, bearer('operator'));
    expect(dry).toMatchObject({
      status: 200,
      json: { dryRun: true, replayed: 1, samples: [{ before: {}, after: { a: 1 } }] },
    });
    expect(await count(db(), 'dead_letters', `id = '${letterIds[0] ?? ''}' and state = 'open'`)).toBe(1);
    expect((await handler.post('/v1/replays', body, bearer('editor'))).status).toBe(201);
    await work(1);
    const letter = await handler.get(`/v1/dead-letters/${letterIds[0] ?? ''}`);
    expect(letter.json).toMatchObject({ input: { a: 1 }, originalInput: {} });
  });

  test('a filter chooses open letters, and the single press is a replay of one', async () => {
    const { letterIds, taskIds } = await dead(2);
    const pressed = await handler.post(`/v1/dead-letters/${letterIds[0] ?? ''}/replay`, {}, bearer('operator'));
    const id = String(pressed.json['replayId']);
    await work(1, 'die');
    const [item] = await eventually(async () => {
      const found = await items(id);
      expect(found).toMatchObject([{ state: 'dead', error: { isSame: true, type: 'DiskFull' } }]);
      return found;
    });
    await eventually(async () => expect((await show(id)).state).toBe('finished'));
    const made = await handler.post(
      '/v1/replays',
      { filter: `task:${taskIds.join(',')}`, waves: 'none', reason: 'r' },
      bearer('operator'),
    );
    expect(made.json).toMatchObject({ items: 2, selection: { filter: `task:${taskIds.join(',')}` } });
    await work(2);
    await eventually(async () => expect((await show(String(made.json['id']))).state).toBe('finished'));
    expect(new Set((await items(String(made.json['id']))).map(({ letterId }) => letterId))).toEqual(
      new Set([letterIds[1], item?.['newLetterId']]),
    );
  });
});

describe('letters that never were tasks', () => {
  test('go back where they came from, and name the task that they become', async () => {
    const letters = [
      await refused('late.known', newId()),
      await refused('late.known', undefined),
      await refused('never.known', newId()),
    ];
    const stray = await foreign();
    await announceTypes(db(), [aType('late.known')], 'test');
    await rows(db(), `update dead_letters set exchange = '', routing_key = $2 where id = $1`, stray.id, target);
    const lost = await foreign();
    const ids = [...letters, stray, lost].map(({ id }) => id);
    const made = await handler.post('/v1/replays', { ids, waves: 'none', reason: 'r' }, bearer('operator'));
    const id = String(made.json['id']);
    expect((await desk.door.next(target)).content.toString()).toBe('bytes');
    const byLetter = await eventually(async () => {
      const found = new Map((await items(id)).map((item) => [item['letterId'], item]));
      for (const letter of letters) expect(found.get(letter.id)).not.toMatchObject({ state: 'waiting' });
      expect(found.get(letters[0]?.id)).toMatchObject({ state: 'sent', taskId: expect.any(String) });
      expect(found.get(letters[1]?.id)).toMatchObject({ state: 'sent', taskId: expect.any(String) });
      expect(found.get(letters[2]?.id)).toMatchObject({ state: 'dead', newLetterId: expect.any(String) });
      return found;
    });
    expect(byLetter.get(stray.id)).toMatchObject({ state: 'returned' });
    expect(byLetter.get(lost.id)).toMatchObject({ state: 'skipped', code: 'not-sent' });
    expect((await desk.letter(`id = '${lost.id}'`)).state).toBe('open');
    for (const letter of letters.slice(0, 2)) {
      const taskId = String(byLetter.get(letter.id)?.['taskId']);
      expect(await readTask(db(), taskId)).toMatchObject({ state: 'pending', generation: 1 });
      const [origin] = await rows<{ of: string }>(
        db(),
        `select headers->>'x-replay-of' as of from origins where task_id = $1`,
        taskId,
      );
      expect(origin?.of).toBe(letter.id);
      expect((await handler.get(`/v1/dead-letters/${letter.id}`)).json['replays']).toMatchObject([{ taskId }]);
      expect((await handler.get(`/v1/dead-letters/${letter.id}`)).json).toMatchObject({ kind: 'refused', taskId });
    }
    expect(await count(db(), 'tasks', `type = 'late.known'`)).toBe(2);
    await rows(db(), `update tasks set state = 'cancelled', finished_at = now() where type = 'late.known'`);
    await rows(db(), 'update replays set look_at = now() where id = $1', id);
    await eventually(async () => expect((await show(id)).state).toBe('finished'));
  });
});

describe('from the command line', () => {
  const run = async (...args: string[]): ReturnType<typeof warren> =>
    await warren(['replay', ...args, '--dead-letters-url', handler.url], {
      env: { WARREN_TOKEN: 'editor-token-0123456789' },
    });

  test('create asks first, watch shows the waves, and the exit code says how it went', async () => {
    const { letterIds } = await dead(3);
    const chosen = ['--ids', letterIds.join(',')];
    expect(await run('create', ...chosen)).toMatchObject({ exitCode: 2, stderr: expect.stringContaining('reason') });
    const dry = await run('create', ...chosen, '--dry-run');
    expect(dry).toMatchObject({ exitCode: 0, stdout: 'Of 3 letters, 3 would be replayed and 0 skipped.\n' });
    const unasked = await run('create', ...chosen, '--reason', 'r');
    expect(unasked).toMatchObject({
      exitCode: 2,
      stderr: expect.stringContaining('Replay 3 dead letters? Nobody can be asked'),
    });
    const asked: string[] = [];
    const refusedIt = await warren(
      ['replay', 'create', ...chosen, '--reason', 'r', '--dead-letters-url', handler.url],
      {
        env: { WARREN_TOKEN: 'editor-token-0123456789' },
        ask: async (question) => {
          asked.push(question);
          return await Promise.resolve('n');
        },
      },
    );
    expect(refusedIt).toMatchObject({ exitCode: 0, stdout: '' });
    expect(asked).toEqual(['Replay 3 dead letters? [y/N] ']);
    expect(await count(db(), 'dead_letters', `id = any('{${letterIds.join(',')}}') and state = 'open'`)).toBe(3);

    const made = await run('create', ...chosen, '--reason', 'r', '--waves', '1,2', '--yes');
    const id = made.stdout.trim();
    const watching = run('watch', id);
    await work(3);
    const watched = await watching;
    expect(watched.exitCode).toBe(0);
    expect(watched.stderr).toContain('wave 1: 1 succeeded\n');
    expect(watched.stderr).toContain('wave 2: 2 succeeded\n');
    expect(watched.stdout).toContain('finished');
    expect((await run('list')).stdout).toContain(id);
    expect((await run('show', id, '--items', '--json')).json<{ items: unknown[] }>().items).toHaveLength(3);
  });

  test('a replay that stops by itself ends the watch with exit code 1 and says why', async () => {
    const { letterIds } = await dead(2);
    const made = await run('create', '--ids', letterIds.join(','), '--reason', 'r', '--yes', '--json');
    const { id } = made.json<{ readonly id: string }>();
    const watching = run('watch', id);
    await work(1, 'die');
    const watched = await watching;
    expect(watched).toMatchObject({ exitCode: 1, stdout: expect.stringContaining('1 of 1 items failed of the same') });
    expect((await run('cancel', id)).exitCode).toBe(2);
    expect(await run('cancel', id, '--yes')).toMatchObject({
      exitCode: 0,
      stdout: expect.stringContaining('cancelled by edda'),
    });
  });
});
