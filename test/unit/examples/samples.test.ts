import { once } from 'node:events';
import { copyFile, mkdir, readFile, readdir, rm, writeFile } from 'node:fs/promises';
import { createServer } from 'node:http';
import type { Server, ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from '@jest/globals';
import sharp from 'sharp';
import { OUTPUT_DIRECTORY, dataDirectory } from '../../../examples/tasks/files.ts';
import * as samples from '../../../examples/tasks/samples.ts';
import { describeTask } from '../../../shared/tasks/define-task.ts';
import { newId } from '../../../shared/tasks/ids.ts';
import type { Outcome } from '../../../shared/tasks/outcome.ts';
import { openRunner } from '../../support/runner.ts';
import type { TestRunner } from '../../support/runner.ts';

const folder = `test-${newId()}`;
const module = new URL('../../../examples/tasks/samples.ts', import.meta.url).href;
let runner: TestRunner;
beforeEach(async () => {
  runner = await openRunner({ module });
});
afterEach(async () => {
  await runner[Symbol.asyncDispose]();
});
afterAll(async () => {
  await rm(join(OUTPUT_DIRECTORY, folder), { recursive: true, force: true });
  await rm(join(OUTPUT_DIRECTORY, 'inbox', folder), { recursive: true, force: true });
});

const valueOf = (outcome: Outcome): unknown =>
  outcome.kind === 'succeeded' && outcome.result !== undefined ? JSON.parse(outcome.result.toString()) : outcome;

test('every sample has a form that others can draw and check', () => {
  const described = Object.values(samples).map((type) => describeTask(type));
  expect(described.map(({ name }) => name).toSorted()).toEqual([
    'coupon.count',
    'coupon.create',
    'demo.slow',
    'image.thumbnail',
    'notify.webhook',
    'report.csv',
    'settlement.day',
    'text.digest',
    'user.check',
  ]);
  expect(described.every(({ inputSchema }) => inputSchema !== undefined)).toBe(true);
});

describe('report.csv', () => {
  test('aggregates all 200 000 flights, tells how far it is, and leaves one whole file', async () => {
    const outcome = await runner.run(samples.reportCsv, { output: folder });
    const file = join(OUTPUT_DIRECTORY, folder, 'flights-by-hour.csv');
    expect(valueOf(outcome)).toEqual({ file, rows: 200_000, groups: 24 });
    const [head, ...lines] = (await readFile(file, 'utf8')).trimEnd().split('\n');
    expect(head).toBe('hour,flights,mean_delay_minutes,late_percent,worst_delay_minutes');
    expect(lines.map((line) => Number(line.split(',')[1])).reduce((sum, count) => sum + count, 0)).toBe(200_000);
    expect(await readdir(join(OUTPUT_DIRECTORY, folder))).toEqual(['flights-by-hour.csv']);
    const fractions = runner.progress.map(({ fraction }) => fraction);
    expect(fractions.length).toBeGreaterThan(100);
    expect(fractions.toSorted((a, b) => a - b)).toEqual(fractions);
    expect(fractions.at(-1)).toBe(1);
  });

  test('agrees with a plain computation', async () => {
    await runner.run(samples.reportCsv, { source: 'flights-2k.json', groupBy: 'distance', output: folder });
    const flights = JSON.parse(await readFile(join(dataDirectory(), 'flights-2k.json'), 'utf8')) as {
      delay: number;
      distance: number;
    }[];
    const near = flights.filter(({ distance }) => distance < 250).map(({ delay }) => delay);
    const mean = near.reduce((sum, delay) => sum + delay, 0) / near.length;
    const late = (near.filter((delay) => delay > 15).length / near.length) * 100;
    const [, first] = (await readFile(join(OUTPUT_DIRECTORY, folder, 'flights-by-distance.csv'), 'utf8')).split('\n');
    expect(first).toBe(`0,${near.length},${mean.toFixed(2)},${late.toFixed(1)},${Math.max(...near)}`);
  });

  test.each(['../x', '/etc', 'a/../../x', '..', 'a\0b', '.hidden'])('an output of %j is refused', async (output) => {
    expect(await runner.run(samples.reportCsv, { output })).toMatchObject({ kind: 'failed', reason: 'invalid_input' });
  });

  test('a source that does not exist is for good, a data set of another kind fails', async () => {
    const run = (source: string): Promise<Outcome> => runner.run(samples.reportCsv, { source, output: folder });
    expect(await run('nope.json')).toMatchObject({ reason: 'non_retryable', error: { code: 'ENOENT' } });
    expect(await run('cars.json')).toMatchObject({ kind: 'failed', reason: 'error' });
  });
});

describe('coupons', () => {
  test('are made for users that there are, one file each however often that is tried, and counted', async () => {
    const of = `${folder}/coupons`;
    expect(await runner.run(samples.userCheck, { user: 10_001 })).toMatchObject({
      kind: 'failed',
      reason: 'non_retryable',
    });
    expect(valueOf(await runner.run(samples.couponCount, { folder: of }))).toEqual({ coupons: 0 });
    const checked = valueOf(await runner.run(samples.userCheck, { user: 120 })) as { user: number; percent: number };
    expect(checked).toEqual({ user: 120, percent: 20 });
    for (const _attempt of [1, 2]) {
      expect(valueOf(await runner.run(samples.couponCreate, { ...checked, folder: of }))).toMatchObject(checked);
    }
    const written = JSON.parse(await readFile(join(OUTPUT_DIRECTORY, of, 'user-120.json'), 'utf8')) as unknown;
    expect(written).toMatchObject({ user: 120, percent: 20, code: expect.stringMatching(/^[0-9a-f]{8}-20$/) });
    expect(valueOf(await runner.run(samples.couponCount, { folder: of }))).toEqual({ coupons: 1 });
  });
});

describe('image.thumbnail', () => {
  test.each(['png', 'jpg', 'webp'])('makes a smaller picture as %s', async (ending) => {
    const output = `${folder}/ffox.${ending}`;
    const outcome = await runner.run(samples.imageThumbnail, { source: 'ffox.png', width: 20, output });
    expect(valueOf(outcome)).toMatchObject({ width: 20 });
    const made = await sharp(join(OUTPUT_DIRECTORY, output)).metadata();
    expect(made).toMatchObject({ width: 20, format: ending === 'jpg' ? 'jpeg' : ending });
  });

  test('a poison picture fails, and succeeds once its cause is gone', async () => {
    const inbox = join(OUTPUT_DIRECTORY, 'inbox', folder);
    await mkdir(inbox, { recursive: true });
    await writeFile(join(inbox, 'poster.png'), 'no picture at all');
    const input = { source: `inbox/${folder}/poster.png`, width: 32, output: `${folder}/poster.png` };
    expect(await runner.run(samples.imageThumbnail, input)).toMatchObject({
      kind: 'failed',
      retryable: true,
      error: { message: expect.stringContaining('unsupported image format') as unknown },
    });
    await copyFile(join(dataDirectory(), 'gimp.png'), join(inbox, 'poster.png'));
    expect(await runner.run(samples.imageThumbnail, input)).toMatchObject({ kind: 'succeeded' });
    expect((await readdir(join(OUTPUT_DIRECTORY, folder))).filter((name) => name.includes('poster'))).toEqual([
      'poster.png',
    ]);
  });
});

test('text.digest counts words and hashes, in a thread, the same each time', async () => {
  const input = { source: 'seattle-weather.csv', rounds: 3 };
  const [one, other] = await Promise.all([
    runner.run(samples.textDigest, input),
    runner.run(samples.textDigest, input),
  ]);
  expect(valueOf(one)).toEqual(valueOf(other));
  expect(valueOf(one)).toMatchObject({ sha256: expect.stringMatching(/^[0-9a-f]{64}$/) as unknown });
  expect((valueOf(one) as { top: { word: string }[] }).top.map(({ word }) => word)).toEqual(
    expect.arrayContaining(['sun', 'rain', 'fog', 'drizzle', 'snow']),
  );
});

test('demo.slow stops at its timeout, and does not when it is quick', async () => {
  const quick = await runner.run(samples.demoSlow, { ms: 10 });
  expect(valueOf(quick)).toEqual({ slept: 10 });
  expect(await runner.run(samples.demoSlow, { ms: 60_000 })).toMatchObject({ kind: 'failed', reason: 'timeout' });
  expect(runner.runner.abandonedCount).toBe(0);
});

describe('notify.webhook', () => {
  let server: Server;
  let url: string;
  let keys: unknown[];
  let answer: (response: ServerResponse) => void;
  beforeAll(async () => {
    server = createServer((request, response) => {
      keys.push(request.headers['idempotency-key']);
      request.resume();
      answer(response);
    });
    server.listen(0, '127.0.0.1');
    await once(server, 'listening');
    url = `http://127.0.0.1:${(server.address() as AddressInfo).port}/hook`;
  });
  beforeEach(() => {
    keys = [];
  });
  afterAll(() => {
    server.closeAllConnections();
    server.close();
  });

  test.each([
    [204, {}, { kind: 'succeeded' }],
    [500, {}, { kind: 'failed', reason: 'error', retryable: true }],
    [503, { 'retry-after': '3' }, { kind: 'failed', retryable: true, delayMs: 3_000 }],
    [429, {}, { kind: 'failed', reason: 'error', retryable: true }],
    [410, {}, { kind: 'failed', reason: 'non_retryable', retryable: false }],
  ])('an answer of %i', async (status, headers, expected) => {
    answer = (response) => response.writeHead(status, headers).end();
    const taskId = newId();
    const outcome = await runner.run(samples.notifyWebhook, { url, event: 'report.ready' }, taskId);
    expect(outcome).toMatchObject(expected);
    expect(keys).toEqual([taskId]);
  });

  test('calls nobody but this machine', async () => {
    const outcome = await runner.run(samples.notifyWebhook, { url: 'http://example.com/', event: 'x' });
    expect(outcome).toMatchObject({ kind: 'failed', reason: 'invalid_input' });
  });
});
