/** Nobody who was invited is forgotten: the outbox. */
import { afterAll, beforeAll, beforeEach, expect, test } from '@jest/globals';
import { createOutboxSweeper } from '../../services/producer/outbox-sweeper.ts';
import type { Loop } from '../../shared/lifecycle/loop.ts';
import type { Database } from '../../shared/postgres/pool.ts';
import { run } from '../../shared/postgres/statement.ts';
import { newId } from '../../shared/tasks/ids.ts';
import type { Invitation, OutboxRow } from '../../shared/tasks/invitation.ts';
import { shrinkOutbox } from '../../shared/tasks/outbox.sql.ts';
import { Inviter } from '../../shared/tasks/outbox.ts';
import { WarrenError } from '../../shared/errors/warren-error.ts';
import { systemClock } from '../../shared/time/clock.ts';
import { AMQP_URL } from '../support/broker.ts';
import { FaultyProxy } from '../support/faulty-proxy.ts';
import { count, partDeps, rows } from '../support/core.ts';
import { eventually } from '../support/eventually.ts';
import { openWork } from '../support/work.ts';
import type { TestWork } from '../support/work.ts';

let work: TestWork;
let db: Database;
beforeAll(async () => {
  work = await openWork();
  db = work.db;
});
afterAll(async () => await work[Symbol.asyncDispose]());
beforeEach(async () => {
  await db.query({ text: 'delete from outbox' });
  await work.take();
});

/** Commits an outbox row as a transition does. `retryAt` is an SQL expression. */
async function addRow(taskIds: readonly string[], retryAt = `clock_timestamp() + interval '10 s'`): Promise<OutboxRow> {
  const [row] = await rows<{ id: string }>(
    db,
    `insert into outbox (retry_at, task_ids, types, queues, priorities, generations)
     select ${retryAt}, array_agg(id), array_agg('mail.send'::text), array_agg('default'::text), array_agg(5::int2), array_agg(1)
       from unnest($1::uuid[]) id returning id`,
    `{${taskIds.join(',')}}`,
  );
  return { id: String(row?.id), invitations: taskIds.map((taskId) => anInvitation(taskId)) };
}

const anInvitation = (taskId: string): Invitation => ({
  taskId,
  type: 'mail.send',
  queue: 'default',
  priority: 5,
  generation: 1,
});
const ids = (many: number): string[] => Array.from({ length: many }, () => newId() as string);

function aSweeper({
  canPublish = (): boolean => true,
  batchSize = 100,
  onMeasured = (_count: number): void => undefined,
} = {}): Loop {
  const invite = async (row: OutboxRow): Promise<boolean> => await work.backbone.inviter.invite(row);
  return createOutboxSweeper(
    { ...partDeps, db, invite, canPublish, onMeasured },
    { intervalMs: 5, batchSize, retryInMs: 10_000 },
  );
}

const soon = (): number => systemClock.monotonicMs() + 2_000;

/** An inviter whose broker refuses some tasks. */
function refusing(tasks: () => readonly string[], maxInFlight = 1_000, maxWaiting = 100): Inviter {
  return new Inviter(
    {
      ...partDeps,
      db,
      publish: async ({ taskId }) => {
        if (tasks().includes(taskId)) throw new WarrenError('publish-refused');
        await Promise.resolve();
      },
      onQueueMissing: () => undefined,
    },
    { maxInFlight, maxWaiting },
  );
}

test('a confirmed invitation lies in its queue, persistent, and its row is gone', async () => {
  const row = await addRow(ids(1));
  expect(await work.backbone.inviter.invite(row)).toBe(true);
  const [message] = await work.take();
  expect(JSON.parse(String(message?.content))).toEqual({
    taskId: row.invitations[0]?.taskId,
    type: 'mail.send',
    generation: 1,
  });
  expect(message?.properties).toMatchObject({ priority: 5, deliveryMode: 2, contentType: 'application/json' });
  await work.backbone.inviter.idle();
  expect(await count(db, 'outbox')).toBe(0);
});

test('a confirm deletes its own row: a younger row of the same task stays', async () => {
  const [taskId] = ids(1);
  const older = await addRow([String(taskId)]);
  const younger = await addRow([String(taskId)]);
  await work.backbone.inviter.invite(older);
  await work.backbone.inviter.idle();
  expect(await rows(db, 'select id from outbox')).toEqual([{ id: younger.id }]);
});

test('a row that was confirmed in part keeps the rest, and is tried again soon', async () => {
  const tasks = ids(4);
  const row = await addRow(tasks);
  const left = [tasks[1], tasks[3]];
  expect(await refusing(() => left as string[]).invite(row)).toBe(false);
  const [kept] = await rows<Record<string, unknown>>(
    db,
    `select *, retry_at < clock_timestamp() + interval '5 s' as is_soon from outbox where id = $1`,
    row.id,
  );
  expect(kept).toMatchObject({
    task_ids: left,
    types: ['mail.send', 'mail.send'],
    queues: ['default', 'default'],
    priorities: [5, 5],
    generations: [1, 1],
    is_soon: true,
  });
});

test('two that publish one row at once keep of it what neither got confirmed, and nothing else', async () => {
  const tasks = ids(3);
  const [a, b, c] = tasks as [string, string, string];
  const row = await addRow(tasks);
  await refusing(() => [b, c]).invite(row);
  await refusing(() => [a, c]).invite(row);
  expect(await rows(db, 'select task_ids from outbox where id = $1', row.id)).toEqual([{ task_ids: [c] }]);
  await run(db, shrinkOutbox, row.id, [a], 1_000);
  expect(await count(db, 'outbox')).toBe(0);
});

test('what lies in a queue that was lost is invited once the queue is there again', async () => {
  await work.broker.raw.deleteQueue(work.backbone.names.queue('default'));
  const tasks = ids(3);
  const row = await addRow(tasks);
  expect(await work.backbone.inviter.invite(row)).toBe(false);
  expect(await count(db, 'outbox')).toBe(1);
  const sweeper = aSweeper();
  await work.backbone.topology.whenApplied(AbortSignal.timeout(30_000));
  await db.query({ text: 'update outbox set retry_at = clock_timestamp()' });
  await sweeper.start();
  expect((await work.invitations(3)).toSorted()).toEqual(tasks.toSorted());
  await eventually(async () => expect(await count(db, 'outbox')).toBe(0));
  await sweeper.stop(soon());
});

test('invariant 1: what was committed by a process that died then is published by the sweeper', async () => {
  const tasks = ids(5);
  for (const task of tasks) await addRow([task], `clock_timestamp() - interval '1 s'`);
  const fresh = await addRow(ids(1)); // its own process is still at it
  const sweeper = aSweeper();
  await sweeper.start();
  expect((await work.invitations(5)).toSorted()).toEqual(tasks.toSorted());
  await eventually(async () => expect(await rows(db, 'select id from outbox')).toEqual([{ id: fresh.id }]));
  await sweeper.stop(soon());
});

test('a row that a client wrote inside its own transaction goes out with its commit', async () => {
  const sweeper = aSweeper();
  await sweeper.start();
  const [taskId] = ids(1);
  await addRow([String(taskId)], 'now()');
  expect(await work.invitations(1)).toEqual([taskId]);
  await sweeper.stop(soon());
});

test('two sweepers share the work: each row is published once', async () => {
  const tasks = ids(40);
  for (const task of tasks) await addRow([task], `clock_timestamp() - interval '1 s'`);
  const sweepers = [aSweeper({ batchSize: 3 }), aSweeper({ batchSize: 3 })];
  for (const sweeper of sweepers) await sweeper.start();
  await eventually(async () => expect(await count(db, 'outbox')).toBe(0));
  for (const sweeper of sweepers) await sweeper.stop(soon());
  expect((await work.invitations(40)).toSorted()).toEqual(tasks.toSorted());
});

test('while RabbitMQ is away rows are neither taken nor lost, and their number is told', async () => {
  await addRow(ids(3), `clock_timestamp() - interval '1 s'`);
  let isThere = false;
  let measured = -1;
  const sweeper = aSweeper({
    canPublish: () => isThere,
    onMeasured: (waiting) => {
      measured = waiting;
    },
  });
  await sweeper.start();
  await eventually(() => expect(measured).toBe(3));
  expect(await count(db, 'outbox', 'retry_at < clock_timestamp()')).toBe(1);
  isThere = true;
  await work.invitations(3);
  await eventually(() => expect(measured).toBe(0));
  await sweeper.stop(soon());
});

test('an inviter keeps its bounds: rows beyond them stay for the sweeper', async () => {
  let inFlight = 0;
  let most = 0;
  const held: (() => void)[] = [];
  const inviter = new Inviter(
    {
      ...partDeps,
      db,
      publish: async () => {
        inFlight += 1;
        most = Math.max(most, inFlight);
        await new Promise<void>((resolve) => held.push(resolve));
        inFlight -= 1;
      },
      onQueueMissing: () => undefined,
    },
    { maxInFlight: 4, maxWaiting: 2 },
  );
  const invited = await Promise.all([1, 2, 3, 4, 5, 6].map(async () => await addRow(ids(2))));
  const answers = invited.map(async (row) => await inviter.invite(row));
  expect(await Promise.all(answers.slice(4))).toEqual([false, false]); // two run, two wait
  const released = eventually(async () => {
    for (const release of held.splice(0)) release();
    expect(await count(db, 'outbox')).toBe(2);
  });
  expect(await Promise.all(answers)).toEqual([true, true, true, true, false, false]);
  await released;
  expect(most).toBe(4);
  await inviter.stop(soon());
  await inviter.stop(soon());
});

test('what could not be sent while RabbitMQ was away goes out as soon as it is back', async () => {
  await using proxy = await FaultyProxy.open(AMQP_URL);
  await using away = await openWork({ amqpUrl: proxy.urlOf(AMQP_URL) });
  proxy.refuse();
  proxy.cut();
  await eventually(() => expect(away.backbone.publisher.isReady).toBe(false));
  const wanted = ids(3);
  const [row] = await rows<{ id: string }>(
    away.db,
    `insert into outbox (retry_at, task_ids, types, queues, priorities, generations)
     select clock_timestamp() + interval '1 h', array_agg(id), array_agg('mail.send'::text), array_agg('default'::text),
            array_agg(5::int2), array_agg(1)
       from unnest($1::uuid[]) id returning id`,
    `{${wanted.join(',')}}`,
  );
  const invitations = wanted.map((taskId) => anInvitation(taskId));
  expect(await away.backbone.inviter.invite({ id: String(row?.id), invitations })).toBe(false);
  const sweeper = createOutboxSweeper(
    {
      ...partDeps,
      db: away.db,
      invite: async (each) => await away.backbone.inviter.invite(each),
      canPublish: () => away.backbone.publisher.isReady,
      onMeasured: () => undefined,
    },
    { intervalMs: 20, batchSize: 100, retryInMs: 10_000 },
  );
  await sweeper.start();
  try {
    proxy.accept();
    expect(new Set(await away.invitations(3))).toEqual(new Set(wanted));
    await eventually(async () => expect(await count(away.db, 'outbox')).toBe(0));
  } finally {
    await sweeper.stop(soon());
  }
});
