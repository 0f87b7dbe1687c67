/** `warren schedule …` against a real fleet. */
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, test } from '@jest/globals';
import { warren } from '../support/cli-io.ts';
import { eventually } from '../support/eventually.ts';
import { openFleet } from '../support/fleet.ts';

test('a schedule is checked, made, shown, edited, run, paused and taken away from the command line', async () => {
  await using fleet = await openFleet({ tasks: ['steps'], env: { WARREN_SCHEDULER_INTERVAL_MS: '100' } });
  const folder = await mkdtemp(join(tmpdir(), 'warren-schedules-'));
  await using _removed = { [Symbol.asyncDispose]: async () => await rm(folder, { recursive: true }) };
  const env = { WARREN_URL: fleet.producer().url };
  const run = async (...args: readonly string[]): ReturnType<typeof warren> =>
    await warren(['schedule', ...args], { env });
  const nightly = ['--cron', '30 2 * * *', '--time-zone', 'Asia/Shanghai', '--type', 'flow.step'];

  const planned = await run('create', 'nightly', ...nightly, '--dry-run');
  expect(planned).toMatchObject({ exitCode: 0, stderr: 'Nothing was made.\n' });
  expect(planned.stdout).toMatch(/NEXT +Asia\/Shanghai +IN\n\S+T18:30:00.000Z +\w{3} \d{4}-\d\d-\d\d 02:30:00 +in /);
  expect((await run('list')).stderr).toBe('Nothing found.\n');

  const input = '{"day": {"$schedule": "date"}, "n": 12345678901234}';
  const made = await run('create', 'nightly', ...nightly, '--input', input, '--overlap', 'queue', '--jitter', '5m');
  expect(made).toMatchObject({
    exitCode: 0,
    stdout: expect.stringMatching(/state +active\nwhen +30 2 \* \* \* Asia\/Shanghai/),
  });
  expect(made.stdout).toContain('"n":12345678901234');
  expect(await run('create', 'nightly', ...nightly)).toMatchObject({
    exitCode: 1,
    stderr: expect.stringContaining('There is another schedule of this name'),
  });
  expect((await run('list')).stdout).toMatch(/nightly +active +30 2 \* \* \* Asia\/Shanghai +in .* task flow\.step/);
  expect((await run('next', 'nightly', '--count', '3')).stdout.trim().split('\n')).toHaveLength(4);

  const ran = await run('run', 'nightly', '--reason', 'just once');
  expect(ran).toMatchObject({ exitCode: 0, stderr: expect.stringMatching(/warren task get .* --wait/) });
  await fleet.ended();
  await eventually(async () => {
    const { stdout } = await run('history', 'nightly');
    expect(stdout).toMatch(/Z +started +succeeded +asked for by local, task /);
    expect(stdout).toContain(ran.stdout.trim());
  });

  const edited = await run('edit', 'nightly', '--every', '15m', '--reason', 'more often');
  expect(edited).toMatchObject({ exitCode: 0, stdout: expect.stringMatching(/when +every 15m\n/) });
  expect((await run('pause', 'nightly', '--reason', 'closed')).stdout).toBe('nightly is paused.\n');
  expect((await run('show', 'nightly')).stdout).toMatch(/because +closed\n/);
  expect((await run('resume', 'nightly')).stdout).toBe('nightly is active.\n');
  expect(await run('remove', 'nightly')).toMatchObject({ exitCode: 2 });
  expect((await run('remove', 'nightly', '--yes')).stdout).toBe('nightly is no more.\n');
  expect(await run('show', 'nightly')).toMatchObject({
    exitCode: 1,
    stderr: expect.stringContaining('no schedule of this name'),
  });

  const file = join(folder, 'schedule.json');
  await writeFile(
    file,
    JSON.stringify({
      name: 'flows',
      at: '2050-01-01T00:00:00Z',
      flow: { name: 'f', steps: { a: { type: 'flow.step' } } },
    }),
  );
  expect((await run('create', '--file', file)).stdout).toMatch(
    /when +once, 2050-01-01T00:00:00.000Z\nstarts +flow f\n/,
  );
  expect(await run('create', 'x', '--file', file)).toMatchObject({ exitCode: 2 });
  expect((await run('create', 'x', '--cron', '61 * * * *', '--type', 'flow.step')).stderr).toContain('minute: 61');
  expect((await run('create', 'x', '--cron', '* * * * *', '--type', 'no.such')).stderr).toContain('task.type');
  expect(await run('create', 'x', '--type', 'flow.step')).toMatchObject({
    stderr: expect.stringContaining('give exactly one of cron, everyMs and at'),
  });
}, 60_000);
