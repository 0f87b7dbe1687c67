/** One process shows what concerns the whole installation: never two, and another one soon after it has gone. */
import { afterAll, afterEach, beforeAll, expect, test } from '@jest/globals';
import type { Database } from '../../shared/postgres/pool.ts';
import { createMetrics } from '../../shared/observability/metrics.ts';
import type { Metrics } from '../../shared/observability/metrics.ts';
import { FleetFigures } from '../../shared/tasks/fleet-figures.ts';
import { systemClock } from '../../shared/time/clock.ts';
import { openFaulty, partDeps } from '../support/core.ts';
import { openDatabase } from '../support/database.ts';
import type { TestDatabase } from '../support/database.ts';
import { eventually } from '../support/eventually.ts';

const HOLD_MS = 1_500;
let base: TestDatabase;
const opened: FleetFigures[] = [];
beforeAll(async () => {
  base = await openDatabase();
});
afterEach(async () => {
  for (const figures of opened.splice(0)) await stop(figures);
});
afterAll(async () => await base[Symbol.asyncDispose]());

const stop = async (figures: FleetFigures): Promise<void> => await figures.stop(systemClock.monotonicMs() + 2_000);

async function open(name: string, db: Database = base.database): Promise<{ figures: FleetFigures; metrics: Metrics }> {
  const metrics = createMetrics({ service: 'producer', version: '1', withProcess: false });
  metrics.outboxRows.set(7);
  const figures = new FleetFigures({ ...partDeps, db, metrics }, { name, intervalMs: 30, holdMs: HOLD_MS });
  opened.push(figures);
  await figures.start();
  return { figures, metrics };
}

const shownBy = async (processes: readonly { readonly metrics: Metrics }[]): Promise<readonly number[]> =>
  (await Promise.all(processes.map(async ({ metrics }) => await metrics.render()))).flatMap((text, index) =>
    text.includes('\nwarren_outbox_rows 7') ? [index] : [],
  );

test('of several processes one shows; when it stops another one does at once, without waiting for the end of its time', async () => {
  const processes = [await open('a'), await open('a'), await open('a')];
  await eventually(async () => expect(await shownBy(processes)).toHaveLength(1));
  const [first = -1] = await shownBy(processes);
  for (let looks = 0; looks < 20; looks += 1) {
    expect(await shownBy(processes)).toEqual([first]);
    await systemClock.sleep(10);
  }
  await stop(processes[first]?.figures as FleetFigures);
  expect(await shownBy(processes)).not.toContain(first);
  await eventually(async () => expect(await shownBy(processes)).toHaveLength(1));
});

test('figures of another name have a process of their own', async () => {
  const processes = [await open('b'), await open('c')];
  await eventually(async () => expect(await shownBy(processes)).toEqual([0, 1]));
});

test('a process that is cut off from Postgres has ceased to show before another one begins', async () => {
  await using faulty = await openFaulty(base.database);
  const cut = await open('d', faulty);
  await eventually(() => expect(cut.figures.areOurs).toBe(true));
  const other = await open('d');
  faulty.fault = () => 'refuse';
  let most = 0;
  await eventually(
    () => {
      most = Math.max(most, Number(cut.figures.areOurs) + Number(other.figures.areOurs));
      expect(other.figures.areOurs).toBe(true);
    },
    { everyMs: 5 },
  );
  expect(most).toBe(1);
  expect(cut.figures.areOurs).toBe(false);
  faulty.fault = () => undefined;
  await stop(cut.figures); // uses the database until it has
});
