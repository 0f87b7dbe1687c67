/** What every store of files does: one suite for the folder and for a server that speaks S3. */
import { randomBytes } from 'node:crypto';
import { mkdtemp, readdir, rm, stat, utimes, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Readable } from 'node:stream';
import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import { FsStore } from '../../shared/files/fs-store.ts';
import { storeFailure } from '../../shared/files/file-store.ts';
import type { FileStore } from '../../shared/files/file-store.ts';
import { S3Store, loadS3Packages } from '../../shared/files/s3-store.ts';
import { systemClock } from '../../shared/time/clock.ts';
import { openS3Server, S3_BUCKET, S3_KEY } from '../support/s3-server.ts';
import '../support/suppressed-error.ts';

const never = new AbortController().signal;
const FUTURE = new Date(8.64e15);

async function* pieces(...given: readonly Uint8Array[]): AsyncGenerator<Uint8Array> {
  for (const piece of given) yield await Promise.resolve(piece);
}

async function bytesOf(stream: Readable): Promise<Buffer> {
  return Buffer.concat((await stream.toArray()) as Buffer[]);
}

interface Opened extends AsyncDisposable {
  readonly store: FileStore;
}

async function openFs(): Promise<Opened> {
  const root = await mkdtemp(join(tmpdir(), 'warren-files-'));
  const dispose = async (): Promise<void> => await rm(root, { recursive: true, force: true });
  return { store: new FsStore(root), [Symbol.asyncDispose]: dispose };
}

async function openS3(): Promise<Opened> {
  const server = await openS3Server();
  const options = { bucket: S3_BUCKET, region: 'us-east-1', endpoint: server.endpoint, credentials: S3_KEY };
  const store = new S3Store(await loadS3Packages(), options);
  const dispose = async (): Promise<void> => {
    store.close();
    await server[Symbol.asyncDispose]();
  };
  return { store, [Symbol.asyncDispose]: dispose };
}

describe.each([
  ['a folder', openFs],
  ['S3', openS3],
])('%s', (_name, open) => {
  let opened: Opened;
  let store: FileStore;
  beforeAll(async () => {
    opened = await open();
    ({ store } = opened);
  });
  afterAll(async () => await opened[Symbol.asyncDispose]());

  test('gives back the bytes that it was given, whole or a part of them', async () => {
    const bytes = randomBytes(20_000_000); // in several parts
    await store.put(
      'bytes/whole',
      pieces(bytes.subarray(0, 7), bytes.subarray(7, 9_000_000), bytes.subarray(9_000_000)),
      never,
    );
    expect((await bytesOf(await store.get('bytes/whole'))).equals(bytes)).toBe(true);
    const part = await bytesOf(await store.get('bytes/whole', { start: 8_999_999, end: 9_000_001 }));
    expect(part).toEqual(bytes.subarray(8_999_999, 9_000_002));
  });

  test('keeps an empty file', async () => {
    await store.put('bytes/empty', pieces(), never);
    expect(await bytesOf(await store.get('bytes/empty'))).toEqual(Buffer.alloc(0));
  });

  test('says of what is not there that it is not there, and deletes it without a word', async () => {
    await expect(store.get('bytes/nothing')).rejects.toMatchObject({ code: 'file-not-found' });
    await store.put('gone/a', pieces(Buffer.from('a')), never);
    await store.delete(['gone/a', 'gone/b']);
    await store.delete([]);
    await expect(store.get('gone/a')).rejects.toMatchObject({ code: 'file-not-found' });
  });

  test('lists by prefix in the order of keys, a page at a time', async () => {
    const before = systemClock.now().getTime() - 2_000;
    const keys = ['listed/1a/x', 'listed/1a/y', 'listed/1b', 'listed/2/z'];
    for (const key of [...keys, 'listed2/other']) await store.put(key, pieces(Buffer.from(key)), never);
    const first = await store.list('listed/', undefined, 3);
    expect(first.map(({ key }) => key)).toEqual(keys.slice(0, 3));
    expect(first.every(({ storedAt }) => storedAt.getTime() > before)).toBe(true);
    expect((await store.list('listed/', keys[2], 3)).map(({ key }) => key)).toEqual(keys.slice(3));
    expect((await store.list('listed/', keys[0], 3)).map(({ key }) => key)).toEqual(keys.slice(1));
    expect(await store.list('nothing/', undefined, 3)).toEqual([]);
  });

  test('leaves nothing of an upload whose source fails, and throws what the source threw', async () => {
    async function* broken(): AsyncGenerator<Uint8Array> {
      yield randomBytes(9_000_000);
      throw await Promise.resolve(new RangeError('the source broke'));
    }
    await expect(store.put('broken/a', broken(), never)).rejects.toThrow('the source broke');
    expect(await store.list('broken/', undefined, 9)).toEqual([]);
    expect(await store.removeUnfinished('broken/', FUTURE, 9)).toBe(0);
  });

  test('leaves nothing of an upload that is aborted', async () => {
    const aborting = new AbortController();
    async function* endless(): AsyncGenerator<Uint8Array> {
      for (let count = 0; ; count += 1) {
        if (count === 3) aborting.abort(new Error('enough'));
        yield await Promise.resolve(Buffer.alloc(1_000_000));
      }
    }
    await expect(store.put('aborted/a', endless(), aborting.signal)).rejects.toThrow('enough');
    expect(await store.list('aborted/', undefined, 9)).toEqual([]);
  });

  test('stores once more under the same key what was stored under it', async () => {
    await store.put('again/a', pieces(Buffer.from('first')), never);
    await store.put('again/a', pieces(Buffer.from('2nd')), never);
    expect(String(await bytesOf(await store.get('again/a')))).toBe('2nd');
  });
});

test('in a folder nothing can be read by others, and no key leads out of it', async () => {
  await using opened = await openFs();
  const root = await mkdtemp(join(tmpdir(), 'warren-files-'));
  const store = new FsStore(join(root, 'made'));
  await store.put('a/b', pieces(Buffer.from('x')), never);
  const modes = await Promise.all(
    ['made', 'made/a', 'made/a/b'].map(async (path) => (await stat(join(root, path))).mode & 0o777),
  );
  expect(modes).toEqual([0o700, 0o700, 0o600]);
  for (const key of ['../out', 'a/../../out', '/etc/passwd', 'a//b', 'a/./b', '.unfinished/a', '', 'A', 'a\0']) {
    await expect(store.get(key)).rejects.toThrow('no key of a store');
    await expect(store.delete([key])).rejects.toThrow('no key of a store');
    await expect(store.put(key, pieces(), never)).rejects.toThrow('no key of a store');
  }
  await rm(root, { recursive: true });
  expect(await opened.store.list('a/', undefined, 1)).toEqual([]);
});

test('in a folder what an upload left is removed once it is old, and nothing else', async () => {
  const root = await mkdtemp(join(tmpdir(), 'warren-files-'));
  const store = new FsStore(root);
  await store.put('owner/a', pieces(Buffer.from('x')), never);
  const folder = join(root, '.unfinished', 'owner');
  for (const name of ['old', 'new']) await writeFile(join(folder, name), 'half');
  await utimes(join(folder, 'old'), new Date(1_000_000), new Date(1_000_000));
  expect(await store.removeUnfinished('owner/', new Date(systemClock.now().getTime() - 60_000), 10)).toBe(1);
  expect(await readdir(folder)).toEqual(['new']);
  expect(await store.list('owner/', undefined, 10)).toHaveLength(1);
  await rm(root, { recursive: true });
});

test('a store that is away, full or wrongly configured says so, and that a retry may help', async () => {
  const root = await mkdtemp(join(tmpdir(), 'warren-files-'));
  await writeFile(join(root, 'file'), '');
  const blocked = new FsStore(join(root, 'file', 'store'));
  await expect(blocked.put('a', pieces(), never)).rejects.toMatchObject({
    code: 'file-store-unavailable',
    facts: { reason: expect.stringContaining('ENOTDIR') },
  });
  const full: unknown = await writeFile('/dev/full', 'x').catch((thrown: unknown) => thrown);
  expect(storeFailure(full)).toMatchObject({ facts: { reason: 'no space is left (ENOSPC)' } });
  await rm(root, { recursive: true });

  const server = await openS3Server();
  const options = { region: 'us-east-1', endpoint: server.endpoint, credentials: S3_KEY };
  const packages = await loadS3Packages();
  const wrong = new S3Store(packages, { ...options, bucket: 'no-such-bucket' });
  const failure = { code: 'file-store-unavailable', facts: { reason: 'there is no such bucket' } };
  await expect(wrong.put('a', pieces(Buffer.from('x')), never)).rejects.toMatchObject(failure);
  const right = new S3Store(packages, { ...options, bucket: S3_BUCKET });
  await server.stop();
  const away = { code: 'file-store-unavailable', facts: { reason: 'nothing listens there (ECONNREFUSED)' } };
  await expect(right.put('a', pieces(Buffer.from('x')), never)).rejects.toMatchObject(away);
  await expect(right.get('a')).rejects.toMatchObject(away);
  await server.start();
  await right.put('a', pieces(Buffer.from('x')), never);
  expect(String(await bytesOf(await right.get('a')))).toBe('x');
  right.close();
  wrong.close();
  await server[Symbol.asyncDispose]();
});

test('without the packages of S3 the configuration is refused with what to install', async () => {
  const load = async (name: string): Promise<unknown> =>
    await Promise.reject(new Error(`Cannot find package '${name}' imported from here`));
  await expect(loadS3Packages(load)).rejects.toMatchObject({
    code: 'config-invalid',
    facts: { faults: [expect.stringContaining('npm install @aws-sdk/client-s3 @aws-sdk/lib-storage')] },
  });
});
