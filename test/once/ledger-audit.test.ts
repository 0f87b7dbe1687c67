/** The audit finds what the books and the tasks differ by, and gives stranded tasks what they lost. */
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from '@jest/globals';
import { dispatchDue } from '../../services/producer/dispatcher.sql.ts';
import { reapOrphans } from '../../services/producer/reaper.sql.ts';
import { closeLease, handBackClaims } from '../../services/worker/leases.sql.ts';
import { run } from '../../shared/postgres/statement.ts';
import { aDeath, aVerdict, addTask, addTasks, count, openWorker, readTask, rows } from '../support/core.ts';
import { openDatabase } from '../support/database.ts';
import type { TestDatabase } from '../support/database.ts';
import { eventually } from '../support/eventually.ts';
import { expectBalance, openAudit } from '../support/ledger.ts';
import type { TestAudit } from '../support/ledger.ts';

const LATER = `clock_timestamp() + interval '1 h'`;
/** An hour long ago, of which only what a test adds is there. */
const OLD = (index: number): string => `019b0000-0000-7000-8000-${String(index).padStart(12, '0')}`;

let opened: TestDatabase;
let db: TestDatabase['database'];
let audit: TestAudit;
beforeAll(async () => {
  opened = await openDatabase({ max: 10 });
  db = opened.database;
});
beforeEach(async () => {
  await db.query({
    text: 'truncate tasks, due, claims, leases, dead_letters, attempts, outbox, ledger_entries, ledger_audits',
  });
  audit = await openAudit(db, { rowsPerStep: 7 });
});
afterEach(async () => await audit[Symbol.asyncDispose]());
afterAll(async () => await opened[Symbol.asyncDispose]());

async function difference(): Promise<number> {
  await audit.pass();
  const [sum] = await rows<{ n: number }>(db, 'select coalesce(sum(difference), 0)::int4 as n from ledger_audits');
  return sum?.n ?? 0;
}

const metric = async (name: string): Promise<string | undefined> =>
  (await audit.metrics.render()).split('\n').find((line) => line.startsWith(name));

describe('a difference', () => {
  test.each([
    ['a task that was deleted', `delete from tasks where id = $1`],
    ['a task that was made to end by hand', `update tasks set state = 'expired', finished_at = now() where id = $1`],
    [
      'a count that was lost',
      `update ledger_entries set tasks = tasks - 1 where entry = 'accepted' and hour = task_hour($1)`,
    ],
  ])('%s shows, in figures, in the log and as a metric', async (_what, surgery) => {
    for (let index = 0; index < 20; index += 1) await addTask(db, { id: OLD(index), type: 'test.old' });
    expect(await difference()).toBe(0);
    await eventually(async () => expect(await metric('warren_ledger_difference')).toMatch(/ 0$/));
    await db.query({ text: surgery, values: [OLD(3)] });
    expect(await difference()).toBe(1);
    await eventually(async () => expect(await metric('warren_ledger_difference')).toMatch(/ 1$/));
    const said = audit.lines.filter(({ message }) => message === 'ledger differs');
    expect(said).toMatchObject([
      { level: 'warn', facts: { taskType: 'test.old', hour: '2025-12-08T22:00:00.000Z', difference: 1 } },
    ]);
  });

  test('is over once the books are right again', async () => {
    await addTask(db, { id: OLD(1) });
    await db.query({ text: `update ledger_entries set tasks = tasks + 2`, values: [] });
    expect(await difference()).toBe(2);
    await db.query({ text: `update ledger_entries set tasks = tasks - 2`, values: [] });
    expect(await difference()).toBe(0);
    expect(audit.lines.map(({ message }) => message)).toEqual(['ledger differs', 'ledger balances again']);
  });

  test('tasks of which the books know nothing show, and so do books without tasks', async () => {
    await addTask(db, { id: OLD(1), type: 'test.unknown' });
    await db.query({ text: 'delete from ledger_entries' });
    expect(await difference()).toBe(1);
    await db.query({ text: 'delete from tasks' });
    expect(await difference()).toBe(0);
    expect(await count(db, 'ledger_audits')).toBe(0);
    await db.query({ text: `insert into ledger_entries values (100, 'test.gone', 'accepted', 0, 3)` });
    expect(await difference()).toBe(3);
  });
});

test('while tasks come and end, no walk sees a difference, however many statements it takes', async () => {
  const worker = await openWorker(db);
  for (let times = 0; times < 15; times += 1) {
    const ids = await addTasks(db, 20);
    const claims = await Promise.all(ids.map(async (id) => await worker.win(id)));
    await Promise.all(
      claims.map(
        async (claim, index) =>
          await (index % 4 === 0 ? worker.settles.settle(claim, aDeath()) : worker.settles.succeed(claim, undefined)),
      ),
    );
  }
  await expectBalance(db);
  expect(await difference()).toBe(0);
  expect(audit.lines).toEqual([]);
  expect(await rows(db, 'select succeeded::int4, dead::int4, in_progress::int4 from ledger_audits')).toEqual([
    { succeeded: 225, dead: 75, in_progress: 0 },
  ]);
});

test('a recent hour that takes many statements is walked through at once, not over many rounds', async () => {
  await audit[Symbol.asyncDispose]();
  await addTasks(db, 60);
  audit = await openAudit(db, { intervalMs: 600_000, rowsPerStep: 7 });
  await eventually(
    async () => expect(await rows(db, 'select in_progress::int4 from ledger_audits')).toEqual([{ in_progress: 60 }]),
    { withinMs: 60_000 },
  );
});

describe('stranded', () => {
  test.each([
    ['scheduled', { state: 'scheduled', runAt: LATER }],
    ['retrying', { state: 'retrying', runAt: LATER }],
    ['pending, with a deadline', { deadline: LATER }],
    [
      'scheduled, with an earlier deadline',
      { state: 'scheduled', runAt: `${LATER} + interval '1 h'`, deadline: LATER },
    ],
  ] as const)('a task that waits (%s) without a row of due gets one', async (_state, times) => {
    const id = await addTask(db, times);
    const [due] = await rows<{ at: Date }>(db, 'select at from due');
    await db.query({ text: 'delete from due' });
    await audit.pass();
    expect(await rows(db, 'select task_id, at from due')).toEqual([{ task_id: id, at: due?.at }]);
    expect(await metric('warren_stranded_rows_total{kind="due"}')).toMatch(/ 1$/);
    expect(audit.lines).toMatchObject([
      { message: 'stranded tasks found', facts: { missing: 'due', count: 1, taskId: id } },
    ]);
  });

  test('a row of due that comes too late is moved', async () => {
    const id = await addTask(db, { state: 'scheduled', runAt: `clock_timestamp() - interval '1 s'` });
    await db.query({ text: `update due set at = ${LATER}` });
    await audit.pass();
    await run(db, dispatchDue, 10);
    expect((await readTask(db, id)).state).toBe('pending');
  });

  test('a task that nobody invited, and that is held back for nothing, is invited; one that is held back is not', async () => {
    const [lost, held] = (await addTasks(db, 2)) as [string, string];
    // At once: the audit looks now and then by itself.
    await db.query({
      text: `with held as (
               insert into held_back (task_id, reason, scope, priority) values ($1, 'paused', 'default', 4)
             ), gone as (
               delete from outbox
             )
             update tasks set invited_at = null`,
      values: [held],
    });
    await audit.pass();
    expect((await readTask(db, lost)).invited_at).not.toBeNull();
    expect((await readTask(db, held)).invited_at).toBeNull();
    expect(await rows(db, 'select task_ids, retry_at <= clock_timestamp() as is_due from outbox')).toEqual([
      { task_ids: [lost], is_due: true },
    ]);
    expect(await metric('warren_stranded_rows_total{kind="invitation"}')).toMatch(/ 1$/);
  });

  test('a task that runs without a claim is judged by the reaper where its worker is gone', async () => {
    const worker = await openWorker(db);
    const ids = await addTasks(db, 3);
    for (const id of ids) await worker.win(id);
    await run(db, closeLease, worker.workerId);
    await db.query({ text: `delete from claims` });
    await audit.pass();
    expect(await metric('warren_stranded_rows_total{kind="claim"}')).toMatch(/ 3$/);
    expect(await run(db, reapOrphans, 50, 3)).toHaveLength(3);
    for (const id of ids) expect(await readTask(db, id)).toMatchObject({ state: 'pending', lost_attempts: 1 });
  });

  test('a task that runs without a claim settles where its worker lives, and is handed back where it is forgotten', async () => {
    const worker = await openWorker(db);
    const [runs, forgotten] = (await addTasks(db, 2)) as [string, string];
    const claim = await worker.win(runs);
    const { claimId } = await worker.win(forgotten);
    await db.query({ text: `delete from claims` });
    await audit.pass();
    expect(await worker.settles.succeed(claim, undefined)).toBe('succeeded');
    expect(await run(db, handBackClaims, worker.workerId, [claimId])).toMatchObject([{ id: forgotten }]);
    expect(await count(db, 'claims')).toBe(0);
  });

  test('a claim that names others gets the one that it lost', async () => {
    const worker = await openWorker(db);
    const ids = await addTasks(db, 3);
    await Promise.all(ids.map(async (id) => await worker.win(id)));
    await db.query({ text: `update claims set task_ids = task_ids[1:1]` });
    await audit.pass();
    const named = await rows<{ id: string }>(db, 'select unnest(task_ids) as id from claims');
    expect(named.map(({ id }) => id).toSorted()).toEqual(ids.toSorted());
  });

  test('a dead task without a dead letter gets one, out of the attempt that it died in', async () => {
    const worker = await openWorker(db);
    const id = await addTask(db, { maxAttempts: 1 });
    await worker.settles.settle(await worker.win(id), aDeath({ reason: 'attempts_exhausted' }));
    await db.query({ text: 'delete from dead_letters' });
    await audit.pass();
    await audit.pass();
    expect(await rows(db, 'select * from dead_letters')).toMatchObject([
      {
        kind: 'task',
        state: 'open',
        task_id: id,
        reason: 'attempts_exhausted',
        attempt: 1,
        error_message: 'did not work',
      },
    ]);
    expect((await rows<{ died_at: Date }>(db, 'select died_at from dead_letters'))[0]?.died_at).toEqual(
      (await readTask(db, id)).finished_at,
    );
    expect(await metric('warren_stranded_rows_total{kind="dead_letter"}')).toMatch(/ 1$/);
  });

  test('a dead task whose letter was discarded has one; whose letter is of an earlier death has none', async () => {
    const worker = await openWorker(db);
    const [discarded, earlier, untold] = (await addTasks(db, 3)) as [string, string, string];
    for (const id of [discarded, earlier, untold]) await worker.settles.settle(await worker.win(id), aDeath());
    const closed = `closed_at = now(), closed_by = 'anna', close_reason = 'test'`;
    await db.query({ text: `update dead_letters set state = 'discarded', ${closed}` });
    await db.query({ text: `update dead_letters set attempt = 0 where task_id = $1`, values: [earlier] });
    await db.query({ text: `delete from dead_letters where task_id = $1`, values: [untold] });
    await db.query({ text: `delete from attempts where task_id = $1`, values: [untold] });
    await audit.pass();
    expect(await rows(db, `select task_id, reason from dead_letters where state = 'open' order by task_id`)).toEqual([
      { task_id: earlier, reason: 'unknown' },
      { task_id: untold, reason: 'unknown' },
    ]);
  });
});

test('what is in order is left alone, and so is what is younger than a minute', async () => {
  const worker = await openWorker(db);
  const ids = await addTasks(db, 3);
  const [first, second] = [await worker.win(String(ids[0])), await worker.win(String(ids[1]))];
  await worker.settles.settle(first, aVerdict({ delayMs: 3_600_000 }));
  await worker.settles.settle(second, aDeath());
  await worker.win(String(ids[2]));
  await addTask(db, { state: 'scheduled', runAt: LATER, deadline: LATER });
  const before = await standing();
  await audit.pass();
  expect(await standing()).toEqual(before);
  await audit[Symbol.asyncDispose]();

  await db.query({ text: 'delete from due' });
  audit = await openAudit(db, { strandedAfterMs: 60_000 });
  await audit.pass();
  expect(await count(db, 'due')).toBe(0);
  await db.query({
    text: `update tasks set accepted_at = accepted_at - interval '1 h', invited_at = null, started_at = started_at - interval '1 h'`,
  });
  await audit.pass();
  expect(await count(db, 'due')).toBe(2);
});

async function standing(): Promise<readonly unknown[]> {
  return [
    await rows(db, 'select * from due order by task_id'),
    await rows(db, 'select * from claims order by id'),
    await rows(db, 'select * from dead_letters order by id'),
  ];
}
