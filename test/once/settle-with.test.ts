/** Settling in a transaction of the handler's own: its data and the task's success are committed together, or neither. */
import { randomUUID } from 'node:crypto';
import { afterAll, beforeAll, expect, test } from '@jest/globals';
import { settleWith } from '../../services/worker/settle-with.ts';
import type { Claim } from '../../services/worker/claims.ts';
import { aHandBack, aVerdict, addTask, count, openWorker, readTask, rows } from '../support/core.ts';
import type { TestWorker } from '../support/core.ts';
import { openDatabase, openEmptyDatabase } from '../support/database.ts';
import type { TestDatabase } from '../support/database.ts';
import { eventually } from '../support/eventually.ts';
import { openClient, openPool } from '../support/pg-client.ts';

let opened: TestDatabase;
let db: TestDatabase['database'];
let worker: TestWorker;
beforeAll(async () => {
  opened = await openDatabase();
  db = opened.database;
  await db.query({ text: 'create table public.effects (task_id uuid not null)' });
  worker = await openWorker(db);
});
afterAll(async () => await opened[Symbol.asyncDispose]());

const RESULT = Buffer.from('{"n":1}');
const effects = async (claim: Claim): Promise<number> =>
  await count(db, 'public.effects', `task_id = '${claim.taskId}'`);
const won = async (): Promise<Claim> => await worker.win(await addTask(db));

test('invariant 2: what a handler wrote and the success of its task are there after the commit, and not before', async () => {
  await using client = await openClient(opened.url);
  const claim = await won();
  await client.query('begin');
  await client.query('insert into effects values ($1)', [claim.taskId]);
  await settleWith(client, claim, RESULT, 'warren');
  await client.query('insert into effects values ($1)', [claim.taskId]); // its search path is its own again
  expect(await readTask(db, claim.taskId)).toMatchObject({ state: 'running' });
  expect(await effects(claim)).toBe(0);
  await client.query('commit');

  expect(await readTask(db, claim.taskId)).toMatchObject({ state: 'succeeded', attempt: 1, result: RESULT });
  expect(await effects(claim)).toBe(2);
  const books = await rows<{ entry: string }>(
    db,
    'select entry from ledger_entries where hour = task_hour($1) and tasks > 0 and type = $2',
    claim.taskId,
    'test.noop',
  );
  expect(books.map(({ entry }) => entry)).toContain('succeeded');
  // The worker settles afterwards by whatever the handler did, and finds it done.
  expect(await worker.settles.succeed(claim, undefined)).toBe('succeeded');
  expect(await worker.settles.settle(claim, aVerdict())).toBe('succeeded');
  expect(await count(db, 'attempts', `task_id = '${claim.taskId}'`)).toBe(0);
  await eventually(async () => {
    await worker.settles.forgetFinished();
    expect(await count(db, 'claims', `id = '${claim.claimId}'`)).toBe(0);
  });
});

test('a transaction that is rolled back after the settle leaves the attempt to be settled as it ends', async () => {
  await using client = await openClient(opened.url);
  const claim = await won();
  await client.query('begin');
  await client.query('insert into effects values ($1)', [claim.taskId]);
  await settleWith(client, claim, RESULT, 'warren');
  await client.query('rollback');
  await worker.settles.whenDecided(claim);
  expect(await worker.settles.settle(claim, aVerdict())).toBe('retrying');
  expect(await effects(claim)).toBe(0);
});

test('invariant 2: after a lost claim nothing of the transaction can be committed, not even by a handler that swallows it', async () => {
  await using client = await openClient(opened.url);
  const claim = await won();
  await worker.settles.settle(claim, aHandBack());
  await worker.win(claim.taskId);
  await client.query('begin');
  await client.query('insert into effects values ($1)', [claim.taskId]);
  await expect(settleWith(client, claim, RESULT, 'warren')).rejects.toMatchObject({ code: 'claim-lost' });
  const { command } = await client.query('commit');
  expect(command).toBe('ROLLBACK');
  expect(await effects(claim)).toBe(0);
  expect(await readTask(db, claim.taskId)).toMatchObject({ state: 'running', attempt: 2 });
});

test('an attempt settles once: a second time spoils the transaction', async () => {
  await using client = await openClient(opened.url);
  const claim = await won();
  await client.query('begin');
  await settleWith(client, claim, RESULT, 'warren');
  await expect(settleWith(client, claim, RESULT, 'warren')).rejects.toMatchObject({
    code: 'settle-refused',
    facts: { reason: 'the attempt is settled already' },
  });
  expect((await client.query('commit')).command).toBe('ROLLBACK');
  expect(await readTask(db, claim.taskId)).toMatchObject({ state: 'running' });
});

test('a client without an open transaction is refused, as are a pool and a transaction that has failed', async () => {
  await using client = await openClient(opened.url);
  await using pool = openPool(opened.url);
  const claim = await won();
  for (const wrong of [client, pool]) {
    await expect(settleWith(wrong, claim, RESULT, 'warren')).rejects.toMatchObject({
      code: 'settle-refused',
      facts: { reason: expect.stringContaining('no transaction is open') },
    });
  }
  await client.query('begin');
  await expect(client.query('select nothing')).rejects.toMatchObject({ code: '42703' });
  await expect(settleWith(client, claim, RESULT, 'warren')).rejects.toMatchObject({
    code: 'settle-refused',
    facts: { reason: expect.stringContaining('already failed') },
  });
  await client.query('rollback');
  await client.query('begin read only');
  await expect(settleWith(client, claim, RESULT, 'warren')).rejects.toMatchObject({
    code: 'settle-refused',
    facts: { reason: expect.stringContaining('read-only') },
  });
  await client.query('rollback');
  expect(await readTask(db, claim.taskId)).toMatchObject({ state: 'running' });
});

test('a client of another database is refused, whether or not Warren is there too', async () => {
  const claim = await won();
  await using empty = await openEmptyDatabase();
  await using stranger = await openClient(empty.url);
  await stranger.query('begin');
  await expect(settleWith(stranger, claim, RESULT, 'warren')).rejects.toMatchObject({
    code: 'settle-refused',
    facts: { reason: expect.stringContaining('are not in the database') },
  });
  await using twin = await openDatabase();
  await using client = await openClient(twin.url);
  await client.query('begin');
  await expect(settleWith(client, claim, RESULT, 'warren')).rejects.toMatchObject({
    code: 'settle-refused',
    facts: { reason: expect.stringContaining('is not in the database') },
  });
  expect((await client.query('commit')).command).toBe('ROLLBACK');
});

test('a role without rights on the tables is told so, and needs no more than are named', async () => {
  const role = `r${randomUUID().replaceAll('-', '')}`;
  await db.query({ text: `create role ${role}` });
  await using client = await openClient(opened.url);
  const claim = await won();
  await client.query(`set role ${role}`);
  await client.query('begin');
  await expect(settleWith(client, claim, RESULT, 'warren')).rejects.toMatchObject({ code: 'settle-refused' });
  await client.query('rollback');
  for (const right of [
    'usage on schema warren',
    'select, update on warren.tasks',
    'select, insert, update on warren.ledger_entries',
    'select, delete on warren.claims',
  ]) {
    await db.query({ text: `grant ${right} to ${role}` });
  }
  await client.query('begin');
  await settleWith(client, claim, RESULT, 'warren');
  await client.query('commit');
  expect(await readTask(db, claim.taskId)).toMatchObject({ state: 'succeeded' });
  await db.query({ text: `drop owned by ${role}` });
  await db.query({ text: `drop role ${role}` });
});

test('while the transaction is open the worker waits without holding up its other settles', async () => {
  await using client = await openClient(opened.url);
  const claim = await won();
  const other = await won();
  await client.query('begin');
  await settleWith(client, claim, RESULT, 'warren');
  let isDecided = false;
  const decided = worker.settles.whenDecided(claim).then(() => (isDecided = true));
  expect(await worker.settles.succeed(other, undefined)).toBe('succeeded');
  expect(isDecided).toBe(false);
  await client.query('commit');
  await decided;
  expect(await worker.settles.succeed(claim, undefined)).toBe('succeeded');
  expect((await readTask(db, claim.taskId)).result).toEqual(RESULT);
});

test('a transaction that is forgotten is ended by Postgres, since it holds the row of the task', async () => {
  await using client = await openClient(opened.url);
  const claim = await won();
  await client.query('begin');
  await settleWith(client, claim, RESULT, 'warren');
  const [bound] = (await client.query('show idle_in_transaction_session_timeout')).rows as [Record<string, string>];
  expect(bound).toEqual({ idle_in_transaction_session_timeout: '10s' });
  await client.query('rollback');
  const [after] = (await client.query('show idle_in_transaction_session_timeout')).rows as [Record<string, string>];
  expect(after).toEqual({ idle_in_transaction_session_timeout: '0' });
  await client.query(`set idle_in_transaction_session_timeout = '1s'`);
  await client.query('begin');
  await settleWith(client, claim, RESULT, 'warren');
  await worker.settles.whenDecided(claim); // its own bound is shorter, and stays
  expect(await worker.settles.settle(claim, aVerdict())).toBe('retrying');
});

test('invariant 2: of 50 attempts that settle in transactions of their own while others settle them too, each ends once', async () => {
  await using pool = openPool(opened.url);
  const claims: Claim[] = [];
  for (let index = 0; index < 50; index += 1) claims.push(await won());
  const outcomes = await Promise.all(
    claims.map(async (claim, index) => {
      const client = await pool.connect();
      try {
        await client.query('begin');
        await client.query('insert into effects values ($1)', [claim.taskId]);
        // Every second one is cut off meanwhile.
        const cut = index % 2 === 0 ? undefined : worker.settles.settle(claim, aVerdict());
        await settleWith(client, claim, RESULT, 'warren');
        await client.query('commit');
        await cut;
        return 'committed';
      } catch {
        await client.query('rollback');
        return 'rolled back';
      } finally {
        client.release();
      }
    }),
  );
  for (const [index, claim] of claims.entries()) {
    const { state } = await readTask(db, claim.taskId);
    const isCommitted = outcomes[index] === 'committed';
    expect({ index, state, effects: await effects(claim) }).toEqual({
      index,
      state: isCommitted ? 'succeeded' : 'retrying',
      effects: Number(isCommitted),
    });
  }
  expect(outcomes.filter((outcome) => outcome === 'committed').length).toBeGreaterThanOrEqual(25);
});
