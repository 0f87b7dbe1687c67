/** Files and large results through real processes: saved by handlers, downloaded by links, deleted when their time is over. */
import { createHash } from 'node:crypto';
import { mkdir, readFile, rename, rm, utimes, writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import { call } from '../../scripts/call.ts';
import { signLink } from '../../shared/files/link.ts';
import { systemClock } from '../../shared/time/clock.ts';
import { warren } from '../support/cli-io.ts';
import { rows } from '../support/core.ts';
import { eventually } from '../support/eventually.ts';
import {
  fileRows,
  filesBelow,
  inFolder,
  linkTo,
  LINK_SECRET,
  openFolder,
  peakMemoryOf,
  runTask,
} from '../support/files.ts';
import { createClient } from '../../client/src/client.ts';
import { openFleet } from '../support/fleet.ts';
import type { Fleet } from '../support/fleet.ts';
import { openS3Server, S3_BUCKET, S3_KEY } from '../support/s3-server.ts';
import type { S3Server } from '../support/s3-server.ts';
import { blocksOf } from '../support/tasks/file-savers.ts';
import '../support/suppressed-error.ts';

const MEBIBYTE = 1_048_576;

interface Saved {
  readonly report: {
    readonly $file: string;
    readonly name: string;
    readonly contentType: string;
    readonly bytes: number;
  };
}

/** Digest of what a link gives, without holding it. */
async function digestOf(response: Response): Promise<string> {
  const hash = createHash('sha256');
  for await (const piece of response.body as unknown as AsyncIterable<Uint8Array>) hash.update(piece);
  return hash.digest('hex');
}

/** In turns: connections that are kept alive are looked after meanwhile. */
async function expectedDigest(bytes: number, seed: string): Promise<string> {
  const hash = createHash('sha256');
  for (const block of blocksOf(bytes, seed)) {
    hash.update(block);
    await new Promise((resolve) => setImmediate(resolve));
  }
  return hash.digest('hex');
}

describe('with a store in a folder', () => {
  let folder: Awaited<ReturnType<typeof openFolder>>;
  let fleet: Fleet;
  beforeAll(async () => {
    folder = await openFolder();
    fleet = await openFleet({ tasks: ['file-savers'], env: inFolder(folder.path) });
  });
  afterAll(async () => {
    await fleet[Symbol.asyncDispose]();
    await folder[Symbol.asyncDispose]();
  });

  test.each(
    ['files.save', 'files.save-in-thread'].flatMap((type) =>
      ['path', 'bytes', 'stream'].map((from) => [type, from] as const),
    ),
  )('a file that %s hands over as %s comes out of its link byte for byte', async (type, from) => {
    const task = await runTask(fleet, type, { from, bytes: 300_001, name: `${from}.bin` });
    const { report } = task['result'] as Saved;
    expect(report).toEqual({
      $file: expect.any(String),
      name: `${from}.bin`,
      contentType: 'application/octet-stream',
      bytes: 300_001,
    });
    const { body } = await call(fleet.producer().url, 'GET', `/v1/tasks/${task.id}/files`);
    const sha256 = await expectedDigest(300_001, `${from}.bin`);
    expect(body['items']).toEqual([
      {
        id: report.$file,
        kind: 'saved',
        name: `${from}.bin`,
        contentType: 'application/octet-stream',
        bytes: 300_001,
        sha256,
        createdAt: expect.any(String),
      },
    ]);
    const response = await fetch((await linkTo(fleet, task.id, report.$file)).url);
    expect(response.headers.get('content-length')).toBe('300001');
    expect(await digestOf(response)).toBe(sha256);
  });

  test('100 MB go through worker and producer in bounded memory', async () => {
    const bytes = 100 * MEBIBYTE + 3;
    await runTask(fleet, 'files.save', { from: 'stream', bytes: MEBIBYTE, name: 'warm-up.bin' });
    const [worker, producer] = [fleet.worker(0), fleet.producer()];
    const before = { worker: await peakMemoryOf(worker.pid), producer: await peakMemoryOf(producer.pid) };
    const task = await runTask(fleet, 'files.save', { from: 'stream', bytes, name: 'big.bin' });
    const { report } = task['result'] as Saved;
    const response = await fetch((await linkTo(fleet, task.id, report.$file)).url);
    expect(await digestOf(response)).toBe(await expectedDigest(bytes, 'big.bin'));
    expect((await peakMemoryOf(worker.pid)) - before.worker).toBeLessThan(70 * MEBIBYTE);
    expect((await peakMemoryOf(producer.pid)) - before.producer).toBeLessThan(70 * MEBIBYTE);
  });

  test('a page that a handler saved is downloaded, never shown: its headers say so', async () => {
    const text = '<script>fetch("/v1/tasks")</script>';
    const task = await runTask(fleet, 'files.save', {
      text,
      name: 'page.html',
      contentType: 'text/html; charset=utf-8',
    });
    const { url } = await linkTo(fleet, task.id, (task['result'] as Saved).report.$file);
    const response = await fetch(url);
    expect(await response.text()).toBe(text);
    expect(Object.fromEntries(response.headers)).toMatchObject({
      'content-type': 'text/html; charset=utf-8',
      'content-disposition': `attachment; filename="page.html"; filename*=UTF-8''page.html`,
      'content-security-policy': "sandbox; default-src 'none'",
      'x-content-type-options': 'nosniff',
      'cache-control': 'private, no-store',
      'referrer-policy': 'no-referrer',
    });
  });

  test.each([
    [
      'Bericht "größer" 100%.csv',
      `attachment; filename="Bericht _gr__er_ 100_.csv"; filename*=UTF-8''Bericht%20%22gr%C3%B6%C3%9Fer%22%20100%25.csv`,
    ],
    ["it's; (a)*.txt", `attachment; filename="it's; (a)*.txt"; filename*=UTF-8''it%27s%3B%20%28a%29%2A.txt`],
    ['報告📈.pdf', `attachment; filename="____.pdf"; filename*=UTF-8''%E5%A0%B1%E5%91%8A%F0%9F%93%88.pdf`],
    ['invoice\u202Efdp.exe', `attachment; filename="invoicefdp.exe"; filename*=UTF-8''invoicefdp.exe`],
    ['..hidden..', `attachment; filename="..hidden.."; filename*=UTF-8''..hidden..`],
  ])('a file may be named %s', async (name, disposition) => {
    const task = await runTask(fleet, 'files.save', { text: 'x', name });
    const { report } = task['result'] as Saved;
    expect(report.name).toBe(name);
    const response = await fetch((await linkTo(fleet, task.id, report.$file)).url);
    expect(response.headers.get('content-disposition')).toBe(disposition);
    expect(await response.text()).toBe('x');
  });

  test.each(['../../etc/passwd', 'a\\b', '..', '', 'a\nb', 'x'.repeat(256)])(
    'a file may not be named %j',
    async (name) => {
      const stored = (await filesBelow(folder.path)).length;
      const task = await runTask(fleet, 'files.save', { text: 'x', name, failures: 9 });
      expect(task.state).toBe('dead');
      const [attempt] = task['attempts'] as readonly { readonly error: { readonly code: string } }[];
      expect(attempt?.error.code).toBe('field-invalid');
      expect((await filesBelow(folder.path)).length).toBeLessThanOrEqual(stored);
    },
  );

  test('a link that was changed in any place leads nowhere, and so does one whose time is over', async () => {
    const task = await runTask(fleet, 'files.save', { text: 'secret', name: 'a.txt' });
    const fileId = (task['result'] as Saved).report.$file;
    const { path, expiresAt } = await linkTo(fleet, task.id, fileId, { expiresInSeconds: 600 });
    const base = fleet.producer().url;
    expect(Date.parse(expiresAt) - systemClock.now().getTime()).toBeGreaterThan(590_000);
    expect(await (await fetch(base + path)).text()).toBe('secret');

    const [, expires = '', signature = ''] = /expires=(\d+)&signature=(.+)$/.exec(path) ?? [];
    const twin = signature.slice(0, -1) + String.fromCharCode(signature.charCodeAt(42) + 1); // perhaps the same bytes
    const forged = [
      `/v1/files/${fileId}`,
      `/v1/files/${fileId}?expires=${expires}`,
      `/v1/files/${fileId}?signature=${signature}`,
      `/v1/files/${fileId}?signature=${signature}&expires=${expires}`,
      path.replace(expires, String(Number(expires) + 1)),
      path.replace(expires, `0${expires}`),
      path.replace(fileId, `${fileId.slice(0, -1)}${fileId.endsWith('0') ? '1' : '0'}`),
      path.replace(fileId, fileId.toUpperCase()),
      path.replace(signature, twin),
      path.replace(signature, signature.toLowerCase()),
      path.replace(signature, ''),
      `${path}&more=1`,
      `${path}=`,
      signLink('another-secret-of-the-same-length-as-ours', fileId, new Date(expiresAt)),
    ];
    for (const each of forged) {
      const response = await fetch(base + each);
      expect({ each, status: response.status, type: ((await response.json()) as { type: string }).type }).toEqual({
        each,
        status: 403,
        type: 'link-invalid',
      });
    }
    const late = await call(base, 'GET', signLink(LINK_SECRET, fileId, new Date(systemClock.now().getTime() - 1_000)));
    expect([late.status, late.body['type']]).toEqual([403, 'link-expired']);
  });

  test('a part of a file is given to whoever asks for it, and HEAD says how long it is', async () => {
    const task = await runTask(fleet, 'files.save', {
      text: '0123456789',
      name: 'digits.txt',
      contentType: 'text/plain',
    });
    const { url } = await linkTo(fleet, task.id, (task['result'] as Saved).report.$file);
    const ask = async (range: string, more: Record<string, string> = {}): Promise<readonly unknown[]> => {
      const response = await fetch(url, { headers: { range, ...more } });
      return [
        response.status,
        response.headers.get('content-range'),
        response.status < 400 ? await response.text() : '',
      ];
    };
    expect(await ask('bytes=2-4')).toEqual([206, 'bytes 2-4/10', '234']);
    expect(await ask('bytes=7-')).toEqual([206, 'bytes 7-9/10', '789']);
    expect(await ask('bytes=-3')).toEqual([206, 'bytes 7-9/10', '789']);
    expect(await ask('bytes=8-99')).toEqual([206, 'bytes 8-9/10', '89']);
    expect(await ask('bytes=10-')).toEqual([416, 'bytes */10', '']);
    expect(await ask('bytes=0-1,4-5')).toEqual([200, null, '0123456789']);
    expect(await ask('bytes=2-4', { 'if-range': '"of another file"' })).toEqual([200, null, '0123456789']);
    const head = await fetch(url, { method: 'HEAD' });
    expect([head.status, head.headers.get('content-length'), await head.text()]).toEqual([200, '10', '']);
  });

  test('there is no link to what is not there, nor before its task has succeeded', async () => {
    const base = fleet.producer().url;
    const unknown = '0198f3a2-7c10-7d3e-9a4b-2f6c1d8e5b70';
    const task = await runTask(fleet, 'files.save', { text: 'x' });
    const asked = async (path: string, body?: object): Promise<readonly unknown[]> => {
      const answer = await call(base, 'POST', path, body);
      return [answer.status, answer.body['type']];
    };
    const fileId = (task['result'] as Saved).report.$file;
    expect(await asked(`/v1/tasks/${unknown}/files/${fileId}/link`)).toEqual([404, 'task-not-found']);
    expect(await asked(`/v1/tasks/${task.id}/files/${unknown}/link`)).toEqual([404, 'file-not-found']);
    expect(await asked(`/v1/tasks/x/files/${fileId}/link`)).toEqual([400, 'field-invalid']);
    for (const expiresInSeconds of [0, 1.5, 2_592_001, 'soon']) {
      expect(await asked(`/v1/tasks/${task.id}/files/${fileId}/link`, { expiresInSeconds })).toEqual([
        400,
        'field-invalid',
      ]);
    }
    expect((await call(base, 'GET', `/v1/tasks/${unknown}/files`)).status).toBe(404);
    expect(
      (await call(base, 'GET', signLink(LINK_SECRET, unknown, new Date(systemClock.now().getTime() + 9_000)))).body[
        'type'
      ],
    ).toBe('file-not-found');
  });

  test('a result of exactly the limit stays in the row, byte for byte, and one byte more goes to the store', async () => {
    const fits = await runTask(fleet, 'files.large-result', { bytes: 65_536 });
    expect(fits['result']).toBe('x'.repeat(65_534));
    expect(fits['resultFile']).toBeUndefined();
    const large = await runTask(fleet, 'files.large-result', { bytes: 65_537 });
    expect(large.state).toBe('succeeded');
    expect(large['result']).toBeUndefined();
    const file = large['resultFile'] as { readonly id: string; readonly link: string };
    expect(file).toMatchObject({ name: 'result.json', contentType: 'application/json', bytes: 65_537 });
    expect(file.link).toBe(`/v1/tasks/${large.id}/files/${file.id}/link`);
    const client = createClient({ url: fleet.producer().url });
    expect(JSON.stringify(await client.result(large.id))).toHaveLength(65_537);
    const { url } = await linkTo(fleet, large.id, file.id);
    expect(await (await fetch(url)).json()).toBe('x'.repeat(65_535));
  });

  test('the command line lists files, downloads one by name or id with a bar, and leaves nothing where it cannot', async () => {
    const task = await runTask(fleet, 'files.save', { bytes: 3 * MEBIBYTE, name: 'data.bin' });
    const { $file: fileId } = (task['result'] as Saved).report;
    const env = { WARREN_URL: fleet.producer().url };
    const listed = await warren(['task', 'files', task.id], { env });
    expect(listed.stdout).toMatch(new RegExp(`${fileId} +3145728 +saved +.* +application/octet-stream +data.bin`));
    const output = join(folder.path, 'downloaded');
    for (const wanted of ['data.bin', fileId]) {
      const done = await warren(['task', 'download', task.id, wanted, '-o', output], { env, isTTY: true });
      expect([done.exitCode, done.stderr]).toEqual([
        0,
        expect.stringMatching(/% of 3145728 bytes[^]*3145728 bytes are in/),
      ]);
      expect(
        createHash('sha256')
          .update(await readFile(output))
          .digest('hex'),
      ).toBe(await expectedDigest(3 * MEBIBYTE, 'data.bin'));
      await rm(output);
    }
    const missing = await warren(['task', 'download', task.id, 'other.bin', '-o', output], { env });
    expect([missing.exitCode, missing.stderr]).toEqual([1, expect.stringContaining('The task has no such file.')]);
    const nowhere = await warren(['task', 'download', task.id, fileId, '-o', join(output, 'no', 'folder')], { env });
    expect([nowhere.exitCode, nowhere.stderr]).toEqual([2, expect.stringContaining('cannot be written: ENOENT')]);
    for (const path of await filesBelow(folder.path)) if (path.includes(fileId)) await writeFile(path, 'another file');
    const changed = await warren(['task', 'download', task.id, fileId, '-o', output], { env });
    expect(changed.exitCode).not.toBe(0);
    expect((await filesBelow(folder.path)).filter((path) => path.startsWith(output))).toEqual([]);
    const large = await runTask(fleet, 'files.large-result', { bytes: 70_000 });
    const shown = await warren(['task', 'get', large.id], { env });
    expect(shown.stdout).toContain(`70000 bytes; warren task download ${large.id}`);
  });

  test('a file of an attempt that failed is deleted, and that of the attempt that succeeded stays', async () => {
    const task = await runTask(fleet, 'files.save', { text: 'kept', name: 'kept.txt', failures: 1 });
    expect(task['attempt']).toBe(2);
    const { report } = task['result'] as Saved;
    await eventually(async () => {
      const rows = (await fileRows(fleet)).filter((row) => row['task_id'] === task.id);
      expect(rows.map((row) => row['id'])).toEqual([report.$file]);
    });
    const response = await fetch((await linkTo(fleet, task.id, report.$file)).url);
    expect(await response.text()).toBe('kept');
  });

  test('what the store holds and no row names is deleted once it is old enough', async () => {
    const { rows } = await fleet.database.database.query({ text: 'select store_id from installation' });
    const [{ store_id: storeId }] = rows as [{ store_id: string }];
    const old = new Date(systemClock.now().getTime() - 60_000);
    const plant = async (path: string, at: Date): Promise<string> => {
      const file = join(folder.path, path);
      await mkdir(dirname(file), { recursive: true });
      await writeFile(file, 'stray');
      await utimes(file, at, at);
      return file;
    };
    const strays = [
      await plant(`${storeId}/0f/0198f3a2-7c10-7d3e-9a4b-2f6c1d8e5b0f`, old),
      await plant(`${storeId}/not-an-id`, old),
      await plant(`.unfinished/${storeId}/half`, old),
    ];
    const future = new Date(systemClock.now().getTime() + 60_000);
    const kept = [
      await plant('of-another-database/0f/0198f3a2-7c10-7d3e-9a4b-2f6c1d8e5b0f', old),
      await plant(`${storeId}/1f/0198f3a2-7c10-7d3e-9a4b-2f6c1d8e5b1f`, future),
      await plant(`.unfinished/${storeId}/under-way`, future),
    ];
    await eventually(async () => {
      const present = await filesBelow(folder.path);
      expect(strays.filter((path) => present.includes(path))).toEqual([]);
    });
    const present = await filesBelow(folder.path);
    expect(kept.filter((path) => !present.includes(path))).toEqual([]);
    await Promise.all(kept.map(async (path) => await rm(path)));
    const { rows: named } = await fleet.database.database.query({
      text: `select key from files where stored_at is not null`,
    });
    for (const { key } of named as { key: string }[]) expect(present).toContain(join(folder.path, key));
  });

  test('a file is deleted when its time and that of its last link are over, and not before', async () => {
    const task = await runTask(fleet, 'files.save', { text: 'short-lived' });
    const fileId = (task['result'] as Saved).report.$file;
    const { path } = await linkTo(fleet, task.id, fileId);
    const { database } = fleet.database;
    const look = async (): Promise<void> => {
      await database.query({ text: `update files set sweep_at = clock_timestamp() where id = $1`, values: [fileId] });
      await eventually(async () => {
        const text = `select from files where id = $1 and sweep_at <= clock_timestamp()`;
        expect((await database.query({ text, values: [fileId] })).rows).toEqual([]);
      });
    };
    const shift = async (table: 'tasks' | 'files', column: string, interval: string, id: string): Promise<void> => {
      await database.query({
        text: `update ${table} set ${column} = ${column} - interval '${interval}' where id = $1`,
        values: [id],
      });
    };
    await shift('tasks', 'finished_at', '8 days', task.id); // its own time is over, its link and the day after are not
    await look();
    expect((await fetch(fleet.producer().url + path)).status).toBe(200);
    await shift('files', 'link_expires_at', '49 hours', fileId);
    await look();
    const gone = await call(fleet.producer().url, 'GET', path);
    expect([gone.status, gone.body['type']]).toEqual([404, 'file-not-found']);
    await eventually(async () => expect((await fileRows(fleet)).map((row) => row['id'])).not.toContain(fileId));
    expect((await filesBelow(folder.path)).filter((file) => file.includes(fileId))).toEqual([]);
  });

  test('files of a task whose row is gone are deleted', async () => {
    const task = await runTask(fleet, 'files.save', { text: 'x' });
    const fileId = (task['result'] as Saved).report.$file;
    const { database } = fleet.database;
    await database.query({ text: 'delete from tasks where id = $1', values: [task.id] });
    await database.query({ text: 'update files set sweep_at = clock_timestamp() where id = $1', values: [fileId] });
    await eventually(async () => {
      expect((await filesBelow(folder.path)).filter((file) => file.includes(fileId))).toEqual([]);
      expect((await fileRows(fleet)).map((row) => row['id'])).not.toContain(fileId);
    });
  });

  test('the files of an erased task are gone at once and their bytes soon after, those of others stay', async () => {
    const [erased, other] = [
      await runTask(fleet, 'files.save', { text: 'a' }),
      await runTask(fleet, 'files.save', { text: 'b' }),
    ];
    const gone = await linkTo(fleet, erased.id, (erased['result'] as Saved).report.$file);
    const { status, body } = await call(fleet.producer().url, 'POST', '/v1/erasures', {
      taskIds: [erased.id],
      reason: 'of a test',
    });
    expect([status, body['erased']]).toEqual([200, expect.objectContaining({ tasks: 1, files: 1 })]);
    expect((await fetch(gone.url)).status).toBe(404);
    await eventually(async () =>
      expect(await rows(fleet.database.database, 'select 1 from files where task_id = $1', erased.id)).toEqual([]),
    );
    expect((await call(fleet.producer().url, 'GET', `/v1/tasks/${erased.id}/files`)).body['items']).toEqual([]);
    const { url } = await linkTo(fleet, other.id, (other['result'] as Saved).report.$file);
    expect(await (await fetch(url)).text()).toBe('b');
  });

  test('while the store is away attempts fail with what is wrong with it, and are repeated', async () => {
    const aside = `${folder.path}-aside`;
    await rename(folder.path, aside);
    await writeFile(folder.path, 'a file where the folder was');
    const [id = ''] = await fleet.submit({ type: 'files.save', input: { text: 'x' }, maxAttempts: 50 });
    await eventually(async () => {
      const [first] = await fleet.attempts(id);
      expect(first).toMatchObject({
        outcome: 'failed',
        error_message: expect.stringMatching(/The store of files does not take.*ENOTDIR/),
      });
    });
    await rm(folder.path);
    await rename(aside, folder.path);
    await eventually(async () => expect((await fleet.task(id)).state).toBe('succeeded'));
  });

  test('a path that is not there fails the attempt with what the file system says', async () => {
    const task = await runTask(fleet, 'files.missing', {});
    const [attempt] = task['attempts'] as readonly { readonly error: { readonly code: string } }[];
    expect([task.state, attempt?.error.code]).toEqual(['dead', 'ENOENT']);
  });

  test('a file whose bytes somebody took away is not found, and its row can be deleted all the same', async () => {
    const task = await runTask(fleet, 'files.save', { text: 'x' });
    const fileId = (task['result'] as Saved).report.$file;
    const { url } = await linkTo(fleet, task.id, fileId);
    for (const file of await filesBelow(folder.path)) if (file.includes(fileId)) await rm(file);
    expect((await fetch(url)).status).toBe(404);
    await fleet.database.database.query({ text: 'delete from tasks where id = $1', values: [task.id] });
    await fleet.database.database.query({
      text: 'update files set sweep_at = clock_timestamp() where id = $1',
      values: [fileId],
    });
    await eventually(async () => expect((await fileRows(fleet)).map((row) => row['id'])).not.toContain(fileId));
  });
});

describe('with a bucket of S3', () => {
  let server: S3Server;
  let fleet: Fleet;
  beforeAll(async () => {
    server = await openS3Server();
    fleet = await openFleet({
      tasks: ['file-savers'],
      env: {
        ...inFolder(''),
        WARREN_FILES_STORE: 's3',
        WARREN_FILES_S3_ENDPOINT: server.endpoint,
        WARREN_FILES_S3_BUCKET: S3_BUCKET,
        WARREN_FILES_S3_ACCESS_KEY_ID: S3_KEY.accessKeyId,
        WARREN_FILES_S3_SECRET_ACCESS_KEY: S3_KEY.secretAccessKey,
      },
    });
  });
  afterAll(async () => {
    await fleet[Symbol.asyncDispose]();
    await server[Symbol.asyncDispose]();
  });

  test('files and large results are saved, downloaded and deleted', async () => {
    const bytes = 20 * MEBIBYTE + 1;
    const task = await runTask(fleet, 'files.save', { from: 'stream', bytes, name: 'parts.bin', failures: 1 });
    const { report } = task['result'] as Saved;
    const { url } = await linkTo(fleet, task.id, report.$file);
    expect(await digestOf(await fetch(url))).toBe(await expectedDigest(bytes, 'parts.bin'));
    expect(await (await fetch(url, { headers: { range: 'bytes=0-3' } })).arrayBuffer()).toHaveProperty('byteLength', 4);
    const large = await runTask(fleet, 'files.large-result', { bytes: 70_000 });
    expect(large['resultFile']).toMatchObject({ bytes: 70_000 });
    await eventually(async () => {
      const rows = (await fileRows(fleet)).filter((row) => row['task_id'] === task.id);
      expect(rows.map((row) => row['id'])).toEqual([report.$file]);
    });
  });

  test('while the server is away attempts fail retryably and downloads are answered 503; both work again after', async () => {
    const task = await runTask(fleet, 'files.save', { text: 'there' });
    const { url } = await linkTo(fleet, task.id, (task['result'] as Saved).report.$file);
    await server.stop();
    const answer = await fetch(url);
    expect([answer.status, ((await answer.json()) as { type: string }).type]).toEqual([503, 'file-store-unavailable']);
    const [id = ''] = await fleet.submit({ type: 'files.save', input: { text: 'x' }, maxAttempts: 50 });
    await eventually(async () => {
      const [first] = await fleet.attempts(id);
      expect(first).toMatchObject({
        error_message: expect.stringMatching(/The store of files does not take.*ECONNREFUSED/),
      });
    });
    const [large = ''] = await fleet.submit({
      type: 'files.large-result',
      input: { bytes: 70_000 },
      maxAttempts: 50,
    });
    await eventually(async () => {
      const [first] = await fleet.attempts(large);
      expect(first).toMatchObject({ outcome: 'failed', error_message: expect.stringContaining('ECONNREFUSED') });
    });
    await server.start();
    await eventually(async () => expect((await fleet.task(large)).state).toBe('succeeded'), { withinMs: 30_000 });
    await eventually(async () => expect((await fleet.task(id)).state).toBe('succeeded'), { withinMs: 30_000 });
    expect(await (await fetch(url)).text()).toBe('there');
  });
});

test('without a store a file cannot be saved, a large result dies, and both say what to do', async () => {
  await using fleet = await openFleet({ tasks: ['file-savers'] });
  const saved = await runTask(fleet, 'files.save', { text: 'x' });
  const large = await runTask(fleet, 'files.large-result', { bytes: 65_537 });
  const codes = [saved, large].map((task) => {
    const attempts = task['attempts'] as readonly {
      readonly error: { readonly code: string; readonly message: string };
    }[];
    return [task.state, attempts.length, attempts[0]?.error.code, attempts[0]?.error.message.includes('files.store')];
  });
  expect(codes).toEqual([
    ['dead', 1, 'file-store-missing', true],
    ['dead', 1, 'result-too-large', true],
  ]);
  const answer = await call(fleet.producer().url, 'POST', `/v1/tasks/${saved.id}/files/${saved.id}/link`);
  expect([answer.status, answer.body['type']]).toEqual([501, 'file-store-missing']);
});

test('a file beyond files.maxBytes dies at once, and nothing of it is kept', async () => {
  await using folder = await openFolder();
  await using fleet = await openFleet({
    tasks: ['file-savers'],
    env: { ...inFolder(folder.path), WARREN_FILES_MAX_BYTES: '1000' },
  });
  const task = await runTask(fleet, 'files.save', { from: 'stream', bytes: 200_000 });
  const attempts = task['attempts'] as readonly { readonly error: { readonly code: string } }[];
  expect([task.state, attempts.map(({ error }) => error.code)]).toEqual(['dead', ['file-too-large']]);
  expect(await filesBelow(folder.path)).toEqual([]);
  expect(await fileRows(fleet)).toEqual([]);
});
