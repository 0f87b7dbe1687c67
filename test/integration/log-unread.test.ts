/** A process whose log nobody reads goes on working, and keeps no more of it than there is room for. */
import { readFile } from 'node:fs/promises';
import { expect, test } from '@jest/globals';
import { openFleet } from '../support/fleet.ts';

test('tasks run while nobody reads the log of their worker, its memory stays within bounds, and what was dropped is told', async () => {
  await using fleet = await openFleet({ tasks: ['talkative'], queues: 'default:2' });
  const worker = fleet.worker(0);
  worker.stopReading();
  // Sixty megabytes of lines.
  const input = { text: 'x'.repeat(4_000), lines: 500 };
  await fleet.submit(...Array.from({ length: 30 }, () => ({ type: 'fault.talk', input })));
  expect(await fleet.ended(60_000)).toMatchObject({ accepted: 30, succeeded: 30 });
  const status = await readFile(`/proc/${worker.pid}/status`, 'utf8');
  const peakKilobytes = Number(/^VmHWM:\s+(\d+) kB/m.exec(status)?.[1]);
  expect(peakKilobytes).toBeLessThan(300_000);

  worker.readAgain();
  const told = await worker.next('log lines dropped');
  expect(told).toMatchObject({ level: 'warn', hint: expect.any(String) });
  const kept = worker.lines.filter(({ line }) => line !== undefined).length;
  expect(Number(told['count'])).toBeGreaterThan(10_000);
  expect(kept).toBeLessThan(15_000 - 10_000);
});
