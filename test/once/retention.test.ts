/** Retention: partitions are made ahead of time and retired, who stays is there at every moment, and the books balance. */
import { afterEach, beforeEach, describe, expect, test } from '@jest/globals';
import { beginToRetire, finishToRetire, makePartition, retireStep } from '../../services/producer/partitions.ts';
import { partitionName, planRound } from '../../services/producer/retention-plan.ts';
import type { Retirement } from '../../services/producer/retention-plan.ts';
import { systemClock } from '../../shared/time/clock.ts';
import { addTask, count, openWorker, rows } from '../support/core.ts';
import { openDatabase } from '../support/database.ts';
import type { TestDatabase } from '../support/database.ts';
import { eventually } from '../support/eventually.ts';
import { openAudit } from '../support/ledger.ts';
import {
  addEnded,
  addLetters,
  DAY,
  daysAgo,
  expectAllAccounted,
  idOf,
  openRetention,
  partitionOfDays,
  partitions,
  settled,
  someRules,
  tableOf,
} from '../support/retention.ts';

let opened: TestDatabase;
let db: TestDatabase['database'];
beforeEach(async () => {
  opened = await openDatabase({ max: 10 });
  db = opened.database;
});
afterEach(async () => await opened[Symbol.asyncDispose]());

const PAST = partitionName(daysAgo(50));

async function metricOf(metrics: { render(): Promise<string> }, name: string): Promise<number> {
  const line = (await metrics.render()).split('\n').find((each) => each.startsWith(`${name} `));
  return Number(line?.split(' ').at(-1));
}

async function expectNoDifference(): Promise<void> {
  await expectAllAccounted(db);
  await using audit = await openAudit(db, { rowsPerStep: 500 });
  await audit.pass();
  expect(await rows(db, 'select hour, type, difference from ledger_audits where difference <> 0')).toEqual([]);
}

describe('partitions', () => {
  test('are made ahead of time, side by side on a grid, and no more than are needed', async () => {
    await using _retention = await openRetention(db);
    await eventually(async () => expect((await partitions(db)).length).toBeGreaterThanOrEqual(2));
    const made = await eventually(async () => {
      const found = await partitions(db);
      expect((found.at(-1)?.upperMs ?? 0) - systemClock.now().getTime()).toBeGreaterThan(10 * DAY);
      return found;
    });
    expect(made.length).toBeLessThanOrEqual(4);
    for (const { upperMs } of made) expect(upperMs % (5 * DAY)).toBe(0);
    expect(made.slice(1).map(({ lowerMs }) => lowerMs)).toEqual(made.slice(0, -1).map(({ upperMs }) => upperMs));
    // What is accepted before the first of them is in the default partition, what comes later in its own.
    expect(await tableOf(db, await addTask(db))).toBe('tasks_default');
    const later = idOf(systemClock.now().getTime() + 6 * DAY);
    await addTask(db, { id: later });
    expect(await tableOf(db, later)).toMatch(/^tasks_from_/);
  });

  test('take along the few tasks that a clock ahead of time has put where they belong', async () => {
    const at = systemClock.now().getTime() + 7 * DAY;
    const ids = await addEnded(db, 20, at);
    await using _retention = await openRetention(db);
    await eventually(async () => expect(await tableOf(db, ids[0] ?? '')).toMatch(/^tasks_from_/));
    expect(await count(db, 'tasks_default', `type = 'test.old'`)).toBe(0);
    await expectAllAccounted(db);
  });

  test('begin behind the tasks that a clock ahead of time has made, where those are many', async () => {
    const at = systemClock.now().getTime() + 7 * DAY;
    await addEnded(db, 700, at);
    expect(await makePartition(db, { lowerMs: at - DAY, upperMs: at + DAY }, 0)).toBe(true);
    expect((await partitions(db)).map(({ lowerMs }) => lowerMs)).toEqual([at + 1]);
    expect(await count(db, 'tasks_default')).toBe(700);
  });

  test('are made beside a large default partition without reading it under a lock', async () => {
    await addEnded(db, 500, daysAgo(3));
    const at = systemClock.now().getTime() + DAY;
    expect(await makePartition(db, { lowerMs: at, upperMs: at + DAY }, 1e12)).toBe(true);
    expect(await rows(db, `select conname from pg_constraint where conname = 'tasks_default_guard'`)).toEqual([]);
    expect(await partitions(db)).toHaveLength(1);
  });
});

describe('a partition whose time is over', () => {
  test('goes as a whole; what has not ended, is not settled or has a longer time stays, with all it had', async () => {
    await partitionOfDays(db, 50, 45);
    const at = daysAgo(47);
    const over = await addEnded(db, 2_300, at);
    const staying = {
      pending: [await addTask(db, { id: idOf(at) })],
      scheduled: [await addTask(db, { id: idOf(at), state: 'scheduled', runAt: `clock_timestamp() + interval '1 d'` })],
      late: await addEnded(db, 3, at, { endedMs: daysAgo(2) }),
      letterOpen: await addEnded(db, 600, at, { state: 'dead' }),
      letterClosed: await addEnded(db, 3, at, { state: 'dead' }),
      longType: await addEnded(db, 3, at, { type: 'test.long' }),
    };
    const deadAndOver = await addEnded(db, 5, at, { state: 'dead' });
    await addLetters(db, staying.letterOpen);
    await addLetters(db, staying.letterClosed, 10);
    await addLetters(db, deadAndOver, 91);
    const withHistory = [over[0], staying.letterOpen[0], deadAndOver[0]];
    for (const id of withHistory) {
      await db.query({
        text: `insert into attempts (task_id, attempt, worker, started_at, finished_at, outcome)
               values ($1, 1, gen_random_uuid(), now(), now(), 'failed')`,
        values: [id],
      });
      await db.query({ text: `insert into origins values ($1, 'x', 'y', '{}', '{}')`, values: [id] });
    }
    const before = await rows(
      db,
      `select * from tasks where id = any($1::uuid[]) order by id`,
      Object.values(staying).flat(),
    );
    const longer = { type: 'test.long', state: 'succeeded', keptMs: 300 * DAY } as const;
    await using retention = await openRetention(db, { tasks: [...someRules().tasks, longer] });
    await settled(db, [PAST]);

    const after = await rows<{ id: string }>(db, 'select * from tasks order by id');
    expect(after).toEqual(before);
    expect(await tableOf(db, staying.pending[0] ?? '')).toMatch(/^tasks_rest_/);
    expect(await rows(db, `select to_regclass($1) as there`, PAST)).toEqual([{ there: null }]);
    for (const table of ['attempts', 'origins']) {
      expect(await rows(db, `select task_id from ${table}`)).toEqual([{ task_id: staying.letterOpen[0] }]);
    }
    await expectNoDifference();
    expect(await metricOf(retention.metrics, 'warren_retired_tasks_total{how="partition"}')).toBe(2_305);
    expect(await metricOf(retention.metrics, 'warren_retired_partitions_total')).toBe(1);
    // The letter goes once its task has gone, those of tasks that stay do not.
    await eventually(async () => expect(await count(db, 'dead_letters')).toBe(603));

    const worker = await openWorker(db);
    const claim = await worker.win(staying.pending[0] ?? '');
    await worker.settles.succeed(claim, undefined);
    await expectNoDifference();
  });

  test('leaves nothing where nothing stays, and later ones are put together with what stayed of earlier ones', async () => {
    await partitionOfDays(db, 50, 45);
    await partitionOfDays(db, 45, 40);
    await partitionOfDays(db, 40, 35);
    await addEnded(db, 10, daysAgo(47));
    const first = await addTask(db, { id: idOf(daysAgo(42)) });
    {
      await using _retention = await openRetention(db, { ripeMs: 38 * DAY, shortestMs: 38 * DAY });
      await settled(db, [PAST, partitionName(daysAgo(45))]);
    }
    const second = await addTask(db, { id: idOf(daysAgo(37)) });
    await using _retention = await openRetention(db);
    await settled(db, [partitionName(daysAgo(40))]);
    const rest = (await partitions(db)).filter(({ name }) => name.startsWith('tasks_rest_'));
    expect(rest).toMatchObject([{ lowerMs: daysAgo(50), upperMs: daysAgo(35) }]);
    expect(await tableOf(db, first)).toBe(rest[0]?.name);
    expect(await tableOf(db, second)).toBe(rest[0]?.name);
    expect(
      await rows(db, `select indexrelid::regclass::text from pg_index where indrelid = $1::regclass`, rest[0]?.name),
    ).toHaveLength(4);
    await expectNoDifference();
  });

  test('stays where too many tasks stay, and what is over in it goes row by row', async () => {
    await partitionOfDays(db, 50, 45);
    await addEnded(db, 900, daysAgo(48));
    const open = await addEnded(db, 1_500, daysAgo(47), { state: 'dead' });
    await addLetters(db, open);
    await using retention = await openRetention(db, {}, { mostKept: 600 });
    await eventually(async () => expect(await count(db, 'tasks')).toBe(1_500), { withinMs: 30_000 });
    expect((await partitions(db)).find(({ name }) => name === PAST)).toMatchObject({ isHeld: true });
    expect(await rows(db, 'select * from task_retirements')).toEqual([]);
    expect(
      await rows(db, `select tgname from pg_trigger where not tgisinternal and tgrelid = $1::regclass`, PAST),
    ).toEqual([]);
    expect(await metricOf(retention.metrics, 'warren_retired_tasks_total{how="row"}')).toBe(900);
    await expectNoDifference();
  });

  test('counts once what ended after its retirement had begun, and was over when it was judged', async () => {
    await partitionOfDays(db, 50, 45);
    await addEnded(db, 100, daysAgo(48));
    const late = await addTask(db, { id: idOf(daysAgo(46)) });
    const { retire } = planRound(someRules(), await partitions(db), systemClock.now().getTime());
    expect(await beginToRetire(db, retire as Retirement)).toBe(true);
    const worker = await openWorker(db);
    await worker.settles.succeed(await worker.win(late), undefined);
    // A month later.
    const text = 'update tasks set finished_at = to_timestamp($2::float8 / 1000) where id = $1';
    await db.query({ text, values: [late, daysAgo(40)] });
    const step = async () => await retireStep(db, someRules(), { mostKept: 1_000, holdMs: 1 });
    while ((await step())?.kind === 'more');
    expect(await finishToRetire(db)).toBe(true);
    expect(await count(db, 'tasks')).toBe(0);
    await expectNoDifference();
  });

  test('a table that changes under a retirement ends it, harms nobody, and it begins anew', async () => {
    await partitionOfDays(db, 50, 45);
    await addEnded(db, 4_000, daysAgo(48));
    const waiting = await addTask(db, { id: idOf(daysAgo(46)) });
    const { retire } = planRound(someRules(), await partitions(db), systemClock.now().getTime());
    expect(await beginToRetire(db, retire as Retirement)).toBe(true);
    const step = async () => await retireStep(db, someRules(), { mostKept: 1_000, holdMs: 1 });
    while ((await step())?.kind === 'more');
    await db.query({ text: 'alter table tasks add column later text' });
    const worker = await openWorker(db);
    await worker.settles.succeed(await worker.win(waiting), undefined);
    expect(await rows(db, 'select is_broken from task_retirements')).toEqual([{ is_broken: true }]);
    await expect(finishToRetire(db)).rejects.toThrow(/is broken/);
    expect(await step()).toMatchObject({ kind: 'broken' });
    expect(await count(db, 'tasks')).toBe(4_001);
    await using _retention = await openRetention(db);
    await settled(db, [PAST]);
    expect(await rows<{ state: string }>(db, 'select state::text from tasks')).toEqual([{ state: 'succeeded' }]);
    await expectNoDifference();
  });
});

test('tasks of the default partition are removed row by row, and a type may have a shorter time', async () => {
  await addEnded(db, 1_200, daysAgo(40));
  await addEnded(db, 700, daysAgo(3), { type: 'test.short' });
  await addEnded(db, 50, daysAgo(3));
  const shorter = { type: 'test.short', state: 'succeeded', keptMs: DAY } as const;
  await using _retention = await openRetention(db, { tasks: [...someRules().tasks, shorter], shortestMs: DAY });
  await eventually(async () => expect(await count(db, 'tasks')).toBe(50), { withinMs: 30_000 });
  await expectNoDifference();
});

test('whoever reads for long does not make others wait: retention gives way and comes back', async () => {
  await partitionOfDays(db, 50, 45);
  await addEnded(db, 100, daysAgo(48));
  const worker = await openWorker(db);
  const reader = await db.checkOut();
  await reader.query({ text: 'begin' });
  await reader.query({ text: 'set local idle_in_transaction_session_timeout = 0' });
  await reader.query({ text: 'select count(*) from tasks' });
  await using retention = await openRetention(db);
  const waits: number[] = [];
  await eventually(
    async () => {
      const began = systemClock.monotonicMs();
      const id = await addTask(db);
      await worker.settles.succeed(await worker.win(id), undefined);
      waits.push(systemClock.monotonicMs() - began);
      expect(await metricOf(retention.metrics, 'warren_retention_postponed_total')).toBeGreaterThan(3);
    },
    { withinMs: 30_000 },
  );
  // Three statements, each behind one wait for a lock at most, on a busy machine.
  expect(Math.max(...waits)).toBeLessThan(1_500);
  expect(await count(db, `"${PAST}"`)).toBe(100);
  await reader.query({ text: 'commit' });
  reader.release(false);
  await settled(db, [PAST]);
  await expectNoDifference();
});

test('what became of instants of schedules goes after its time; what waits or runs stays', async () => {
  await db.query({
    text: `insert into occurrences (schedule_id, at, state, cause, is_open, decided_at)
           select gen_random_uuid(), now() - n * interval '1 day', state, 'due', is_open, now() - n * interval '1 day'
             from generate_series(1, 40) n
             cross join (values ('started', false), ('started', true), ('waiting', false), ('skipped', false)) s (state, is_open)`,
  });
  await using _retention = await openRetention(db);
  await eventually(async () => {
    const left = await rows(
      db,
      'select state, is_open, count(*)::int as n from occurrences group by 1, 2 order by 1, 2',
    );
    expect(left).toEqual([
      { state: 'skipped', is_open: false, n: 29 },
      { state: 'started', is_open: false, n: 29 },
      { state: 'started', is_open: true, n: 40 },
      { state: 'waiting', is_open: false, n: 40 },
    ]);
  });
});
