/** A worker that dies in the middle of saving a file leaves nothing behind for long, and its task is repeated. */
import { expect, test } from '@jest/globals';
import { call } from '../../scripts/call.ts';
import { eventually } from '../support/eventually.ts';
import { fileRows, filesBelow, inFolder, linkTo, openFolder } from '../support/files.ts';
import { openFleet } from '../support/fleet.ts';
import '../support/suppressed-error.ts';

test('a worker that is killed while it saves: half a file is never to be had, and is swept; the task is repeated', async () => {
  await using folder = await openFolder();
  await using fleet = await openFleet({ tasks: ['file-savers'], env: inFolder(folder.path) });
  const [id = ''] = await fleet.submit({ type: 'files.slow', input: { failures: 1 } });
  const half = await eventually(async () => {
    expect(fleet.entries(id).filter(({ event }) => event === 'started')).toHaveLength(1);
    const [path, ...others] = await filesBelow(folder.path);
    expect([path?.includes('.unfinished'), others]).toEqual([true, []]);
    return path;
  });
  expect((await call(fleet.producer().url, 'GET', `/v1/tasks/${id}/files`)).body['items']).toEqual([]);
  await fleet.pass(1_500); // longer than the grace: the sweeper looks at it, and leaves what is under way alone
  expect(await filesBelow(folder.path)).toEqual([half]);
  expect(await fileRows(fleet)).toHaveLength(1);

  await fleet.worker(0).kill();
  await fleet.start('worker').ready();
  await eventually(async () => expect((await fleet.task(id)).state).toBe('succeeded'), { withinMs: 40_000 });
  const [kept = ''] = await eventually(
    async () => {
      const rows = await fileRows(fleet);
      expect(rows.map((row) => row['attempt'])).toEqual([2]);
      const paths = await filesBelow(folder.path);
      expect(paths).toHaveLength(1);
      return paths;
    },
    { withinMs: 40_000 },
  );
  expect(kept).not.toContain('.unfinished');
  const [row] = await fileRows(fleet);
  const response = await fetch((await linkTo(fleet, id, String(row?.['id']))).url);
  expect((await response.arrayBuffer()).byteLength).toBe(100_000);
});

test('an attempt that is cancelled while it saves takes its upload with it', async () => {
  await using folder = await openFolder();
  await using fleet = await openFleet({ tasks: ['file-savers'], env: inFolder(folder.path) });
  const [id = ''] = await fleet.submit({ type: 'files.slow', input: { failures: 9 } });
  await eventually(async () => expect(await filesBelow(folder.path)).toHaveLength(1));
  await call(fleet.producer().url, 'POST', `/v1/tasks/${id}/cancel`);
  await eventually(async () => expect((await fleet.task(id)).state).toBe('cancelled'));
  await eventually(async () => {
    expect(await filesBelow(folder.path)).toEqual([]);
    expect(await fileRows(fleet)).toEqual([]);
  });
});
