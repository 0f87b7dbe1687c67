/** The books balance after everything that can happen to a task, whoever does it and however many at once. */
import { afterAll, afterEach, beforeAll, describe, expect, test } from '@jest/globals';
import { cancelTask } from '../../services/producer/cancel.ts';
import { cancelTasks } from '../../services/producer/cancel.sql.ts';
import { dispatchDue } from '../../services/producer/dispatcher.sql.ts';
import { foldEntries } from '../../services/producer/ledger-audit.sql.ts';
import { followCancelRequests, reapOrphans } from '../../services/producer/reaper.sql.ts';
import { Submitter } from '../../services/producer/submit.ts';
import { replayTask } from '../../services/dead-letter-handler/replayer.sql.ts';
import { closeLease } from '../../services/worker/leases.sql.ts';
import { MIGRATIONS_DIR } from '../support/database.ts';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { run } from '../../shared/postgres/statement.ts';
import { inTransaction } from '../../shared/postgres/transaction.ts';
import { newId } from '../../shared/tasks/ids.ts';
import type { Submission } from '../../shared/tasks/submission.ts';
import {
  aDeath,
  aHandBack,
  aVerdict,
  addTask,
  addTasks,
  count,
  deadlocks,
  openFaulty,
  openWorker,
  once,
  partDeps,
  readTask,
  rows,
} from '../support/core.ts';
import type { TestWorker } from '../support/core.ts';
import { aDatabase, openDatabase } from '../support/database.ts';
import type { TestDatabase } from '../support/database.ts';
import { eventually } from '../support/eventually.ts';
import { expectBalance, readCounts } from '../support/ledger.ts';
import { systemClock } from '../../shared/time/clock.ts';

let opened: TestDatabase;
let db: TestDatabase['database'];
let worker: TestWorker;
beforeAll(async () => {
  opened = await openDatabase({ max: 10 });
  db = opened.database;
  worker = await openWorker(db);
});
afterEach(async () => await expectBalance(db));
afterAll(async () => await opened[Symbol.asyncDispose]());

const actor = { name: 'anna', role: 'operator' } as const;
const PAST = `clock_timestamp() - interval '1 s'`;
const LATER = `clock_timestamp() + interval '1 h'`;
const IN_AN_HOUR = 3_600_000;

function aSubmitter(over = db, maxBatch = 500): Submitter {
  const invite = async (): Promise<boolean> => await Promise.resolve(true);
  return new Submitter(
    { ...partDeps, db: over, invite, isOutboxFull: () => false, holdReasonOf: () => undefined },
    { maxBatch },
  );
}

/** Submissions of a type that no other test has. */
function some(type: string, submissions: readonly Partial<Submission>[]): Submission[] {
  const plain = { type, queue: 'default', priority: 4, maxAttempts: 3, input: Buffer.from('{}') };
  return submissions.map((submission) => ({ ...plain, ...submission }));
}

async function submit(submissions: readonly Submission[], submitter = aSubmitter()): Promise<string[]> {
  const accepted = await Promise.all(submissions.map(async (submission) => await submitter.submit(submission)));
  return accepted.flatMap((each) => (each.kind === 'accepted' ? [each.id] : []));
}

async function submitOne(type: string, submission: Partial<Submission> = {}): Promise<string> {
  const [id] = await submit(some(type, [submission]));
  return String(id);
}

describe('accepted', () => {
  test('at once, scheduled, with a deadline, under a message id: each is counted once', async () => {
    const ids = await submit(
      some('in.many', [
        {},
        { delayMs: IN_AN_HOUR },
        { deadline: new Date(systemClock.now().getTime() + IN_AN_HOUR) },
        { external: { publisher: 'shop', messageId: 'm1', digest: Buffer.from('a') } },
      ]),
    );
    expect(ids).toHaveLength(4);
    expect(await readCounts(db, 'in.many')).toEqual({ accepted: 4 });
  });

  test('a message id that comes again is not counted again', async () => {
    const message = { external: { publisher: 'shop', messageId: 'm2', digest: Buffer.from('a') } };
    for (let times = 0; times < 3; times += 1) await submit(some('in.again', [message, message]));
    expect(await readCounts(db, 'in.again')).toEqual({ accepted: 1 });
  });

  test('what was committed while its answer was lost is counted as it stands', async () => {
    await using faulty = await openFaulty(db);
    faulty.fault = once('accept_tasks', 'lose');
    await expect(submit(some('in.lost', [{}]), aSubmitter(faulty))).rejects.toMatchObject({
      code: 'database-unavailable',
    });
    expect(await readCounts(db, 'in.lost')).toEqual({ accepted: 1 });
  });

  test('a batch of which one is refused counts the others', async () => {
    const bad = { correlationId: 'not\u0000storable' };
    await submit(some('in.refused', [{}, bad, {}]));
    expect(await readCounts(db, 'in.refused')).toEqual({ accepted: 2 });
  });
});

describe('ended', () => {
  test('succeeded, by a settle whose answer is lost as well', async () => {
    await using faulty = await openFaulty(db);
    faulty.fault = once('settle_succeeded', 'lose');
    const other = await openWorker(faulty);
    const ids = await submit(some('out.well', [{}, {}, {}]));
    const claims = await Promise.all(ids.map(async (id) => await other.win(id)));
    const settled = await Promise.all(claims.map(async (claim) => await other.settles.succeed(claim, undefined)));
    expect(settled).toEqual(['succeeded', 'succeeded', 'succeeded']);
    expect(await readCounts(db, 'out.well')).toEqual({ accepted: 3, succeeded: 3 });
  });

  test('a result that cannot be stored is one death', async () => {
    const claim = await worker.win(await submitOne('out.unstorable'));
    // Postgres refuses a parameter of more than a gigabyte; a constraint of the test's own refuses sooner.
    await db.query({ text: `alter table tasks add constraint small check (result is null or length(result) < 10)` });
    expect(await worker.settles.succeed(claim, Buffer.from('"far too long"'))).toBe('dead');
    await db.query({ text: 'alter table tasks drop constraint small' });
    expect(await readCounts(db, 'out.unstorable')).toEqual({ accepted: 1, dead: 1 });
  });

  test('dead, cancelled by its worker, retrying, handed back', async () => {
    const ids = await submit(some('out.others', [{}, {}, {}, {}]));
    const claims = await Promise.all(ids.map(async (id) => await worker.win(id)));
    const verdicts = [aDeath(), aVerdict({ state: 'cancelled' }), aVerdict(), aHandBack()];
    const settled = await Promise.all(
      claims.map(async (claim, index) => await worker.settles.settle(claim, verdicts[index] ?? aDeath())),
    );
    expect(settled).toEqual(['dead', 'cancelled', 'retrying', 'pending']);
    expect(await readCounts(db, 'out.others')).toEqual({ accepted: 4, dead: 1, cancelled: 1 });
  });

  test('a retry past its deadline, and one whose cancelling was asked for', async () => {
    const [late, unwanted] = [await submitOne('out.late'), await submitOne('out.unwanted')];
    const claims = [await worker.win(late), await worker.win(unwanted)];
    await db.query({ text: `update tasks set deadline = ${PAST} where id = $1`, values: [late] });
    await cancelTask(db, unwanted, { actor, reason: undefined });
    for (const claim of claims) await worker.settles.settle(claim, aVerdict());
    expect(await readCounts(db, 'out.late')).toEqual({ accepted: 1, dead: 1 });
    expect(await readCounts(db, 'out.unwanted')).toEqual({ accepted: 1, cancelled: 1 });
  });

  test('a fenced settle counts nothing', async () => {
    const id = await submitOne('out.fenced');
    const claim = await worker.win(id);
    await db.query({ text: `update tasks set claim_id = gen_random_uuid() where id = $1`, values: [id] });
    expect(await worker.settles.succeed(claim, undefined)).toBe('fenced');
    expect(await worker.settles.settle(claim, aDeath())).toBe('fenced');
    expect(await readCounts(db, 'out.fenced')).toEqual({ accepted: 1 });
  });

  test('by the reaper: lost for good, cancelled, and pending again', async () => {
    const lost = await openWorker(db);
    const [dies, unwanted, again] = [
      await addTask(db, { type: 'reap.dies', lostAlone: 2 }),
      await submitOne('reap.unwanted'),
      await submitOne('reap.again'),
    ];
    await lost.claims.markAlone(await lost.win(dies));
    await lost.win(unwanted);
    await lost.win(again);
    await cancelTask(db, unwanted, { actor, reason: undefined });
    await run(db, closeLease, lost.workerId);
    expect(await run(db, reapOrphans, 50, 3)).toHaveLength(3);
    expect(await readCounts(db, 'reap.dies')).toEqual({ accepted: 1, dead: 1 });
    expect(await readCounts(db, 'reap.unwanted')).toEqual({ accepted: 1, cancelled: 1 });
    expect(await readCounts(db, 'reap.again')).toEqual({ accepted: 1 });
  });

  test('expired, by the dispatcher, which also makes pending what is due', async () => {
    const ids = [
      await addTask(db, { type: 'out.expired', deadline: PAST }),
      await addTask(db, { type: 'out.expired', state: 'scheduled', runAt: LATER, deadline: PAST }),
      await addTask(db, { type: 'out.expired', state: 'retrying', runAt: PAST }),
    ];
    await run(db, dispatchDue, 500);
    const states = await Promise.all(ids.map(async (id) => (await readTask(db, id)).state));
    expect(states).toEqual(['expired', 'expired', 'pending']);
    expect(await readCounts(db, 'out.expired')).toEqual({ accepted: 3, expired: 2 });
  });

  test('cancelled while it waits, once, however often it is asked for', async () => {
    const id = await submitOne('out.cancelled', { delayMs: IN_AN_HOUR });
    const became = await Promise.all(
      [1, 2, 3].map(async () => await cancelTask(db, id, { actor, reason: undefined }).catch(String)),
    );
    expect(became).toContainEqual({ kind: 'cancelled' });
    expect(await readCounts(db, 'out.cancelled')).toEqual({ accepted: 1, cancelled: 1 });
  });

  test('a cancel that crossed a settle', async () => {
    const id = await submitOne('out.crossed');
    const claim = await worker.win(id);
    let settling: Promise<unknown> = Promise.resolve();
    await inTransaction(db, async (tx) => {
      await run(tx, cancelTasks, [id], actor.name, actor.role, '{}', null);
      settling = worker.settles.settle(claim, aVerdict());
      await eventually(async () =>
        expect(
          await count(db, 'pg_stat_activity', `datname = current_database() and wait_event_type = 'Lock'`),
        ).toBeGreaterThan(0),
      );
    });
    await settling;
    await run(db, followCancelRequests);
    expect((await readTask(db, id)).state).toBe('cancelled');
    expect(await readCounts(db, 'out.crossed')).toEqual({ accepted: 1, cancelled: 1 });
  });

  test('a replay takes the death back, and the task may end again', async () => {
    const id = await submitOne('out.replayed');
    await worker.settles.settle(await worker.win(id), aDeath());
    for (const ends of [aDeath(), aVerdict({ state: 'cancelled' })]) {
      const [letter] = await rows<{ id: string }>(
        db,
        `select id from dead_letters where task_id = $1 and state = 'open'`,
        id,
      );
      const pressed = [1, 2, 3].map(
        async () => await run(db, replayTask, String(letter?.id), 'anna', 'operator', null, newId(), newId(), null),
      );
      expect((await Promise.all(pressed)).flat()).toHaveLength(1);
      const { generation } = await readTask(db, id);
      await worker.settles.settle(await worker.win(id, generation), ends);
    }
    expect(await readCounts(db, 'out.replayed')).toEqual({ accepted: 1, dead: 2, revived: 2, cancelled: 1 });
  });
});

describe('many at once', () => {
  test('sessions never wait for each other, and a transaction left open holds up nobody', async () => {
    await inTransaction(db, async (tx) => {
      await tx.query({
        text: `insert into ledger_entries as l values (task_hour($1), 'many.open', 'accepted', pg_backend_pid(), 0)`,
        values: [newId()],
      });
      const before = await submit(some('many.open', [{}, {}, {}]), aSubmitter(db, 1));
      for (const id of before) await worker.settles.succeed(await worker.win(id), undefined);
    });
    expect(await readCounts(db, 'many.open')).toEqual({ accepted: 3, succeeded: 3 });
  });

  test('submitters and workers of two lanes each, of many types and two hours, beside folding: no deadlock', async () => {
    const before = await deadlocks(db);
    const more = [aDatabase(opened.url, { max: 6 }), aDatabase(opened.url, { max: 6 })];
    for (const each of more) await each.connectOrThrow();
    const old = Array.from({ length: 60 }, (_, index) => ({
      id: `019b0000-0000-7000-8000-${String(index).padStart(12, '0')}`,
      type: `many.${index % 7}`,
    }));
    for (const task of old) await addTask(db, task);
    const folding = new AbortController();
    const fold = (async () => {
      while (!folding.signal.aborted) await run(db, foldEntries, 100_000_000, 50);
    })();
    await Promise.all(
      more.map(async (own, part) => {
        const [submitter, of] = [aSubmitter(own, 20), await openWorker(own, { maxBatch: 20 })];
        const submissions = Array.from({ length: 300 }, (_, index) => some(`many.${(index * 5) % 7}`, [{}])).flat();
        const ids = [
          ...old.filter((_, index) => index % 2 === part).map(({ id }) => id),
          ...(await submit(submissions, submitter)),
        ];
        await Promise.all(
          ids.map(async (id, index) => {
            const claim = await of.win(id);
            if (index % 3 === 0) await of.settles.settle(claim, index % 2 === 0 ? aDeath() : aVerdict());
            else await of.settles.succeed(claim, undefined);
          }),
        );
      }),
    );
    folding.abort();
    await fold;
    for (const each of more) await each.stop(systemClock.monotonicMs() + 2_000);
    expect(await deadlocks(db)).toBe(before);
  });

  test('folding keeps the sums and leaves one row an hour, type and entry', async () => {
    await addTasks(db, 3);
    const before = await readCounts(db);
    while ((await run(db, foldEntries, 100_000_000, 100)).length > 0);
    expect(await readCounts(db)).toEqual(before);
    expect(await count(db, 'ledger_entries', 'backend <> 0')).toBe(0);
    const doubled = 'select 1 from ledger_entries group by hour, type, entry having count(*) > 1';
    expect(await rows(db, doubled)).toEqual([]);
    await addTasks(db, 1);
    const [hours] = await rows<{ hour: number }>(db, 'select max(hour) as hour from ledger_entries');
    expect(await run(db, foldEntries, hours?.hour ?? 0, 100)).toEqual([]); // what is recent is left alone
  });
});

test('tasks that were there before the ledger are counted in when it comes', async () => {
  await using before = await openDatabase();
  const own = before.database;
  const ids = await addTasks(own, 6);
  const runs = await openWorker(own);
  await runs.settles.succeed(await runs.win(String(ids[0])), undefined);
  await runs.settles.settle(await runs.win(String(ids[1])), aDeath());
  await runs.win(String(ids[2]));
  const [expected] = [await readCounts(own)];
  await own.query({ text: 'drop table ledger_entries, ledger_audits; drop function task_hour' });
  await own.query({ text: await readFile(join(MIGRATIONS_DIR, '0003_ledger.sql'), 'utf8') });
  expect(await readCounts(own)).toEqual(expected);
  await expectBalance(own);
});
