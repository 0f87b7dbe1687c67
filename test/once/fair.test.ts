/** Fair queues: each key has its share, no room is left unused, and nothing is lost whoever gives the turns. */
import { afterAll, beforeAll, beforeEach, expect, test } from '@jest/globals';
import fc from 'fast-check';
import { createDispatcher } from '../../services/producer/dispatcher.ts';
import { editTask } from '../../services/producer/edit.ts';
import { createFairDispatcher } from '../../services/producer/fair-dispatcher.ts';
import { findTurnQueues, releaseTurns, setFairness } from '../../services/producer/fair.sql.ts';
import { changeQueueMode } from '../../services/producer/queues.ts';
import { Submitter } from '../../services/producer/submit.ts';
import { silentLogger } from '../../shared/observability/silent-log.ts';
import { run } from '../../shared/postgres/statement.ts';
import { announceTypes } from '../../shared/tasks/announce.ts';
import { newId } from '../../shared/tasks/ids.ts';
import type { Invitation, OutboxRow } from '../../shared/tasks/invitation.ts';
import { systemClock } from '../../shared/time/clock.ts';
import { aHandBack, count, openWorker, partDeps, readTask, rows } from '../support/core.ts';
import { openDatabase } from '../support/database.ts';
import type { TestDatabase } from '../support/database.ts';
import { eventually } from '../support/eventually.ts';
import { aType } from '../support/task-api.ts';

const QUEUE = 'fair';
const actor = { name: 'anna', role: 'operator' } as const;

let opened: TestDatabase;
let db: TestDatabase['database'];
let submitter: Submitter;
/** What RabbitMQ would hold. */
const queue: Invitation[] = [];
const invite = async (row: OutboxRow): Promise<boolean> => {
  queue.push(...row.invitations);
  return await Promise.resolve(true);
};
beforeAll(async () => {
  opened = await openDatabase();
  db = opened.database;
  submitter = new Submitter(
    { db, log: silentLogger, invite, isOutboxFull: () => false, holdReasonOf: () => 'turn', metrics: partDeps.metrics },
    { maxBatch: 500 },
  );
  await announceTypes(db, [aType('fair.step', { queue: QUEUE })], 'test');
});
afterAll(async () => await opened[Symbol.asyncDispose]());
beforeEach(async () => {
  queue.length = 0;
  await db.query({ text: 'truncate tasks, held_back, fair_turns, outbox, claims, due' });
});

interface Fairness {
  readonly weights?: Readonly<Record<string, number>>;
  readonly depth?: number;
}

async function makeFair(
  { weights = {}, depth = 100 }: Fairness = {},
  key: string | null = 'input.tenant',
): Promise<void> {
  const set = JSON.stringify(weights);
  await run(db, setFairness, QUEUE, key, set, depth, newId(), actor.name, actor.role, null, null);
}

async function submit(tenant: string, more: { priority?: number; delayMs?: number } = {}): Promise<string> {
  const input = Buffer.from(JSON.stringify({ tenant }));
  const task = { type: 'fair.step', queue: QUEUE, priority: 4, maxAttempts: 3, input, ...more };
  const answer = await submitter.submit(task);
  if (answer.kind !== 'accepted') throw new RangeError(answer.kind);
  return answer.id;
}

/** What the dispatcher does in a round; the ids of what it invited. */
async function releaseIds(): Promise<string[]> {
  await run(db, findTurnQueues);
  return (await run(db, releaseTurns, QUEUE)).flatMap(({ id }) => (id === null ? [] : [id]));
}

/** The same; the keys of what it invited. */
async function release(): Promise<string[]> {
  const ids = await releaseIds();
  const keys = await rows<{ task_id: string; key: string }>(
    db,
    'select task_id, key from held_back where task_id = any($1::uuid[])',
    `{${ids.join(',')}}`,
  );
  return keys.map(({ key }) => key);
}

/** What was invited starts, and is off the number that is. */
async function start(): Promise<void> {
  await db.query({ text: `delete from held_back where reason = 'turn_given'` });
}

const tally = (keys: readonly string[]): Readonly<Record<string, number>> =>
  Object.fromEntries([...new Set(keys)].toSorted().map((key) => [key, keys.filter((each) => each === key).length]));

/** Deficit round robin over counts, each task of cost 1: how many of each key go next. The plain one, to compare with. */
class Model {
  readonly left: Map<string, number>;
  readonly #weights: Readonly<Record<string, number>>;
  #last = '';
  #served = 0;

  constructor(left: Readonly<Record<string, number>>, weights: Readonly<Record<string, number>>) {
    this.left = new Map(Object.entries(left));
    this.#weights = weights;
  }

  next(room: number): Readonly<Record<string, number>> {
    const gone: string[] = [];
    while (gone.length < room && [...this.left.values()].some((tasks) => tasks > 0)) {
      const keys = [...this.left].flatMap(([key, tasks]) => (tasks > 0 ? [key] : [])).toSorted();
      const isOngoing = keys.includes(this.#last) && this.#served < (this.#weights[this.#last] ?? 1);
      const key = isOngoing ? this.#last : (keys.find((each) => each > this.#last) ?? keys[0] ?? '');
      if (!isOngoing) this.#served = 0;
      this.#last = key;
      this.#served += 1;
      this.left.set(key, (this.left.get(key) ?? 0) - 1);
      gone.push(key);
    }
    return tally(gone);
  }
}

test('a key with thousands of tasks does not stand before one with three', async () => {
  await makeFair({ depth: 10 });
  await Promise.all(Array.from({ length: 2_000 }, async () => await submit('big')));
  for (let n = 0; n < 3; n += 1) await submit('small');
  expect(queue).toEqual([]);
  expect(tally(await release())).toEqual({ big: 7, small: 3 });
  expect(await release()).toEqual([]); // the room is taken
  await start();
  expect(tally(await release())).toEqual({ big: 10 });
});

test('weights are shares, whatever the room is', async () => {
  await makeFair({ weights: { gold: 3, silver: 2 }, depth: 4 });
  await Promise.all(
    ['gold', 'silver', 'iron'].flatMap((key) => Array.from({ length: 60 }, async () => await submit(key))),
  );
  const all: string[] = [];
  for (let calls = 0; calls < 15; calls += 1) {
    all.push(...(await release()));
    await start();
  }
  expect(tally(all)).toEqual({ gold: 30, iron: 10, silver: 20 });
});

test('the more urgent and then the older of a key go first', async () => {
  await makeFair({ depth: 2 });
  const ids: string[] = [];
  for (const priority of [4, 4, 9]) ids.push(await submit('a', { priority }));
  expect(new Set(await releaseIds())).toEqual(new Set([ids[2], ids[0]]));
});

/** As many as there are tasks at most, with room for one at a time. */
const MOST_CALLS = 60;

test('gives what deficit round robin gives, for any keys, weights and room', async () => {
  const key = fc.constantFrom('a', 'b', 'c', 'd', '', 'ü');
  await fc.assert(
    fc.asyncProperty(
      fc.dictionary(key, fc.integer({ min: 0, max: 9 }), { noNullPrototype: true }),
      fc.dictionary(key, fc.integer({ min: 1, max: 4 }), { noNullPrototype: true }),
      fc.integer({ min: 1, max: 7 }),
      async (tasks, weights, depth) => {
        await db.query({ text: 'truncate tasks, held_back, fair_turns, outbox, claims, due' });
        await makeFair({ weights, depth });
        await Promise.all(
          Object.entries(tasks).flatMap(([tenant, many]) =>
            Array.from({ length: many }, async () => await submit(tenant)),
          ),
        );
        const model = new Model(tasks, weights);
        let calls = 0;
        do {
          expect(tally(await release())).toEqual(model.next(depth));
          await start();
          calls += 1;
        } while (calls < MOST_CALLS && (await count(db, 'held_back')) > 0);
        expect(await count(db, 'held_back')).toBe(0);
        expect(await count(db, 'tasks', 'invited_at is null')).toBe(0);
      },
    ),
    { numRuns: 30 },
  );
});

test('many producers and workers give and take turns: never more invited than the depth, and everything runs', async () => {
  await makeFair({ depth: 8 });
  const tenants = ['a', 'b', 'c'];
  const ids = await Promise.all(Array.from({ length: 90 }, async (_each, n) => await submit(tenants[n % 3] ?? '')));
  const loops = [1, 2, 3].map(() => createFairDispatcher({ ...partDeps, db, invite }));
  for (const loop of loops) await loop.start();
  const workers = await Promise.all([1, 2].map(async () => await openWorker(db)));
  let most = 0;
  let ended = 0;
  const failed = new Set<string>();
  const work = async (worker: (typeof workers)[number]): Promise<void> => {
    while (ended < ids.length) {
      const invitation = queue.shift();
      if (invitation === undefined) {
        await systemClock.sleep(2);
        continue;
      }
      const answer = await worker.claims.claim(invitation);
      if (answer.kind !== 'won') continue;
      if (answer.claim.attempt === 1 && invitation.taskId.endsWith('0') && !failed.has(invitation.taskId)) {
        failed.add(invitation.taskId);
        await worker.settles.settle(answer.claim, aHandBack());
        queue.push(...worker.invited.splice(0).flatMap(({ invitations }) => invitations));
        continue;
      }
      await worker.settles.succeed(answer.claim, undefined);
      ended += 1;
    }
  };
  const watch = async (): Promise<void> => {
    while (ended < ids.length) {
      most = Math.max(most, await count(db, 'held_back', `reason = 'turn_given'`));
      await systemClock.sleep(3);
    }
  };
  await Promise.all([...workers.flatMap((worker) => [work(worker), work(worker), work(worker)]), watch()]);
  for (const loop of loops) await loop.stop(systemClock.monotonicMs() + 5_000);
  expect(most).toBeLessThanOrEqual(8);
  expect(await count(db, 'tasks', `state = 'succeeded'`)).toBe(ids.length);
  expect(await count(db, 'held_back')).toBe(0);
});

test('what was invited and is cancelled leaves its room; what waits and is cancelled has no turn', async () => {
  await makeFair({ depth: 2 });
  const ids: string[] = [];
  for (let n = 0; n < 5; n += 1) ids.push(await submit('a'));
  expect(await release()).toEqual(['a', 'a']);
  await db.query({
    text: `update tasks set state = 'cancelled', finished_at = now() where id = any($1::uuid[])`,
    values: [`{${String(ids[0])},${String(ids[2])}}`],
  });
  await release();
  await release();
  expect((await readTask(db, ids[3] ?? '')).invited_at).not.toBeNull();
  expect(await count(db, 'tasks', `state = 'pending' and invited_at is not null`)).toBe(2);
});

test('what is due, and what is edited, waits for its turn as well, in the queue that it goes to', async () => {
  await makeFair();
  const late = await submit('late', { delayMs: 1 });
  const dispatcher = createDispatcher({ ...partDeps, db, invite }, { intervalMs: 5, batchSize: 20 });
  await dispatcher.start();
  await eventually(async () =>
    expect(await rows(db, 'select reason, key from held_back where task_id = $1', late)).toEqual([
      { reason: 'turn', key: 'late' },
    ]),
  );
  await dispatcher.stop(systemClock.monotonicMs() + 5_000);
  const early = await submit('early');
  const deps = { db, invite, isOutboxFull: () => false, metrics: partDeps.metrics };
  await editTask(deps, early, {
    changes: { priority: 9, input: { bytes: Buffer.from('{"tenant":"other"}') } },
    actor,
    reason: undefined,
  });
  expect(await rows(db, 'select reason, key, priority from held_back where task_id = $1', early)).toEqual([
    { reason: 'turn', key: 'other', priority: 9 },
  ]);
  expect(queue).toEqual([]);
  await editTask(deps, early, { changes: { queue: 'default' }, actor, reason: undefined });
  expect(queue.map(({ taskId }) => taskId)).toEqual([early]);
});

test('a paused queue gives no turns, a drained one only to what came before, and one no longer fair lets all go', async () => {
  await makeFair({ depth: 1 });
  const before = await submit('a');
  await changeQueueMode(db, { queue: QUEUE, mode: 'paused', actor, reason: undefined });
  expect(await release()).toEqual([]);
  await changeQueueMode(db, { queue: QUEUE, mode: 'draining', actor, reason: undefined });
  await submit('b');
  await submit('b');
  expect(await release()).toEqual(['a']);
  expect((await readTask(db, before)).invited_at).not.toBeNull();
  await start();
  expect(await release()).toEqual([]);
  await changeQueueMode(db, { queue: QUEUE, mode: 'open', actor, reason: undefined });
  await makeFair({}, null);
  expect(await release()).toEqual(['b', 'b']);
  await db.query({
    text: `update tasks set state = 'succeeded', finished_at = now() where queue = $1`,
    values: [QUEUE],
  });
  await release();
  expect(await count(db, 'held_back')).toBe(0);
});

test('a queue whose round was deleted by hand begins it anew', async () => {
  await makeFair();
  await submit('a');
  await submit('b');
  await release();
  await submit('b');
  await db.query({ text: 'delete from fair_turns' });
  expect(await release()).toEqual(['b']);
});

test('an input that cannot be read holds up nobody: its task waits under the empty key', async () => {
  await makeFair();
  const [bad, good] = [await submit('a', { delayMs: 1 }), await submit('b', { delayMs: 1 })];
  await db.query({ text: `update tasks set input = '\\xff7b' where id = $1`, values: [bad] });
  const dispatcher = createDispatcher({ ...partDeps, db, invite }, { intervalMs: 5, batchSize: 20 });
  await dispatcher.start();
  const held = async (): Promise<unknown[]> => await rows(db, 'select task_id, key from held_back order by key');
  await eventually(async () =>
    expect(await held()).toEqual([
      { task_id: bad, key: '' },
      { task_id: good, key: 'b' },
    ]),
  );
  await dispatcher.stop(systemClock.monotonicMs() + 5_000);
});
