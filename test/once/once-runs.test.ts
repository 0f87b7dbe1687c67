/** Side effects that are done once: what is finished is kept, what was cut in the middle is reported and not repeated. */
import { randomUUID } from 'node:crypto';
import { afterAll, beforeAll, expect, test } from '@jest/globals';
import { OnceRuns } from '../../services/worker/once.ts';
import { DatabaseOnceStore } from '../../services/worker/once-store.ts';
import type { Claim } from '../../services/worker/claims.ts';
import { silentLogger } from '../../shared/observability/silent-log.ts';
import type { Database } from '../../shared/postgres/pool.ts';
import { aHandBack, addTask, count, once, openFaulty, openWorker, partDeps, rows } from '../support/core.ts';
import type { TestWorker } from '../support/core.ts';
import { openDatabase } from '../support/database.ts';
import type { TestDatabase } from '../support/database.ts';

let opened: TestDatabase;
let db: Database;
let worker: TestWorker;
beforeAll(async () => {
  opened = await openDatabase();
  db = opened.database;
  worker = await openWorker(db);
});
afterAll(async () => await opened[Symbol.asyncDispose]());

const won = async (): Promise<Claim> => await worker.win(await addTask(db));
const runsOf = (claim: Claim, { over = db, signal = new AbortController().signal } = {}): OnceRuns =>
  new OnceRuns({
    store: new DatabaseOnceStore({ ...partDeps, db: over }),
    proof: claim,
    signal,
    log: silentLogger,
    maxBytes: 1_000,
  });

/** Ends the attempt and wins the next one of the same task. */
async function nextAttempt(claim: Claim): Promise<Claim> {
  await worker.settles.settle(claim, aHandBack());
  return await worker.win(claim.taskId);
}

/** An attempt that begins a run and dies in the middle of it. */
async function cutInTheMiddle(key: string): Promise<Claim> {
  const claim = await won();
  const killed = new AbortController();
  const cut = runsOf(claim, { signal: killed.signal }).once(key, () => {
    killed.abort();
    throw new Error('cut');
  });
  await expect(cut).rejects.toThrow('cut');
  return await nextAttempt(claim);
}

test('a finished result is given to later attempts, which do nothing', async () => {
  const claim = await won();
  const first = await runsOf(claim).once('charge', () => ({ id: 7, at: new Date(0) }));
  expect(first).toEqual({ id: 7, at: '1970-01-01T00:00:00.000Z' }); // as JSON keeps it, from the first call on
  const later = runsOf(await nextAttempt(claim));
  expect(await later.once('charge', () => Promise.reject(new Error('called')))).toEqual(first);
  expect(await later.once('nothing', () => undefined)).toBeUndefined();
  expect(await later.once('nothing', () => Promise.reject(new Error('called')))).toBeUndefined();
});

test('what fails is done by the next call', async () => {
  const runs = runsOf(await won());
  await expect(runs.once('k', () => Promise.reject(new Error('refused')))).rejects.toThrow('refused');
  expect(await runs.once('k', () => 1)).toBe(1);
});

test('a run that was cut in the middle is reported as unknown, and not repeated', async () => {
  const claim = await cutInTheMiddle('charge');
  let calls = 0;
  const again = (): number => (calls += 1);
  await expect(runsOf(claim).once('charge', again)).rejects.toMatchObject({
    code: 'once-unknown',
    facts: { key: 'charge', attempt: 1, startedAt: expect.stringMatching(/^\d{4}-/) },
  });
  await expect(runsOf(claim).once('charge', again)).rejects.toMatchObject({ code: 'once-unknown' });
  expect(calls).toBe(0);
});

test('the author decides about an unknown run: do it again, or say what it gave', async () => {
  const again = runsOf(await cutInTheMiddle('a'));
  const asked: unknown[] = [];
  const ifUnknown = (startedAt: Date, attempt: number): 'again' => {
    asked.push([startedAt.getTime() > 0, attempt]);
    return 'again';
  };
  expect(await again.once('a', () => 2, { ifUnknown })).toBe(2);
  expect(asked).toEqual([[true, 1]]);
  expect(await again.once('a', () => 3, { ifUnknown })).toBe(2);

  const told = runsOf(await cutInTheMiddle('b'));
  expect(await told.once('b', () => 4, { ifUnknown: () => ({ result: 5 }) })).toBe(5);
  expect(await told.once('b', () => 6)).toBe(5);

  const undecided = runsOf(await cutInTheMiddle('c'));
  const failing = { ifUnknown: () => Promise.reject(new Error('cannot look')) };
  await expect(undecided.once('c', () => 7, failing)).rejects.toThrow('cannot look');
  const wrong = { ifUnknown: () => 'maybe' as 'again' };
  await expect(undecided.once('c', () => 7, wrong)).rejects.toMatchObject({ code: 'once-invalid' });
  await expect(undecided.once('c', () => 7)).rejects.toMatchObject({ code: 'once-unknown' });
});

test('an error after which nobody knows leaves the run unknown', async () => {
  const runs = runsOf(await won());
  const fails = (): never => {
    throw new Error('ETIMEDOUT');
  };
  const unknownIf = (thrown: unknown): boolean => (thrown as Error).message === 'ETIMEDOUT';
  await expect(runs.once('k', fails, { unknownIf })).rejects.toThrow('ETIMEDOUT');
  await expect(runs.once('k', () => 1)).rejects.toMatchObject({ code: 'once-unknown' });
  const broken = { unknownIf: fails };
  await expect(runs.once('broken', fails, broken)).rejects.toThrow('ETIMEDOUT');
  await expect(runs.once('broken', () => 1)).rejects.toMatchObject({ code: 'once-unknown' });
});

test('50 concurrent calls of one key share one run', async () => {
  const runs = runsOf(await won());
  let calls = 0;
  const values = await Promise.all(
    Array.from({ length: 50 }, async () => await runs.once('k', async () => await Promise.resolve((calls += 1)))),
  );
  expect(values).toEqual(Array.from({ length: 50 }, () => 1));
});

test('invariant 2: an attempt that lost its claim can neither begin nor finish a side effect', async () => {
  const claim = await won();
  const runs = runsOf(claim);
  let calls = 0;
  const cut = runs.once('late', async () => {
    await nextAttempt(claim);
    return (calls += 1);
  });
  await expect(cut).rejects.toMatchObject({ code: 'claim-lost' });
  await expect(runs.once('more', () => (calls += 1))).rejects.toMatchObject({ code: 'claim-lost' });
  expect(calls).toBe(1);
  const forged = runsOf({ ...claim, attempt: 2, claimId: randomUUID() });
  await expect(forged.once('forged', () => (calls += 1))).rejects.toMatchObject({ code: 'claim-lost' });
  expect(await rows(db, 'select key, finished_at from once_runs where task_id = $1', claim.taskId)).toEqual([
    { key: 'late', finished_at: null },
  ]);
});

test.each(['start_once', 'finish_once', 'drop_once', 'take_over_once'])(
  'an answer of %s that gets lost changes nothing',
  async (statement) => {
    await using faulty = await openFaulty(db);
    const claim = statement === 'take_over_once' ? await cutInTheMiddle('k') : await won();
    faulty.fault = once(statement, 'lose');
    const runs = runsOf(claim, { over: faulty });
    const options = { ifUnknown: () => 'again' as const };
    const failing = async (): Promise<unknown> =>
      await runs.once('failing', () => Promise.reject(new Error('refused')), options);
    await expect(failing()).rejects.toThrow('refused');
    let calls = 0;
    expect(await runs.once('k', () => (calls += 1), options)).toBe(1);
    expect(await runs.once('k', () => (calls += 1), options)).toBe(1);
    expect(faulty.sent.filter((name) => name === statement).length).toBeGreaterThan(1);
  },
);

test('what cannot be kept is refused before it is done, or stays unknown where it was done', async () => {
  const runs = runsOf(await won());
  const invalid = { code: 'once-invalid' };
  for (const key of ['', 'x'.repeat(201), 'a\0b', '\uD800', 7 as unknown as string]) {
    await expect(runs.once(key, () => 1)).rejects.toMatchObject(invalid);
  }
  await expect(runs.once('k', 1 as unknown as () => number)).rejects.toMatchObject(invalid);
  await expect(runs.once('large', () => 'x'.repeat(2_000))).rejects.toMatchObject(invalid);
  await expect(runs.once('large', () => 1)).rejects.toMatchObject({ code: 'once-unknown' });
  await expect(runs.once('bigint', () => 1n)).rejects.toMatchObject(invalid);
  expect(await runs.once('text\u2028 “quotes” \u{1F600}', () => 'a\0b')).toBe('a\0b');
});

test('a task keeps 1 000 keys, and says so at the next', async () => {
  const claim = await won();
  await db.query({
    text: `insert into once_runs (task_id, key, run_id, attempt)
           select $1, 'k' || n, gen_random_uuid(), 1 from generate_series(1, 1000) n`,
    values: [claim.taskId],
  });
  await expect(runsOf(claim).once('one more', () => 1)).rejects.toMatchObject({
    code: 'once-invalid',
    facts: { reason: 'a task keeps 1000 keys' },
  });
  expect(await count(db, 'once_runs', `task_id = '${claim.taskId}'`)).toBe(1_000);
});
