/** How fast a replay of everything at once is published, and what memory that takes. */
import { readFile } from 'node:fs/promises';
import { withDatabase } from '../../../scripts/provision.ts';
import { call } from '../../../scripts/call.ts';
import type { Database } from '../../../shared/postgres/pool.ts';
import { run } from '../../../shared/postgres/statement.ts';
import { systemClock } from '../../../shared/time/clock.ts';
import { countOutbox, makeDeadTasks, markRecorded } from './dead-letters.sql.ts';
import { declareTopology, startHandler, untilGrouped } from './recording.ts';
import type { DeadLetterSite } from './recording.ts';

/** What replaying gave. */
export interface ReplayFigures {
  /** Seconds from the request until RabbitMQ has confirmed every invitation. */
  readonly seconds: number;
  /** MB of the handler (RSS) before the replay, and the most during it. */
  readonly memoryMb: { readonly before: number; readonly most: number };
}

const CHUNK = 5_000;
const WITHIN_MS = 300_000;

/** Replays `letters` letters with one request, `waves: none` and no rate, with no worker to take them. */
export async function measureReplay(site: DeadLetterSite, letters: number): Promise<ReplayFigures> {
  await declareTopology(site.amqpUrl, site.prefix);
  return await withDatabase(site.databaseUrl, async (db) => {
    for (let made = 0; made < letters; made += CHUNK)
      await run(db, makeDeadTasks, Math.min(CHUNK, letters - made), made);
    await run(db, markRecorded);
    const handler = await startHandler(site);
    try {
      await untilGrouped(db, letters);
      return await replayAll(db, { url: handler.url, pid: handler.pid, letters });
    } finally {
      await handler.stop();
    }
  });
}

async function replayAll(
  db: Database,
  { url, pid, letters }: { readonly url: string; readonly pid: number; readonly letters: number },
): Promise<ReplayFigures> {
  const before = await residentMb(pid);
  const startedMs = systemClock.monotonicMs();
  const { status, body } = await call(url, 'POST', '/v1/replays', {
    filter: 'reason:attempts_exhausted',
    waves: 'none',
    reason: 'to be measured',
  });
  if (status !== 201) throw new Error(`the replay was answered ${status}: ${JSON.stringify(body)}`);
  let most = before;
  for (;;) {
    most = Math.max(most, await residentMb(pid));
    const [left] = await run(db, countOutbox);
    if ((left?.pending ?? 0) >= letters && left?.invitations === 0) break;
    if (systemClock.monotonicMs() - startedMs > WITHIN_MS) throw new Error(`not in time: ${JSON.stringify(left)}`);
    await systemClock.sleep(100);
  }
  return { seconds: (systemClock.monotonicMs() - startedMs) / 1_000, memoryMb: { before, most } };
}

async function residentMb(pid: number): Promise<number> {
  const status = await readFile(`/proc/${pid}/status`, 'utf8').catch(() => '');
  return Number(/^VmRSS:\s+(\d+) kB/m.exec(status)?.[1] ?? Number.NaN) / 1_024;
}
