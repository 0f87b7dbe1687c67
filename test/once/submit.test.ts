/** What happens to a submission: it is accepted with its invitation, or refused, alone. */
import { afterAll, beforeAll, expect, test } from '@jest/globals';
import { Submitter } from '../../services/producer/submit.ts';
import { silentLogger } from '../../shared/observability/silent-log.ts';
import type { Database } from '../../shared/postgres/pool.ts';
import type { OutboxRow } from '../../shared/tasks/invitation.ts';
import type { Acceptance, Submission } from '../../shared/tasks/submission.ts';
import { partDeps, count, openFaulty, readTask, rows } from '../support/core.ts';
import { openDatabase } from '../support/database.ts';
import type { TestDatabase } from '../support/database.ts';

let opened: TestDatabase;
let db: TestDatabase['database'];
const invited: OutboxRow[] = [];
let isFull = false;
let submitter: Submitter;

function aSubmitter(over: Database, maxBatch = 500): Submitter {
  const invite = async (row: OutboxRow): Promise<boolean> => {
    invited.push(row);
    return await Promise.resolve(true);
  };
  return new Submitter(
    {
      db: over,
      log: silentLogger,
      invite,
      isOutboxFull: () => isFull,
      holdReasonOf: () => undefined,
      metrics: partDeps.metrics,
    },
    { maxBatch },
  );
}

beforeAll(async () => {
  opened = await openDatabase();
  db = opened.database;
  submitter = aSubmitter(db);
});
afterAll(async () => await opened[Symbol.asyncDispose]());

function aSubmission(submission: Partial<Submission> = {}): Submission {
  return { type: 'mail.send', queue: 'default', priority: 4, maxAttempts: 3, input: Buffer.from('{}'), ...submission };
}

function aMessage(messageId: string, digest = 'a', publisher = 'shop'): Partial<Submission> {
  return { external: { publisher, messageId, digest: Buffer.from(digest) } };
}

async function accept(submission: Submission): Promise<Extract<Acceptance, { kind: 'accepted' }>> {
  const acceptance = await submitter.submit(submission);
  if (acceptance.kind !== 'accepted') throw new RangeError(`was ${acceptance.kind}`);
  return acceptance;
}

const all = async (submissions: readonly Submission[]): Promise<Acceptance[]> =>
  await Promise.all(submissions.map(async (submission) => await submitter.submit(submission)));

test('an accepted task waits with an invitation that was written with it', async () => {
  const { id, state, acceptedAt, runAt } = await accept(aSubmission({ priority: 8 }));
  expect([state, runAt]).toEqual(['pending', undefined]);
  const row = await readTask(db, id);
  expect(row).toMatchObject({ state: 'pending', priority: 8, attempt: 0, generation: 1, run_at: null });
  expect(row.invited_at?.getTime()).toBe(acceptedAt.getTime());
  const outbox = await rows<{ id: string }>(db, 'select * from outbox where $1 = any(task_ids)', id);
  expect(outbox).toMatchObject([{ task_ids: [id], types: ['mail.send'], queues: ['default'], generations: [1] }]);
  expect(invited.at(-1)).toEqual({
    id: outbox[0]?.id,
    invitations: [{ taskId: id, type: 'mail.send', queue: 'default', priority: 8, generation: 1 }],
  });
});

test('what comes together is accepted in one transaction, with one outbox row', async () => {
  const accepted = await all([1, 2, 3, 4, 5].map(() => aSubmission()));
  const ids = accepted.map((acceptance) => (acceptance.kind === 'accepted' ? acceptance.id : ''));
  const found = await rows<{ xmin: string }>(
    db,
    'select distinct xmin::text as xmin from tasks where id = any($1::uuid[])',
    `{${ids.join(',')}}`,
  );
  expect(found).toHaveLength(1);
  expect(invited.at(-1)?.invitations.map(({ taskId }) => taskId)).toEqual(ids);
  expect(await count(db, 'outbox', `'${String(ids[0])}' = any(task_ids)`)).toBe(1);
});

test('the same submission handed in twice is two tasks, and each caller is told its own', async () => {
  const submission = aSubmission();
  const accepted = await all([submission, submission]);
  const ids = accepted.map((acceptance) => (acceptance.kind === 'accepted' ? acceptance.id : ''));
  expect(new Set(ids).size).toBe(2);
});

test('an input is kept byte for byte', async () => {
  const input = Buffer.from(' { "n": 9007199254740993, "e": 1e400, "t": "\\u0000\\ud83d", "t": "ü" }\n');
  const { id } = await accept(aSubmission({ input }));
  expect((await readTask(db, id)).input.equals(input)).toBe(true);
});

test('a delay, an instant and a deadline are what it waits for', async () => {
  const delayed = await accept(aSubmission({ delayMs: 60_000 }));
  expect(delayed.state).toBe('scheduled');
  expect(delayed.runAt?.getTime()).toBe(delayed.acceptedAt.getTime() + 60_000);
  expect(await readTask(db, delayed.id)).toMatchObject({ state: 'scheduled', invited_at: null });

  const runAt = new Date('2099-01-01T00:00:00Z');
  const deadline = new Date('2098-01-01T00:00:00Z');
  const scheduled = await accept(aSubmission({ runAt, deadline }));
  expect(scheduled.runAt).toEqual(runAt);
  expect(await rows(db, 'select at from due where task_id = $1', scheduled.id)).toEqual([{ at: deadline }]);

  const withDeadline = await accept(aSubmission({ deadline }));
  expect(withDeadline.state).toBe('pending');
  expect(await rows(db, 'select at from due where task_id = $1', withDeadline.id)).toEqual([{ at: deadline }]);

  const past = await accept(aSubmission({ runAt: new Date('2001-01-01T00:00:00Z'), delayMs: 0 }));
  expect([past.state, past.runAt]).toEqual(['pending', undefined]);
  expect(await count(db, 'due', `task_id = '${past.id}'`)).toBe(0);
  for (const { id } of [delayed, scheduled]) expect(await count(db, 'outbox', `'${id}' = any(task_ids)`)).toBe(0);
});

test('all that was sent beside the input is kept', async () => {
  const { id } = await accept(
    aSubmission({
      businessKey: 'order-7',
      correlationId: 'c-1',
      tags: ['plain', 'with "quotes"', 'back\\slash', '{braces},comma', ''],
      ...aMessage('m-kept'),
      origin: { exchange: 'x', routingKey: 'mail.send', properties: '{"appId":"shop"}', headers: '{"a":[1]}' },
    }),
  );
  expect(
    await rows(db, 'select business_key, correlation_id, tags, external_id, publisher from tasks where id = $1', id),
  ).toEqual([
    {
      business_key: 'order-7',
      correlation_id: 'c-1',
      tags: ['plain', 'with "quotes"', 'back\\slash', '{braces},comma', ''],
      external_id: 'm-kept',
      publisher: 'shop',
    },
  ]);
  expect(await rows(db, 'select * from origins where task_id = $1', id)).toEqual([
    { task_id: id, exchange: 'x', routing_key: 'mail.send', properties: { appId: 'shop' }, headers: { a: [1] } },
  ]);
});

test.each([0, 3, 6])('of seven submissions Postgres refuses only the bad one, number %s', async (bad) => {
  const acceptances = await all(
    [0, 1, 2, 3, 4, 5, 6].map((index) => aSubmission(index === bad ? { businessKey: 'a\0b' } : {})),
  );
  expect(acceptances.map(({ kind }) => kind)).toEqual(
    [0, 1, 2, 3, 4, 5, 6].map((index) => (index === bad ? 'refused' : 'accepted')),
  );
});

test('a message that comes again is the task that it was', async () => {
  const { id } = await accept(aSubmission(aMessage('m-again')));
  expect(await submitter.submit(aSubmission(aMessage('m-again')))).toMatchObject({ kind: 'duplicate', id });
  expect(await count(db, 'tasks', `external_id = 'm-again'`)).toBe(1);
});

test('a message id with other content is a conflict that names the task', async () => {
  const { id } = await accept(aSubmission(aMessage('m-conflict')));
  const acceptance = await submitter.submit(aSubmission(aMessage('m-conflict', 'b')));
  expect(acceptance).toMatchObject({ kind: 'refused', fault: { code: 'id-conflict', field: 'message_id' } });
  expect(JSON.stringify(acceptance)).toContain(id);
});

test('a message id belongs to its publisher and its type', async () => {
  const acceptances = await all([
    aSubmission(aMessage('m-own')),
    aSubmission(aMessage('m-own', 'a', 'other')),
    aSubmission({ ...aMessage('m-own'), type: 'mail.bounce' }),
  ]);
  expect(acceptances.map(({ kind }) => kind)).toEqual(['accepted', 'accepted', 'accepted']);
});

test('a message id that stands several times in one batch is accepted once', async () => {
  const acceptances = await all([
    aSubmission(aMessage('m-batch')),
    aSubmission(),
    aSubmission(aMessage('m-batch')),
    aSubmission(aMessage('m-batch', 'b')),
  ]);
  expect(acceptances.map(({ kind }) => kind)).toEqual(['accepted', 'accepted', 'duplicate', 'refused']);
});

test('after seven days a message id may be used again', async () => {
  const first = await accept(aSubmission(aMessage('m-old')));
  const age = async (interval: string): Promise<unknown> =>
    await db.query({
      text: `update message_ids set accepted_at = now() - $1::interval where message_id = 'm-old'`,
      values: [interval],
    });
  await age('6 days 23 hours');
  expect((await submitter.submit(aSubmission(aMessage('m-old')))).kind).toBe('duplicate');
  await age('7 days 1 hour');
  const second = await accept(aSubmission(aMessage('m-old', 'b')));
  expect(second.id).not.toBe(first.id);
  expect((await submitter.submit(aSubmission(aMessage('m-old', 'b')))).kind).toBe('duplicate');
});

test('fifty submitters of one message make one task', async () => {
  const submitters = Array.from({ length: 50 }, () => aSubmitter(db));
  const acceptances = await Promise.all(
    submitters.map(async (each) => await each.submit(aSubmission(aMessage('m-race')))),
  );
  const kinds = acceptances.map(({ kind }) => kind).toSorted();
  expect(kinds).toEqual(['accepted', ...Array.from({ length: 49 }, () => 'duplicate')]);
  expect(new Set(acceptances.map((acceptance) => (acceptance.kind === 'refused' ? '' : acceptance.id))).size).toBe(1);
  expect(await count(db, 'tasks', `external_id = 'm-race'`)).toBe(1);
});

test('batches with the same message ids in opposite orders do not deadlock', async () => {
  const names = Array.from({ length: 100 }, (_none, index) => `m-order-${index}`);
  const [one, other] = [aSubmitter(db, 25), aSubmitter(db, 25)];
  const acceptances = await Promise.all([
    ...names.map(async (name) => await one.submit(aSubmission(aMessage(name)))),
    ...names.toReversed().map(async (name) => await other.submit(aSubmission(aMessage(name)))),
  ]);
  expect(acceptances.filter(({ kind }) => kind === 'accepted')).toHaveLength(100);
  expect(acceptances.filter(({ kind }) => kind === 'duplicate')).toHaveLength(100);
});

test('with a full outbox nothing is accepted', async () => {
  isFull = true;
  await expect(submitter.submit(aSubmission())).rejects.toMatchObject({ code: 'outbox-full' });
  isFull = false;
  expect((await submitter.submit(aSubmission())).kind).toBe('accepted');
});

test('while Postgres is away nothing is promised', async () => {
  await using faulty = await openFaulty(db);
  faulty.fault = () => 'refuse';
  const cut = aSubmitter(faulty);
  await expect(cut.submit(aSubmission())).rejects.toMatchObject({ code: 'database-unavailable' });
  faulty.fault = () => undefined;
  expect((await cut.submit(aSubmission())).kind).toBe('accepted');
});

test('invariant 1: what was committed and not answered keeps its outbox row, and its message id makes no second task', async () => {
  await using faulty = await openFaulty(db);
  faulty.fault = (name) => (name === 'accept_tasks' ? 'lose' : undefined);
  const cut = aSubmitter(faulty);
  await expect(cut.submit(aSubmission(aMessage('m-cut')))).rejects.toMatchObject({ code: 'database-unavailable' });
  faulty.fault = () => undefined;
  const again = await cut.submit(aSubmission(aMessage('m-cut')));
  expect(again.kind).toBe('duplicate');
  const id = again.kind === 'duplicate' ? again.id : '';
  expect(await count(db, 'outbox', `'${id}' = any(task_ids)`)).toBe(1);
});
