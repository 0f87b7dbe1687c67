/** Inputs too large for their row, through real processes: kept in the store of files, and used like any other. */
import { createHash } from 'node:crypto';
import { rename, rm, writeFile } from 'node:fs/promises';
import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import { connect } from 'amqplib';
import { call } from '../../scripts/call.ts';
import type { Answer } from '../../scripts/call.ts';
import { AMQP_URL } from '../support/broker.ts';
import { eventually } from '../support/eventually.ts';
import { fileRows, filesBelow, inFolder, linkTo, openFolder } from '../support/files.ts';
import { openFleet } from '../support/fleet.ts';
import type { Fleet } from '../support/fleet.ts';
import '../support/suppressed-error.ts';

const ROWS = Array.from({ length: 20_000 }, (_, n) => `${n}: ${'abcdefghij'.repeat(4)} é`);
const LARGE = { tenantId: 'acme', rows: ROWS };
const SMALL = { rows: ['a', 'b'] };

function digestOf(rows: readonly string[]): Readonly<Record<string, unknown>> {
  return { rows: rows.length, sha256: createHash('sha256').update(rows.join('')).digest('hex') };
}

interface InputFile {
  readonly id: string;
  readonly bytes: number;
  readonly sha256: string;
  readonly link: string;
}

type Task = Readonly<Record<string, unknown>> & { readonly id: string; readonly inputFile?: InputFile };

const OMITTED = { tenantId: 'acme', rows: { $omitted: 'array', length: ROWS.length } };

let folder: Awaited<ReturnType<typeof openFolder>>;
let fleet: Fleet;
beforeAll(async () => {
  folder = await openFolder();
  fleet = await openFleet({
    tasks: ['large-inputs'],
    deadLetterHandlers: 1,
    env: { ...inFolder(folder.path), WARREN_FILES_KEEP_MS: '3600000', WARREN_FILES_INPUT_MAX_BYTES: '2000000' },
  });
});
afterAll(async () => {
  await fleet[Symbol.asyncDispose]();
  await folder[Symbol.asyncDispose]();
});

const api = async (method: 'GET' | 'POST' | 'PATCH', path: string, body?: unknown): Promise<Answer> =>
  await call(fleet.producer().url, method, path, body);

async function submit(body: Readonly<Record<string, unknown>>): Promise<Task> {
  const answer = await api('POST', '/v1/tasks', body);
  if (answer.status !== 202) throw new Error(`not accepted: ${answer.status} ${JSON.stringify(answer.body)}`);
  return answer.body as Task;
}

async function ended(id: string, withinMs = 30_000): Promise<Task> {
  return await eventually(
    async () => {
      const { body } = await api('GET', `/v1/tasks/${id}`);
      if (body['finishedAt'] === undefined) throw new Error(`task is ${String(body['state'])}\n${fleet.tails()}`);
      return body as Task;
    },
    { withinMs },
  );
}

async function letterOf(taskId: string): Promise<Readonly<Record<string, unknown>> & { readonly id: string }> {
  return await eventually(async () => {
    const { body } = await call(fleet.deadLetterHandler().url, 'GET', `/v1/dead-letters?filter=task:${taskId}`);
    const [letter] = body['items'] as readonly { readonly id: string }[];
    if (letter === undefined) throw new Error('no letter yet');
    const whole = await call(fleet.deadLetterHandler().url, 'GET', `/v1/dead-letters/${letter.id}`);
    return whole.body as Readonly<Record<string, unknown>> & { readonly id: string };
  });
}

async function replay(letterId: string, patch: unknown): Promise<void> {
  const { url } = fleet.deadLetterHandler();
  const asked = { ids: [letterId], patch, reason: 'mended' };
  const { status, body } = await call(url, 'POST', '/v1/replays', asked);
  if (status >= 300) throw new Error(`no replay: ${status} ${JSON.stringify(body)}`);
}

describe('an input that is too large for its row', () => {
  test.each(['large.digest', 'large.digest-in-thread'])(
    'reaches %s whole, and an outline of it is shown',
    async (type) => {
      // Byte for byte: with the spaces, and in the spelling, that the sender chose.
      const text = `{ "rows" : ${JSON.stringify(ROWS)},\t"tenantId":"acm\\u0065" }`;
      const response = await fetch(`${fleet.producer().url}/v1/tasks`, {
        method: 'POST',
        headers: { 'content-type': 'application/json' },
        body: `{"type":"${type}","input":${text}}`,
      });
      const accepted = (await response.json()) as Task;
      expect([response.status, accepted['input']]).toEqual([202, OMITTED]);
      const task = await ended(accepted.id);
      expect(task).toMatchObject({ state: 'succeeded', attempt: 1, input: OMITTED, result: digestOf(ROWS) });
      expect(task.inputFile).toEqual({
        id: expect.any(String),
        bytes: Buffer.byteLength(text),
        sha256: createHash('sha256').update(text).digest('hex'),
        link: `/v1/tasks/${task.id}/files/${task.inputFile?.id}/link`,
      });
      expect(accepted.inputFile).toEqual(task.inputFile);
      const download = await fetch((await linkTo(fleet, task.id, task.inputFile?.id ?? '')).url);
      expect(await download.text()).toBe(text);
      const { body } = await api('GET', `/v1/tasks/${task.id}/files`);
      expect(body['items']).toMatchObject([{ kind: 'input', name: 'input.json', contentType: 'application/json' }]);
    },
  );

  test('comes over AMQP like any other, and beside small ones in a batch', async () => {
    const connection = await connect(AMQP_URL);
    const channel = await connection.createConfirmChannel();
    channel.publish(fleet.names.tasks, 'large.digest', Buffer.from(JSON.stringify(LARGE)), {
      contentType: 'application/json',
      messageId: 'large-1',
    });
    await channel.waitForConfirms();
    await connection.close();
    const tasks = [SMALL, LARGE, SMALL].map((input) => ({ type: 'large.digest', input }));
    const { status, body } = await api('POST', '/v1/tasks/batch', { tasks });
    expect(status).toBe(200);
    const ids = (body['results'] as readonly { readonly task: Task }[]).map(({ task }) => task.id);
    const results = await Promise.all(ids.map(async (id) => (await ended(id))['result']));
    expect(results).toEqual([SMALL.rows, ROWS, SMALL.rows].map((rows) => digestOf(rows)));
    const found = await eventually(async () => {
      const page = await api('GET', '/v1/tasks?externalId=large-1');
      const [task] = page.body['items'] as readonly Task[];
      if (task === undefined) throw new Error('not accepted yet');
      return task;
    });
    expect((await ended(found.id))['result']).toEqual(digestOf(ROWS));
  });

  test('is refused beyond the limit of the store, and small ones make no file', async () => {
    const files = (await fileRows(fleet)).length;
    const beyond = { rows: ['x'.repeat(2_000_001)] };
    const answer = await api('POST', '/v1/tasks', { type: 'large.digest', input: beyond });
    expect([answer.status, answer.body['type']]).toEqual([413, 'body-too-large']);
    expect(await submit({ type: 'large.digest', input: SMALL })).not.toHaveProperty('inputFile');
    expect(await fileRows(fleet)).toHaveLength(files);
  });

  test('is found by what is small in it, and counts towards no key that it does not have', async () => {
    const { id } = await submit({
      type: 'large.digest',
      input: { ...LARGE, tenantId: 'searched-for' },
      delayMs: 3_600_000,
    });
    const { body } = await api(
      'GET',
      `/v1/tasks?filter=${encodeURIComponent('input.tenantId:searched-for state:scheduled')}`,
    );
    expect((body['items'] as readonly Task[]).map((task) => task.id)).toEqual([id]);
  });

  test('takes the place of another by an edit or by a unique key, and gives it up to a small one', async () => {
    const waiting = { type: 'large.digest', delayMs: 3_600_000 };
    const { id } = await submit({ ...waiting, input: SMALL });
    const edited = await api('PATCH', `/v1/tasks/${id}`, { input: LARGE });
    expect([edited.status, edited.body['input']]).toEqual([200, OMITTED]);
    const unique = { key: 'one', onConflict: 'replace' };
    const first = await submit({ ...waiting, input: LARGE, unique });
    const other = { ...LARGE, rows: [...ROWS, 'more'] };
    const replaced = await api('POST', '/v1/tasks', { ...waiting, input: other, unique });
    expect(replaced.body).toMatchObject({ id: first.id, replaced: true });
    const second = await submit({ ...waiting, input: LARGE });
    const small = await api('PATCH', `/v1/tasks/${second.id}`, { input: SMALL });
    expect(small.body).not.toHaveProperty('inputFile');
    for (const each of [id, first.id, second.id]) await api('PATCH', `/v1/tasks/${each}`, { runAt: null });
    const results = await Promise.all([id, first.id, second.id].map(async (each) => (await ended(each))['result']));
    expect(results).toEqual([ROWS, other.rows, SMALL.rows].map((rows) => digestOf(rows)));
    // The file of the replacing submission is that of the task that it became.
    const shown = await api('GET', `/v1/tasks/${first.id}/files`);
    expect(shown.body['items']).toMatchObject([{ kind: 'input' }]);
  });

  test('is mended whole in a dead letter, may become small by that, and what it was is kept beside', async () => {
    const dead = await submit({ type: 'large.digest', input: { ...LARGE, isGood: false } });
    expect(await ended(dead.id)).toMatchObject({ state: 'dead' });
    const letter = await letterOf(dead.id);
    expect(letter).toMatchObject({
      input: { ...OMITTED, isGood: false },
      task: { inputFile: { bytes: expect.any(Number) } },
    });
    await replay(letter.id, [
      { op: 'replace', path: '/isGood', value: true },
      { op: 'replace', path: '/rows/0', value: 'mended' },
    ]);
    const mended = await eventually(async () => {
      const { body } = await api('GET', `/v1/tasks/${dead.id}`);
      expect(body['state']).toBe('succeeded');
      return body;
    });
    expect(mended).toMatchObject({ input: OMITTED, result: digestOf(['mended', ...ROWS.slice(1)]) });
    const closed = await call(fleet.deadLetterHandler().url, 'GET', `/v1/dead-letters/${letter.id}`);
    expect(closed.body['originalInput']).toEqual({ ...OMITTED, isGood: false });

    const again = await submit({ type: 'large.digest', input: { ...LARGE, isGood: false } });
    await ended(again.id);
    await replay((await letterOf(again.id)).id, { isGood: true, rows: ['few'] });
    await eventually(async () => {
      const { body } = await api('GET', `/v1/tasks/${again.id}`);
      expect(body).toMatchObject({
        state: 'succeeded',
        result: digestOf(['few']),
        input: { rows: ['few'], isGood: true },
      });
      expect(body).not.toHaveProperty('inputFile');
    });
  });

  test('waits, with its message or its request, while the store is away, and runs when it is back', async () => {
    const { id } = await submit({ type: 'large.digest', input: LARGE, delayMs: 1_500 });
    await rename(folder.path, `${folder.path}-away`);
    await writeFile(folder.path, ''); // so that nobody makes it anew
    const refused = await api('POST', '/v1/tasks', { type: 'large.digest', input: LARGE });
    expect([refused.status, refused.body['type']]).toEqual([503, 'file-store-unavailable']);
    await fleet.next('attempt put off: its input cannot be fetched');
    await eventually(async () => expect(await fleet.task(id)).toMatchObject({ state: 'scheduled', failures: 0 }));
    await rm(folder.path);
    await rename(`${folder.path}-away`, folder.path);
    await fleet.makeDue();
    expect(await ended(id)).toMatchObject({ state: 'succeeded', failures: 0, result: digestOf(ROWS) });
  });

  test('that was changed in the store is not run: the task dies and says so', async () => {
    const { id, inputFile } = await submit({ type: 'large.digest', input: LARGE, delayMs: 3_600_000 });
    const [path = ''] = (await filesBelow(folder.path)).filter((each) => each.endsWith(inputFile?.id ?? 'none'));
    await writeFile(path, JSON.stringify({ ...LARGE, tenantId: 'evil' }));
    await api('PATCH', `/v1/tasks/${id}`, { runAt: null });
    expect(await ended(id)).toMatchObject({ state: 'dead' });
    expect(await letterOf(id)).toMatchObject({ reason: 'invalid_input', error: { code: 'input-missing' } });
  });

  test('is deleted when nothing refers to it, and stays while its task may run', async () => {
    const key = `again-${fleet.prefix}`;
    const body = JSON.stringify({ type: 'large.digest', input: LARGE, delayMs: 3_600_000 });
    const headers = { 'content-type': 'application/json', 'idempotency-key': key };
    const send = async (): Promise<string> =>
      ((await (await fetch(`${fleet.producer().url}/v1/tasks`, { method: 'POST', headers, body })).json()) as Task).id;
    const id = await send();
    expect(await send()).toBe(id);
    const db = fleet.database.database;
    const inputs = async (): Promise<readonly string[]> =>
      (await fileRows(fleet)).filter((row) => row['kind'] === 'input').map((row) => String(row['id']));
    const kept = async (): Promise<readonly string[]> => {
      const { rows } = await db.query({
        text: `select input_file as id from tasks where input_file is not null
                union select input_file from mended_inputs where input_file is not null order by 1`,
      });
      return (rows as readonly { readonly id: string }[]).map((row) => row.id);
    };
    await eventually(
      async () => {
        await db.query({
          text: `update files set sweep_at = clock_timestamp() where kind = 'input' and sweep_at > clock_timestamp() + interval '10 s'`,
        });
        expect(await inputs()).toEqual(await kept());
        expect(await filesBelow(folder.path)).toHaveLength((await fileRows(fleet)).length);
      },
      { withinMs: 20_000, everyMs: 500 },
    );
    const { body: task } = await api('GET', `/v1/tasks/${id}`);
    expect(await inputs()).toContain((task as Task).inputFile?.id);
  });
});
