/** Letters that died of the same come into one group, once each, and its counts are right whatever is done with them. */
import { afterAll, beforeAll, beforeEach, describe, expect, test } from '@jest/globals';
import { createGrouper, SEARCHED_INPUT_BYTES } from '../../services/dead-letter-handler/grouper.ts';
import type { GrouperDeps } from '../../services/dead-letter-handler/grouper.ts';
import { changeFailureGroup, findGroups, getGroup } from '../../services/dead-letter-handler/groups.ts';
import {
  beginReplay,
  discardLetter,
  reopenLetter,
  replayTask,
} from '../../services/dead-letter-handler/replayer.sql.ts';
import type { Actor } from '../../shared/http/auth.ts';
import { run } from '../../shared/postgres/statement.ts';
import { newId } from '../../shared/tasks/ids.ts';
import { systemClock } from '../../shared/time/clock.ts';
import { aDeath, addTask, addTasks, count, openWorker, partDeps, rows } from '../support/core.ts';
import { openDatabase } from '../support/database.ts';
import type { TestDatabase } from '../support/database.ts';
import { eventually } from '../support/eventually.ts';

const ACTOR: Actor = { name: 'somebody', role: 'operator' };
const EVERY_STATE = ['open', 'acknowledged', 'resolved', 'ignored'] as const;
const PAGE = { states: EVERY_STATE, minOpen: 0, below: undefined, limit: 50 } as const;

let opened: TestDatabase;
let db: TestDatabase['database'];
beforeAll(async () => {
  opened = await openDatabase({ max: 10 });
  db = opened.database;
});
beforeEach(async () => {
  await db.query({
    text: `truncate tasks, due, claims, leases, dead_letters, attempts, outbox, ledger_entries, failure_groups,
                    failure_group_hours, letter_facts`,
  });
});
afterAll(async () => await opened[Symbol.asyncDispose]());

/** Lets a new task die of `message`; gives its letter's id. */
async function die(
  message: string,
  changes: { readonly type?: string; readonly input?: string } = {},
): Promise<string> {
  const taskId = await addTask(db, { type: changes.type ?? 'mail.send' });
  if (changes.input !== undefined) {
    await db.query({ text: 'update tasks set input = $2 where id = $1', values: [taskId, Buffer.from(changes.input)] });
  }
  const worker = await openWorker(db);
  await worker.settles.settle(await worker.win(taskId), aDeath({ error: { type: 'MailError', message, causes: [] } }));
  const [letter] = await rows<{ id: string }>(
    db,
    'update dead_letters set recorded_at = now() where task_id = $1 returning id',
    taskId,
  );
  return letter?.id ?? '';
}

/** Writes letters of one failure as a worker does, all at once. */
async function dieOften(letters: number, message = 'mail 1 bounced'): Promise<void> {
  await db.query({
    text: `insert into dead_letters (id, kind, task_id, reason, type, queue, attempt, error_type, error_message, recorded_at)
           select uuid_v7(), 'task', id, 'non_retryable', 'mail.send', 'default', 1, 'MailError', $2, now()
             from unnest($1::uuid[]) id`,
    values: [`{${(await addTasks(db, letters)).join(',')}}`, message],
  });
}

/** Runs groupers until every letter is in a group. */
async function group(groupers = 1, deps: Partial<GrouperDeps> = {}): Promise<void> {
  const loops = Array.from({ length: groupers }, () =>
    createGrouper({ ...partDeps, db, ruleOf: () => undefined, ...deps }, { intervalMs: 5, maxBatch: 50 }),
  );
  for (const loop of loops) await loop.start();
  await eventually(async () => expect(await count(db, 'dead_letters', 'group_id is null')).toBe(0));
  for (const loop of loops) await loop.stop(systemClock.monotonicMs() + 5_000);
}

const openLetters = async (): Promise<readonly number[]> =>
  (await findGroups(db, PAGE)).map((each) => each.openLetters);

describe('grouping', () => {
  test('puts letters together that differ only in what varies, and keeps others apart', async () => {
    await die('mail 12 to a@example.org bounced');
    await die('mail 13 to b@example.org bounced');
    await die('no such mailbox');
    await die('mail 14 to c@example.org bounced', { type: 'mail.read' });
    await group();
    const groups = await findGroups(db, PAGE);
    expect(groups).toHaveLength(3);
    expect(groups[0]).toMatchObject({
      kind: 'task',
      type: 'mail.send',
      error: { type: 'MailError', message: 'mail <n> to <address> bounced', frame: null },
      state: 'open',
      letters: 2,
      openLetters: 2,
      queues: ['default'],
      codeVersions: ['test'],
    });
    expect(groups[0]?.lastHours).toHaveLength(24);
    expect(groups[0]?.lastHours.reduce((sum, each) => sum + each, 0)).toBe(2);
  });

  test('counts each letter once, however many replicas are at it', async () => {
    await dieOften(1_000);
    await dieOften(500, 'no such mailbox');
    await group(4);
    expect(await openLetters()).toEqual([1_000, 500]);
    expect(await count(db, 'letter_facts')).toBe(1_500);
    expect(await rows(db, 'select sum(letters)::int4 as n from failure_group_hours')).toEqual([{ n: 1_500 }]);
  });

  test('writes what letters are found by: tags, error, input', async () => {
    const id = await die('mail 12 bounced', { input: '{"user":{"id":42}}' });
    await db.query({ text: `update tasks set tags = '{vip,"a b\\"c"}'` });
    await group();
    const [facts] = await rows(db, 'select tags, error_text, input from letter_facts where letter_id = $1', id);
    expect(facts).toEqual({
      tags: ['vip', 'a b"c'],
      error_text: 'MailError mail 12 bounced',
      input: { user: { id: 42 } },
    });
  });

  test('is not held up by an input that jsonb does not take, nor are its neighbours', async () => {
    const before = await die('mail 1 bounced', { input: '{"n":1}' });
    const bad = await die('mail 2 bounced', { input: String.raw`{"text":"\u0000"}` });
    const after = await die('mail 3 bounced', { input: '{"n":3}' });
    const large = await die('mail 4 bounced', { input: JSON.stringify({ text: 'x'.repeat(SEARCHED_INPUT_BYTES) }) });
    await group();
    expect(await openLetters()).toEqual([4]);
    const facts = await rows<{ letter_id: string; input: unknown }>(db, 'select letter_id, input from letter_facts');
    const inputs = new Map(facts.map(({ letter_id: id, input }) => [id, input]));
    expect([before, bad, after, large].map((id) => inputs.get(id))).toEqual([{ n: 1 }, null, { n: 3 }, null]);
  });

  test('goes by a rule where one says so', async () => {
    await die('mail 1 bounced');
    await die('no such mailbox', { type: 'mail.read' });
    await group(1, { ruleOf: ({ type }) => (type?.startsWith('mail.') === true ? 'mail is down' : undefined) });
    expect(await findGroups(db, PAGE)).toMatchObject([{ rule: 'mail is down', type: null, openLetters: 2 }]);
  });

  test('waits for the evidence of a death, which a lost worker has none of', async () => {
    await die('mail 1 bounced');
    await die('mail 2 bounced');
    await die('no such mailbox');
    await db.query({ text: `update dead_letters set recorded_at = null where error_message <> 'mail 1 bounced'` });
    await db.query({ text: `update dead_letters set reason = 'worker_lost' where error_message = 'mail 2 bounced'` });
    const grouper = createGrouper({ ...partDeps, db, ruleOf: () => undefined }, { intervalMs: 5, maxBatch: 50 });
    await grouper.start();
    await eventually(async () => expect(await openLetters()).toEqual([2]));
    expect(await count(db, 'dead_letters', 'group_id is null')).toBe(1);
    await db.query({ text: 'update dead_letters set recorded_at = now() where group_id is null' });
    await eventually(async () => expect(await openLetters()).toEqual([2, 1]));
    await grouper.stop(systemClock.monotonicMs() + 5_000);
  });

  test('is by queue for what never was for Warren', async () => {
    await db.query({
      text: `insert into dead_letters (id, kind, reason, queue, recorded_at, body)
             select uuid_v7(), 'foreign', 'rejected', q, now(), 'x' from unnest('{orders,orders,mails}'::text[]) q`,
    });
    await group();
    expect(await findGroups(db, PAGE)).toMatchObject([
      { kind: 'foreign', type: null, queues: ['orders'], openLetters: 2, error: { type: 'rejected' } },
      { queues: ['mails'], openLetters: 1 },
    ]);
  });
});

describe('the count of open letters', () => {
  test('falls with a replay and a discard, however often they are asked for, and rises when a letter opens again', async () => {
    const [replayed, discarded] = [await die('mail 1 bounced'), await die('mail 2 bounced')];
    await die('mail 3 bounced');
    await group();
    for (let presses = 0; presses < 3; presses += 1) {
      await run(db, replayTask, replayed, ACTOR.name, ACTOR.role, null, newId(), newId(), null);
      await run(db, discardLetter, discarded, ACTOR.name, ACTOR.role, 'no need', newId(), null);
    }
    expect(await openLetters()).toEqual([1]);

    const foreign = newId();
    await db.query({
      text: `insert into dead_letters (id, kind, reason, queue, recorded_at, body) values ($1, 'foreign', 'rejected', 'q', now(), 'x')`,
      values: [foreign],
    });
    await group();
    expect(await openLetters()).toEqual([1, 1]);
    await run(db, beginReplay, foreign, ACTOR.name, ACTOR.role, null, newId(), newId(), 'e', 'k', null);
    expect(await openLetters()).toEqual([1, 0]);
    await run(db, reopenLetter, foreign, ACTOR.name, ACTOR.role, newId(), 'unroutable', false, null);
    expect(await openLetters()).toEqual([1, 1]);
  });

  test('leaves out what was closed before it came into a group', async () => {
    const id = await die('mail 1 bounced');
    await run(db, discardLetter, id, ACTOR.name, ACTOR.role, 'no need', newId(), null);
    await group();
    expect(await findGroups(db, PAGE)).toMatchObject([{ letters: 1, openLetters: 0 }]);
    expect(await findGroups(db, { ...PAGE, minOpen: 1 })).toEqual([]);
  });

  test('is right after many hands at once', async () => {
    await dieOften(300);
    const letters = await rows<{ id: string }>(db, 'select id from dead_letters order by id');
    const grouping = group(2);
    await Promise.all(
      letters
        .slice(0, 200)
        .map(async ({ id }) => await run(db, discardLetter, id, ACTOR.name, ACTOR.role, 'x', newId(), null)),
    );
    await grouping;
    expect(await openLetters()).toEqual([100]);
  });
});

describe('a group', () => {
  const only = async (): Promise<string> => (await findGroups(db, PAGE))[0]?.id ?? '';

  test('that was resolved opens again when the fault comes back, one that is ignored does not', async () => {
    await die('mail 1 bounced');
    await group();
    const id = await only();
    await changeFailureGroup(db, { id, version: 1 }, { state: 'resolved' }, ACTOR);
    await die('mail 2 bounced');
    await group();
    expect(await getGroup(db, id)).toMatchObject({ state: 'open', version: 3, reopenedAt: expect.any(String) });
    await changeFailureGroup(db, { id, version: 3 }, { state: 'ignored' }, ACTOR);
    await die('mail 3 bounced');
    await group();
    expect(await getGroup(db, id)).toMatchObject({ state: 'ignored', openLetters: 3, version: 4 });
  });

  test('stays resolved where a letter comes late that died before', async () => {
    await die('mail 1 bounced');
    await group();
    const id = await only();
    await die('mail 2 bounced');
    await changeFailureGroup(db, { id, version: undefined }, { state: 'resolved' }, ACTOR);
    await group();
    expect(await getGroup(db, id)).toMatchObject({ state: 'resolved', letters: 2, reopenedAt: null });
  });

  test('keeps a note and who is on it, until they are taken away', async () => {
    await die('mail 1 bounced');
    await group();
    const id = await only();
    await changeFailureGroup(db, { id, version: 1 }, { note: 'the relay is full', assignee: 'night shift' }, ACTOR);
    expect(await getGroup(db, id)).toMatchObject({
      note: 'the relay is full',
      assignee: 'night shift',
      changedBy: 'somebody',
      youngest: [{ message: 'mail 1 bounced' }],
    });
    await changeFailureGroup(db, { id, version: 2 }, { assignee: '' }, ACTOR);
    expect(await getGroup(db, id)).toMatchObject({ note: 'the relay is full', assignee: null });
    expect(
      await rows(
        db,
        "select action, target, detail from audit where target = $1 and detail ? 'assignee' order by id",
        id,
      ),
    ).toEqual([
      {
        action: 'failure-group.change',
        target: id,
        detail: { note: 'the relay is full', assignee: 'night shift' },
      },
      { action: 'failure-group.change', target: id, detail: { assignee: '' } },
    ]);
  });

  test('is changed by one of two who looked at the same', async () => {
    await die('mail 1 bounced');
    await group();
    const id = await only();
    const both = await Promise.allSettled([
      changeFailureGroup(db, { id, version: 1 }, { note: 'mine' }, ACTOR),
      changeFailureGroup(db, { id, version: 1 }, { note: 'no, mine' }, ACTOR),
    ]);
    expect(both.map(({ status }) => status).toSorted()).toEqual(['fulfilled', 'rejected']);
    expect(both.find(({ status }) => status === 'rejected')).toMatchObject({ reason: { code: 'precondition-failed' } });
  });

  test('is listed page by page, those with the most open letters first', async () => {
    for (const [index, message] of ['one bounced', 'two bounced', 'three bounced'].entries()) {
      await dieOften(index + 1, message);
    }
    await group();
    const first = await findGroups(db, { ...PAGE, limit: 2 });
    expect(first.map((each) => each.openLetters)).toEqual([3, 2]);
    const below = { open: 2, id: first[1]?.id ?? '' };
    expect((await findGroups(db, { ...PAGE, below })).map((each) => each.openLetters)).toEqual([1]);
  });
});
