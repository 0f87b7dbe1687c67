/** `warren flow …` against a real fleet. */
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, test } from '@jest/globals';
import { warren } from '../support/cli-io.ts';
import { openFleet } from '../support/fleet.ts';

test('a flow is checked, started, followed, drawn, signalled, listed and cancelled from the command line', async () => {
  await using fleet = await openFleet({ tasks: ['steps'] });
  const folder = await mkdtemp(join(tmpdir(), 'warren-flows-'));
  await using _removed = { [Symbol.asyncDispose]: async () => await rm(folder, { recursive: true }) };
  const env = { WARREN_URL: fleet.producer().url };
  const run = async (...args: readonly string[]): ReturnType<typeof warren> => await warren(['flow', ...args], { env });
  const file = join(folder, 'flow.json');
  const step = { type: 'flow.step' };
  const flow = {
    name: 'coupon',
    businessType: 'coupon',
    steps: {
      check: { ...step, input: { give: { user: 123 } } },
      create: { ...step, after: ['check'], signal: { name: 'approved' } },
      notify: { ...step, after: ['create'] },
      count: { ...step, after: ['create', 'notify'] },
      many: { ...step, after: ['check'], inputs: [{}, {}] },
    },
  };
  await writeFile(file, JSON.stringify(flow));

  const planned = await run('start', file, '--dry-run');
  expect(planned).toMatchObject({ exitCode: 0, stderr: expect.stringContaining('6 tasks. Nothing was started.') });
  expect(
    planned.stdout
      .split('\n')
      .map((line) => (line.split(/ {2,}/)[0] === '' ? line.trimStart().split(/ {2,}/)[0] : line.split(/ {2,}/)[0])),
  ).toEqual(['STEP', 'check', '└ create', '└ notify', '└ count', '└ many', '']);
  expect((await run('list')).stderr).toContain('Nothing found.');
  const broken = join(folder, 'broken.json');
  await writeFile(broken, '{"name": oops}');
  expect(await run('start', broken)).toMatchObject({
    exitCode: 65,
    stderr: `error: ${JSON.stringify(broken)} is not valid JSON. (body-invalid)\n  reason  is no JSON\n`,
  });

  const started = await run('start', file, '--business-key', 'user-123');
  expect(started).toMatchObject({
    exitCode: 0,
    stderr: expect.stringMatching(/Started\. `warren flow show .* --wait` follows it/),
  });
  const id = started.stdout.trim();
  expect((await run('start', file, '--business-key', 'user-123')).stderr).toContain('There is one already.');
  expect((await run('show', id)).stdout).toMatch(/create +blocked +flow\.step +waits for the signal approved/);
  expect(await run('show', id, '--wait', '--timeout', '300ms')).toMatchObject({
    exitCode: 75,
    stderr: expect.stringMatching(/The flow goes on\. `warren flow show .* --wait` waits again/),
  });
  expect(await run('signal', id, 'approved', '--data', '{"by": "finance"}')).toMatchObject({
    exitCode: 0,
    stdout: 'Told.\n',
  });
  const shown = await run('show', id, '--wait', '--timeout', '30s');
  expect(shown).toMatchObject({ exitCode: 0, stdout: expect.stringMatching(/6 of 6 tasks ended/) });
  expect(shown.stdout).toMatch(/└ count +succeeded +flow\.step +after create, notify/);
  expect(shown.stdout).toMatch(/└ many +2 succeeded/);
  expect((await run('list')).stdout).toMatch(/STEPS\n.* 6 of 6 steps ended/);
  expect((await run('signal', id, 'approved')).stdout).toBe('It came before; that one counts.\n');
  expect((await run('signal', id, 'other')).exitCode).not.toBe(0);
  expect((await run('list', '--state', 'succeeded', '--business-key', 'user-123')).stdout).toMatch(/coupon +succeeded/);

  await writeFile(
    file,
    JSON.stringify({ name: 'bad', steps: { a: { ...step, after: ['b'] }, b: { ...step, after: ['a'] } } }),
  );
  expect(await run('start', file)).toMatchObject({
    exitCode: 65,
    stderr: expect.stringMatching(/steps\.a\.after\[0\][\s\S]*a waits for b waits for a/),
  });
  await writeFile(
    file,
    JSON.stringify({ name: 'slow', steps: { a: { ...step, delayMs: 60_000 }, b: { ...step, after: ['a'] } } }),
  );
  const slow = (await run('start', file)).stdout.trim();
  expect(await run('cancel', slow, '--reason', 'not wanted')).toMatchObject({
    exitCode: 0,
    stdout: 'cancelled, 2 of 2 tasks ended, 1 of them failed\n',
  });
  expect(await run('retry', slow)).toMatchObject({ exitCode: 0, stdout: '2 tasks made anew.\n' });
  expect((await run('cancel', slow)).exitCode).toBe(0);
  expect(await run('retry', '--state', 'cancelled', '--reason', 'x')).toMatchObject({
    exitCode: 2,
    stderr: expect.stringContaining('--all'),
  });
  expect(await run('retry', '--all', '--state', 'cancelled', '--reason', 'x', '--dry-run')).toMatchObject({
    stdout: '1 flows would go on.\n',
  });
  expect(await run('retry', '--name', 'slow', '--state', 'cancelled', '--reason', 'x', '--yes')).toMatchObject({
    exitCode: 0,
    stdout: '1 flows go on with 2 tasks, 0 skipped.\n',
  });
  expect((await run('cancel', slow, '--reason', 'not wanted')).exitCode).toBe(0);
  expect(await run('show', slow, '--wait')).toMatchObject({
    exitCode: 1,
    stdout: expect.stringMatching(/because +not wanted/),
  });
}, 120_000);

test('a step that is a flow is drawn with its name, how it stands and its id, by which one goes on', async () => {
  await using fleet = await openFleet({ tasks: ['steps'] });
  const folder = await mkdtemp(join(tmpdir(), 'warren-flows-'));
  await using _removed = { [Symbol.asyncDispose]: async () => await rm(folder, { recursive: true }) };
  const env = { WARREN_URL: fleet.producer().url };
  const run = async (...args: readonly string[]): ReturnType<typeof warren> => await warren(['flow', ...args], { env });
  const file = join(folder, 'flow.json');
  const step = { type: 'flow.step' };
  const settlement = {
    name: 'settlement',
    steps: { first: step, second: { ...step, after: ['first'], signal: { name: 'ok' } } },
  };
  const flow = {
    name: 'order',
    steps: { check: step, settle: { flow: settlement, after: ['check'] }, last: { ...step, after: ['settle'] } },
  };
  await writeFile(file, JSON.stringify(flow));
  const planned = await run('start', file, '--dry-run');
  expect(planned.stderr).toContain('4 tasks. Nothing was started.');
  expect(planned.stdout).toMatch(
    /check [^]*└ settle +flow settlement[^]*└ settle\/first +flow\.step[^]*└ settle\/second[^]*└ last/,
  );

  const id = (await run('start', file)).stdout.trim();
  const shown = await run('show', id, '--wait', '--timeout', '2s');
  expect(shown.exitCode).toBe(75);
  const { stdout } = await run('show', id);
  expect(stdout).toMatch(/tasks +2 of 4 tasks ended/);
  const [, nested = ''] = /└ settle +running +flow settlement +([0-9a-f-]{36}), 1 of 2 steps ended/.exec(stdout) ?? [];
  expect((await run('list')).stdout).not.toContain('settlement');
  expect((await run('list', '--parent', id)).stdout).toContain(nested);
  expect((await run('signal', nested, 'ok')).stdout).toBe('Told.\n');
  const inner = await run('show', nested, '--wait', '--timeout', '30s');
  expect(inner).toMatchObject({ exitCode: 0, stdout: expect.stringMatching(`step +settle of flow ${id}`) });
  expect(await run('show', id, '--wait', '--timeout', '30s')).toMatchObject({
    exitCode: 0,
    stdout: expect.stringMatching(/4 of 4 tasks ended/),
  });
}, 60_000);
