/** A cancel of what runs: how soon its handler hears of it, and what becomes of one that does not listen. */
import { afterAll, beforeAll, expect, test } from '@jest/globals';
import { call } from '../../scripts/call.ts';
import { systemClock } from '../../shared/time/clock.ts';
import { rows } from '../support/core.ts';
import { eventually } from '../support/eventually.ts';
import { openFleet } from '../support/fleet.ts';
import type { Fleet } from '../support/fleet.ts';

/** What the product promises between the cancel and the abort signal. */
const PROMISED_MS = 2_000;
/** So seldom that no renewal can have brought the word in time. */
const SELDOM = { WARREN_LEASE_RENEW_MS: '15000', WARREN_LEASE_LAPSE_MS: '60000' };

/** For every test but the one that takes the session away. */
let shared: Fleet;
beforeAll(async () => {
  const tasks = ['ill-behaved', 'well-behaved'];
  shared = await openFleet({ workers: 2, queues: 'default:20', tasks, env: SELDOM });
});
afterAll(async () => await shared[Symbol.asyncDispose]());

/** Cancels, and says when that was written down. */
async function cancel(fleet: Fleet, id: string): Promise<number> {
  const answer = await call(fleet.producer().url, 'POST', `/v1/tasks/${id}/cancel`, { reason: 'of a test' });
  expect(answer.status).toBe(202);
  return Date.parse(String(answer.body['cancelRequestedAt']));
}

const started = async (fleet: Fleet, ids: readonly string[]): Promise<void> =>
  await eventually(() => {
    for (const id of ids) expect(fleet.entries(id)).toMatchObject([{ event: 'started' }]);
  });

/** Milliseconds from the cancel to the abort signal in the handler. */
async function abortAfterMs(fleet: Fleet, id: string, cancelledAtMs: number): Promise<number> {
  const entry = await eventually(() => {
    const [aborted] = fleet.entries(id).filter(({ event }) => event === 'aborted');
    if (aborted === undefined) throw new Error(`not aborted\n${fleet.tails()}`);
    return aborted;
  });
  return entry.atMs - cancelledAtMs;
}

test('a running handler gets its abort signal within two seconds of its cancel, on any worker', async () => {
  const ids = await shared.submit(...Array.from({ length: 40 }, () => ({ input: { ms: 50_000 } })));
  await started(shared, ids);
  expect(new Set(shared.entries().map(({ pid }) => pid)).size).toBe(2);
  const latencies: number[] = [];
  // One by one, then the others at once.
  for (const id of ids.slice(0, 8)) latencies.push(await abortAfterMs(shared, id, await cancel(shared, id)));
  const cancelled = await Promise.all(ids.slice(8).map(async (id) => ({ id, atMs: await cancel(shared, id) })));
  latencies.push(...(await Promise.all(cancelled.map(async ({ id, atMs }) => await abortAfterMs(shared, id, atMs)))));
  expect(latencies).toHaveLength(40);
  expect(Math.max(...latencies)).toBeLessThan(PROMISED_MS);
  await shared.ended();
  for (const { state } of await shared.tasks()) expect(state).toBe('cancelled');
  expect(await shared.attempts()).toHaveLength(40);
  for (const attempt of await shared.attempts()) expect(attempt).toMatchObject({ outcome: 'cancelled' });
});

test('a worker whose session of Postgres was ended hears of a cancel with its next renewal, and listens again', async () => {
  await using fleet = await openFleet({ workers: 1, leaseMs: 10_000, env: { WARREN_LEASE_RENEW_MS: '1500' } });
  const [first = '', second = ''] = await fleet.submit({ input: { ms: 50_000 } }, { input: { ms: 50_000 } });
  await started(fleet, [first, second]);
  const { database } = fleet.database;
  const listening = async (): Promise<number> =>
    (
      await rows<{ pid: number }>(
        database,
        `select pid from pg_stat_activity where application_name like 'warren%lease%' and datname = current_database()`,
      )
    ).length;
  expect(await listening()).toBe(1);
  await database.query({
    text: `select pg_terminate_backend(pid, 2000) from pg_stat_activity
            where application_name like 'warren%lease%' and datname = current_database()`,
  });
  expect(await abortAfterMs(fleet, first, await cancel(fleet, first))).toBeLessThan(PROMISED_MS);
  await eventually(async () => expect(await listening()).toBe(1));
  expect(await abortAfterMs(fleet, second, await cancel(fleet, second))).toBeLessThan(PROMISED_MS);
  await fleet.ended();
});

test('a handler that ignores its cancel is given up and fenced: what it does later changes nothing', async () => {
  const [id = ''] = await shared.submit({ type: 'fault.deaf', input: { ms: 6_000 } });
  await started(shared, [id]);
  await cancel(shared, id);
  await eventually(async () => expect((await shared.task(id)).state).toBe('cancelled'));
  expect(shared.entries(id)).toHaveLength(1);
  expect(await shared.attempts(id)).toMatchObject([
    { outcome: 'cancelled', error_message: expect.stringContaining('ignored its abort') as unknown },
  ]);
  await shared.next('abandoned handler ended');
  expect(await shared.task(id)).toMatchObject({ state: 'cancelled', attempt: 1 });
});

test('a handler in a thread that ignores its cancel is ended with its thread', async () => {
  const [id = ''] = await shared.submit({ type: 'fault.spinner' });
  await started(shared, [id]);
  const atMs = systemClock.monotonicMs();
  await cancel(shared, id);
  await eventually(async () => expect((await shared.task(id)).state).toBe('cancelled'));
  // The promise, the grace of a second, and a busy machine.
  expect(systemClock.monotonicMs() - atMs).toBeLessThan(PROMISED_MS + 1_000 + 3_000);
  expect(await shared.run()).toBe('succeeded');
});
