/** Limits hold in the whole fleet, whoever claims and whoever dies, and nothing that waits for one is forgotten. */
import { randomUUID } from 'node:crypto';
import { afterAll, beforeAll, beforeEach, expect, test } from '@jest/globals';
import fc from 'fast-check';
import { sweepConcurrencyGroups, sweepRateGroups } from '../../services/producer/key-sweeps.sql.ts';
import { editTask } from '../../services/producer/edit.ts';
import { createReleaser } from '../../services/producer/releaser.ts';
import { Submitter } from '../../services/producer/submit.ts';
import { Places } from '../../services/worker/places.ts';
import { isWarrenError } from '../../shared/errors/warren-error.ts';
import { silentLogger } from '../../shared/observability/silent-log.ts';
import { run as runStatement } from '../../shared/postgres/statement.ts';
import { announceTypes } from '../../shared/tasks/announce.ts';
import { releaseGroup } from '../../shared/tasks/held-back.ts';
import type { ConcurrencyLimit, RateLimit } from '../../shared/tasks/define-task.ts';
import type { Invitation, OutboxRow } from '../../shared/tasks/invitation.ts';
import { systemClock } from '../../shared/time/clock.ts';
import { aHandBack, aVerdict, addLease, count, openWorker, partDeps, readTask, rows } from '../support/core.ts';
import type { TestWorker } from '../support/core.ts';
import { openDatabase } from '../support/database.ts';
import type { TestDatabase } from '../support/database.ts';
import { eventually } from '../support/eventually.ts';
import { aType } from '../support/task-api.ts';

const actor = { name: 'anna', role: 'operator' } as const;

let opened: TestDatabase;
let db: TestDatabase['database'];
/** What RabbitMQ would hold. */
const queue: Invitation[] = [];
const invite = async (row: OutboxRow): Promise<boolean> => {
  queue.push(...row.invitations);
  return await Promise.resolve(true);
};
let submitter: Submitter;
let stopLimits: () => Promise<void>;
beforeAll(async () => {
  opened = await openDatabase();
  db = opened.database;
  submitter = new Submitter(
    {
      db,
      log: silentLogger,
      invite,
      isOutboxFull: () => false,
      holdReasonOf: () => undefined,
      metrics: partDeps.metrics,
    },
    { maxBatch: 500 },
  );
  const limits = createReleaser({ ...partDeps, db, invite });
  await limits.start();
  stopLimits = async () => await limits.stop(systemClock.monotonicMs() + 5_000);
});
afterAll(async () => {
  await stopLimits();
  await opened[Symbol.asyncDispose]();
});
beforeEach(() => {
  queue.length = 0;
});

async function announce(name: string, limits: { concurrency?: ConcurrencyLimit; rate?: RateLimit }): Promise<void> {
  await announceTypes(db, [aType(name, limits)], 'test');
}

async function submit(
  type: string,
  keys: { concurrencyKey?: string; rateKey?: string },
  priority = 4,
): Promise<string> {
  const answer = await submitter.submit({
    type,
    queue: 'default',
    priority,
    maxAttempts: 3,
    input: Buffer.from('{}'),
    ...keys,
  });
  if (answer.kind !== 'accepted') throw new RangeError(answer.kind);
  return answer.id;
}

const runningOf = async (type: string): Promise<number> =>
  await count(db, 'tasks', `type = '${type}' and state = 'running'`);

/** Claims all that is invited, once. */
async function claimAll(worker: TestWorker): Promise<Awaited<ReturnType<TestWorker['claims']['claim']>>[]> {
  return await Promise.all(queue.splice(0).map(async (invitation) => await worker.claims.claim(invitation)));
}

test('no more run at once than the limit of their key, and the rest holds no slot and is not invited', async () => {
  await announce('limit.two', { concurrency: { limit: 2, key: 'input.k' } });
  const ids = await Promise.all(
    Array.from({ length: 10 }, async () => await submit('limit.two', { concurrencyKey: 'a' })),
  );
  const other = await submit('limit.two', { concurrencyKey: 'b' });
  const worker = await openWorker(db);
  const answers = await claimAll(worker);
  expect(answers.map(({ kind }) => kind).toSorted()).toEqual([
    ...Array.from({ length: 8 }, () => 'held'),
    'won',
    'won',
    'won',
  ]);
  expect(await count(db, 'tasks', `id = any('{${ids.join(',')}}') and state = 'pending' and invited_at is null`)).toBe(
    8,
  );
  expect((await readTask(db, other)).state).toBe('running');
  expect(queue).toEqual([]);
});

test('a task that ends makes room for the most urgent that waits, then for the oldest, at once', async () => {
  await announce('limit.one', { concurrency: { limit: 1 } });
  const worker = await openWorker(db);
  const places = new Places({ db, invite, log: silentLogger });
  const ids: string[] = [];
  for (const priority of [4, 4, 9, 4]) ids.push(await submit('limit.one', { concurrencyKey: '' }, priority));
  const order: string[] = [];
  while (order.length < 4) {
    const won = (await claimAll(worker)).flatMap((answer) => (answer.kind === 'won' ? [answer.claim] : []));
    expect(won).toHaveLength(1);
    for (const claim of won) {
      order.push(claim.taskId);
      await worker.settles.succeed(claim, undefined);
      places.free('limit.one', claim.concurrencyKey ?? '');
      await places.idle();
    }
  }
  expect(order).toEqual([ids[2], ids[0], ids[1], ids[3]]);
  expect(await count(db, 'held_back', `scope = 'limit.one'`)).toBe(0);
});

test.each([
  ['is put off', aVerdict({ state: 'scheduled', failures: 0, outcome: 'deferred', delayMs: 600_000 })],
  ['fails', aVerdict({ delayMs: 600_000 })],
  ['is handed back', aHandBack()],
])('a task that %s leaves its place', async (what, verdict) => {
  const type = `limit.leave-${what.replaceAll(' ', '-')}`;
  await announce(type, { concurrency: { limit: 1 } });
  const worker = await openWorker(db);
  await submit(type, { concurrencyKey: '' }, 9);
  await submit(type, { concurrencyKey: '' });
  const [first] = (await claimAll(worker)).flatMap((answer) => (answer.kind === 'won' ? [answer.claim] : []));
  if (first === undefined) throw new RangeError('nothing was won');
  await worker.settles.settle(first, verdict);
  // Nobody tells: the producer looks for itself.
  await eventually(() => expect(queue.map(({ type: named }) => named)).toContain(type));
});

test('the place of a worker that died is free once its task was taken from it', async () => {
  await announce('limit.lost', { concurrency: { limit: 1 } });
  const id = await submit('limit.lost', { concurrencyKey: '' });
  const next = await submit('limit.lost', { concurrencyKey: '' });
  const worker = await openWorker(db);
  await claimAll(worker);
  expect((await readTask(db, id)).state).toBe('running');
  await systemClock.sleep(600); // two rounds: while the task runs its place is taken, whoever holds it
  expect(queue).toEqual([]);
  await db.query({ text: `update tasks set state = 'dead', finished_at = now() where id = $1`, values: [id] });
  await eventually(() => expect(queue.map(({ taskId }) => taskId)).toEqual([next]));
});

test('what is cancelled while it waits for a place is passed over', async () => {
  await announce('limit.cancel', { concurrency: { limit: 1 } });
  const ids: string[] = [];
  for (let n = 0; n < 4; n += 1) ids.push(await submit('limit.cancel', { concurrencyKey: '' }));
  const worker = await openWorker(db);
  const [first] = (await claimAll(worker)).flatMap((answer) => (answer.kind === 'won' ? [answer.claim] : []));
  await db.query({
    text: `update tasks set state = 'cancelled', finished_at = now() where id = any($1::uuid[])`,
    values: [`{${String(ids[1])},${String(ids[2])}}`],
  });
  if (first === undefined) throw new RangeError('nothing was won');
  await worker.settles.succeed(first, undefined);
  await eventually(() => expect(queue.map(({ taskId }) => taskId)).toEqual([ids[3]]));
  expect(await count(db, 'held_back', `scope = 'limit.cancel'`)).toBe(0);
});

test('a type that loses its limit lets go what waited for it', async () => {
  await announce('limit.lifted', { concurrency: { limit: 1 }, rate: { limit: 1, perMs: 3_600_000 } });
  const keys = { concurrencyKey: '', rateKey: '' };
  const ids = await Promise.all([1, 2, 3].map(async () => await submit('limit.lifted', keys)));
  const worker = await openWorker(db);
  await claimAll(worker);
  await announce('limit.lifted', {});
  await eventually(async () => {
    await claimAll(worker);
    expect(await count(db, 'tasks', `id = any('{${ids.join(',')}}') and state = 'running'`)).toBe(3);
  });
});

test('in no span of its time start more than the limit of a rate, and everything starts in the end', async () => {
  const perMs = 1_500;
  await announce('limit.rate', { rate: { limit: 3, perMs } });
  const ids = await Promise.all(Array.from({ length: 10 }, async () => await submit('limit.rate', { rateKey: 'x' })));
  const workers = await Promise.all([1, 2, 3].map(async () => await openWorker(db)));
  await eventually(
    async () => {
      await Promise.all(workers.map(async (worker) => await claimAll(worker)));
      expect(await count(db, 'tasks', `id = any('{${ids.join(',')}}') and state = 'running'`)).toBe(10);
    },
    { withinMs: 30_000 },
  );
  const starts = (
    await rows<{ at: Date }>(db, `select started_at as at from tasks where type = 'limit.rate' order by started_at`)
  ).map(({ at }) => at.getTime());
  // The start is written a moment after it was counted.
  starts.slice(3).forEach((at, index) => expect(at - (starts[index] ?? 0)).toBeGreaterThan(perMs - 100));
});

test('a task held up by the rate takes no place of those that run at once', async () => {
  await announce('limit.both', { concurrency: { limit: 1 }, rate: { limit: 1, perMs: 3_600_000, key: 'input.k' } });
  await submit('limit.both', { concurrencyKey: '', rateKey: 'a' });
  const worker = await openWorker(db);
  const [first] = (await claimAll(worker)).flatMap((answer) => (answer.kind === 'won' ? [answer.claim] : []));
  if (first === undefined) throw new RangeError('nothing was won');
  await worker.settles.succeed(first, undefined);
  const slow = await submit('limit.both', { concurrencyKey: '', rateKey: 'a' });
  await eventually(async () => {
    await claimAll(worker);
    expect(await rows(db, 'select reason from held_back where task_id = $1', slow)).toEqual([{ reason: 'rate' }]);
  });
  const free = await submit('limit.both', { concurrencyKey: '', rateKey: 'b' });
  await eventually(async () => {
    await claimAll(worker);
    expect((await readTask(db, free)).state).toBe('running');
  });
});

test('many workers that claim, settle and fail at once, with groups swept and tasks edited, never run more than the limit, and run everything', async () => {
  let run = 0;
  await fc.assert(
    fc.asyncProperty(
      fc.integer({ min: 1, max: 4 }),
      fc.array(fc.record({ key: fc.constantFrom('a', 'b', ''), fails: fc.boolean() }), { minLength: 5, maxLength: 40 }),
      async (limit, tasks) => {
        run += 1;
        const type = `limit.model-${run}`;
        queue.length = 0;
        await announce(type, { concurrency: { limit, key: 'input.k' } });
        const fails = new Map<string, boolean>();
        await Promise.all(
          tasks.map(async ({ key, fails: does }) => fails.set(await submit(type, { concurrencyKey: key }), does)),
        );
        const workers = await Promise.all([1, 2, 3, 4].map(async () => await openWorker(db)));
        const places = new Places({ db, invite, log: silentLogger });
        const running = new Map<string, number>();
        let most = 0;
        let ended = 0;
        const stopAt = systemClock.monotonicMs() + 30_000;
        const work = async (worker: TestWorker): Promise<void> => {
          while (ended < tasks.length && systemClock.monotonicMs() < stopAt) {
            const invitation = queue.shift();
            if (invitation === undefined) {
              await systemClock.sleep(2);
              continue;
            }
            const answer = await worker.claims.claim(invitation);
            if (answer.kind !== 'won') continue;
            const { claim } = answer;
            const key = claim.concurrencyKey ?? 'none';
            running.set(key, (running.get(key) ?? 0) + 1);
            most = Math.max(most, running.get(key) ?? 0);
            await systemClock.sleep(1);
            running.set(key, (running.get(key) ?? 0) - 1);
            if (fails.get(claim.taskId) === true) {
              fails.set(claim.taskId, false);
              await worker.settles.settle(claim, aHandBack());
              queue.push(...worker.invited.splice(0).flatMap(({ invitations }) => invitations));
            } else {
              await worker.settles.succeed(claim, undefined);
              ended += 1;
            }
            places.free(type, key);
          }
        };
        const sweeping = async (): Promise<void> => {
          while (ended < tasks.length && systemClock.monotonicMs() < stopAt) {
            await runStatement(db, sweepConcurrencyGroups, '', '', 1_000);
            await systemClock.sleep(3);
          }
        };
        // Whoever is edited while it is held back is invited, and refused again.
        const editing = async (): Promise<void> => {
          const ids = [...fails.keys()];
          for (let n = 0; ended < tasks.length && systemClock.monotonicMs() < stopAt; n += 1) {
            const changes = { priority: n % 10 };
            const edits = { db, invite, isOutboxFull: () => false, metrics: partDeps.metrics };
            await editTask(edits, ids[n % ids.length] ?? '', { changes, actor, reason: undefined }).catch(
              (thrown: unknown) => {
                if (!isWarrenError(thrown, 'task-finished') && !isWarrenError(thrown, 'task-not-editable'))
                  throw thrown;
              },
            );
            await systemClock.sleep(1);
          }
        };
        const lanes = workers.flatMap((worker) => [work(worker), work(worker), work(worker)]);
        await Promise.all([...lanes, sweeping(), editing()]);
        await places.idle();
        expect(ended).toBe(tasks.length);
        expect(most).toBeLessThanOrEqual(limit);
        expect(await runningOf(type)).toBe(0);
        expect(await count(db, 'held_back', `scope = '${type}'`)).toBe(0);
      },
    ),
    { numRuns: 12 },
  );
});

test('a task that is held back anew while an older look at what is held is under way is not forgotten', async () => {
  await announce('limit.anew', { concurrency: { limit: 1 } });
  const id = await submit('limit.anew', { concurrencyKey: '' });
  queue.length = 0;
  // As an edit leaves it: invited, with the line of when it was held back before.
  await db.query({
    text: `insert into held_back (task_id, reason, scope, key, priority) values ($1, 'concurrency', 'limit.anew', '', 4)`,
    values: [id],
  });
  const over = `${randomUUID()}/${randomUUID()}`;
  await db.query({ text: `insert into concurrency_groups values ('limit.anew', '', array['${over}'])` });
  const claim = await db.checkOut();
  try {
    await claim.query({ text: 'begin' });
    await claim.query({ text: `select 1 from concurrency_groups where type = 'limit.anew' for update` });
    const looking = releaseGroup({ reason: 'concurrency', scope: 'limit.anew', key: '' }, { db, invite });
    await eventually(async () =>
      expect(
        await count(
          db,
          'pg_stat_activity',
          `wait_event_type = 'Lock' and query like '%cleared as%' and datname = current_database()`,
        ),
      ).toBeGreaterThan(0),
    );
    // What a claim does that finds no place.
    await claim.query({ text: `update tasks set invited_at = null where id = '${id}'` });
    await claim.query({ text: `update held_back set priority = 4 where task_id = '${id}'` });
    await claim.query({ text: 'commit' });
    await looking;
  } finally {
    claim.release(false);
  }
  await eventually(() => expect(queue.map(({ taskId }) => taskId)).toContain(id));
});

test('groups under which nothing runs are swept, step by step, and those that are in use stay', async () => {
  await announce('limit.swept', { concurrency: { limit: 1 }, rate: { limit: 1, perMs: 3_600_000 } });
  const worker = await openWorker(db);
  for (const key of ['a', 'b', 'c']) await submit('limit.swept', { concurrencyKey: key, rateKey: key });
  const won = (await claimAll(worker)).flatMap((answer) => (answer.kind === 'won' ? [answer.claim] : []));
  expect(won).toHaveLength(3);
  for (const claim of won.filter(({ concurrencyKey }) => concurrencyKey !== 'b')) {
    await worker.settles.succeed(claim, undefined);
  }
  await db.query({
    text: `update rate_groups set starts = array[now() - interval '25 hours'] where type = 'limit.swept' and key <> 'c'`,
  });
  const keysOf = async (table: 'concurrency_groups' | 'rate_groups'): Promise<unknown[]> =>
    await rows(db, `select key from ${table} where type = 'limit.swept' order by key`);
  const step = await runStatement(db, sweepConcurrencyGroups, 'limit.swept', '', 1);
  expect(step).toEqual([{ last_type: 'limit.swept', last_key: 'a', swept: 1 }]);
  const last = await runStatement(db, sweepConcurrencyGroups, 'limit.swept', 'a', 1_000);
  expect(last).toEqual([{ last_type: null, last_key: null, swept: 1 }]);
  expect(await keysOf('concurrency_groups')).toEqual([{ key: 'b' }]);
  await runStatement(db, sweepRateGroups, '', '', 1_000);
  expect(await keysOf('rate_groups')).toEqual([{ key: 'c' }]);
  const again = await submit('limit.swept', { concurrencyKey: 'a', rateKey: 'a' });
  await eventually(async () => {
    await claimAll(worker);
    expect((await readTask(db, again)).state).toBe('running');
  });
});

test('a type without limits asks nobody', async () => {
  await announce('limit.none', {});
  const id = await submit('limit.none', {});
  const worker = await openWorker(db, { worker: await addLease(db) });
  expect((await claimAll(worker)).map(({ kind }) => kind)).toEqual(['won']);
  expect((await readTask(db, id)).state).toBe('running');
  expect(await count(db, 'concurrency_groups', `type = 'limit.none'`)).toBe(0);
});
