/** A lease lapses only over time in which Postgres could be reached. */
import { afterAll, beforeAll, expect, test } from '@jest/globals';
import { addLease, count } from '../support/core.ts';
import { openDatabase } from '../support/database.ts';
import type { TestDatabase } from '../support/database.ts';
import { eventually } from '../support/eventually.ts';
import { openReaper } from '../support/reaper.ts';

const LAPSE_MS = 2_000;

let opened: TestDatabase;
let db: TestDatabase['database'];
beforeAll(async () => {
  opened = await openDatabase();
  db = opened.database;
});
afterAll(async () => await opened[Symbol.asyncDispose]());

const aSilentLease = async (): Promise<string> =>
  `worker = '${await addLease(db, { renewedAt: `clock_timestamp() - interval '1 h'` })}'`;

test('a reaper that has just started judges nobody for one lease time', async () => {
  const silent = await aSilentLease();
  await using reaper = await openReaper(db, LAPSE_MS);
  await reaper.wait(LAPSE_MS * 0.7);
  expect(await count(db, 'leases', silent)).toBe(1);
  await reaper.wait(LAPSE_MS);
  await eventually(async () => expect(await count(db, 'leases', silent)).toBe(0));
});

test('after a gap in its own rounds it judges nobody for one lease time', async () => {
  await using reaper = await openReaper(db, LAPSE_MS);
  await reaper.wait(LAPSE_MS * 2);
  reaper.jump(LAPSE_MS * 0.8); // it was stopped, or the machine slept
  await reaper.rounds();
  const silent = await aSilentLease();
  await reaper.wait(LAPSE_MS * 0.7);
  expect(await count(db, 'leases', silent)).toBe(1);
  await reaper.wait(LAPSE_MS);
  await eventually(async () => expect(await count(db, 'leases', silent)).toBe(0));
});

test('an outage of Postgres is a gap', async () => {
  await using reaper = await openReaper(db, LAPSE_MS);
  await reaper.wait(LAPSE_MS * 2);
  let refused = 0;
  reaper.db.fault = (name) => {
    if (name !== 'read_uptime') return undefined;
    refused += 1;
    return 'refuse';
  };
  await eventually(() => expect(refused).toBeGreaterThan(0));
  reaper.jump(LAPSE_MS * 0.8);
  const silent = await aSilentLease();
  reaper.db.fault = () => undefined;
  await reaper.rounds();
  await reaper.wait(LAPSE_MS * 0.7);
  expect(await count(db, 'leases', silent)).toBe(1);
  await reaper.wait(LAPSE_MS);
  await eventually(async () => expect(await count(db, 'leases', silent)).toBe(0));
});

test('nobody is judged until Postgres has been up for one lease time', async () => {
  const silent = await aSilentLease();
  // Longer than any server under test has been up.
  await using reaper = await openReaper(db, 1e12);
  await reaper.wait(2e12);
  expect(await count(db, 'leases', silent)).toBe(1);
});

test('a lease that was renewed within its time is kept', async () => {
  const living = `worker = '${await addLease(db, { renewedAt: `clock_timestamp() - interval '1 s'` })}'`;
  await using reaper = await openReaper(db, 60_000);
  await reaper.wait(120_000);
  expect(await count(db, 'leases', living)).toBe(1);
});

test('rounds that are configured further apart than a lease lasts still judge', async () => {
  const silent = await aSilentLease();
  await using _reaper = await openReaper(db, 400, 60_000);
  await eventually(async () => expect(await count(db, 'leases', silent)).toBe(0));
});
