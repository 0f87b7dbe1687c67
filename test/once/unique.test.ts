/** One task at a time under a key, and requests that come again, however many come at once. */
import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import fc from 'fast-check';
import { createForgetting } from '../../services/producer/forgetting.ts';
import { Submitter } from '../../services/producer/submit.ts';
import { silentLogger } from '../../shared/observability/silent-log.ts';
import type { Acceptance, KeyHold, Submission } from '../../shared/tasks/submission.ts';
import { contestKeys } from '../../services/producer/unique-keys.sql.ts';
import { systemClock } from '../../shared/time/clock.ts';
import { run } from '../../shared/postgres/statement.ts';
import { count, partDeps, readTask, rows } from '../support/core.ts';
import { openDatabase } from '../support/database.ts';
import type { TestDatabase } from '../support/database.ts';
import { eventually } from '../support/eventually.ts';

let opened: TestDatabase;
let db: TestDatabase['database'];
/** Producers that share the database. */
let producers: Submitter[];
beforeAll(async () => {
  opened = await openDatabase();
  db = opened.database;
  producers = [1, 2, 3].map(
    () =>
      new Submitter(
        {
          db,
          log: silentLogger,
          invite: async () => await Promise.resolve(true),
          isOutboxFull: () => false,
          holdReasonOf: () => undefined,
          metrics: partDeps.metrics,
        },
        { maxBatch: 100 },
      ),
  );
});
afterAll(async () => await opened[Symbol.asyncDispose]());

function keyed(
  key: string,
  rule: { hold?: KeyHold; onConflict?: 'return' | 'replace' | 'reject'; maxWaitMs?: number } = {},
  more: Partial<Submission> = {},
): Submission {
  const { hold = { kind: 'unfinished' }, onConflict = 'return', maxWaitMs } = rule;
  return {
    type: 'mail.send',
    queue: 'default',
    priority: 4,
    maxAttempts: 3,
    input: Buffer.from('{}'),
    unique: { key, hold, onConflict, ...(maxWaitMs === undefined ? {} : { maxWaitMs }) },
    ...more,
  };
}

let turn = 0;
/** Each goes to the next producer. */
async function submit(submission: Submission): Promise<Acceptance> {
  turn += 1;
  return await (producers[turn % producers.length] as Submitter).submit(submission);
}

const idOf = (acceptance: Acceptance): string => ('id' in acceptance ? acceptance.id : acceptance.kind);

/** Puts a task into a state by hand: uniqueness only looks at it. */
async function put(id: string, state: string): Promise<void> {
  const isEnd = ['succeeded', 'dead', 'cancelled', 'expired'].includes(state);
  await db.query({
    text: `update tasks set state = $2::task_state, run_at = now(), claim_id = id, worker = id, started_at = now(),
                  finished_at = case when $3 then now() end where id = $1`,
    values: [id, state, String(isEnd)],
  });
}

const STATES = ['pending', 'scheduled', 'blocked', 'running', 'retrying', 'succeeded', 'dead', 'cancelled', 'expired'];
const WAITING = ['pending', 'scheduled', 'blocked', 'retrying'];

describe('a key', () => {
  test.each(STATES)('is held or free as the rule of its holder says, where that is %s', async (state) => {
    for (const [kind, isHeld] of [
      ['waiting', WAITING.includes(state)],
      ['unfinished', WAITING.includes(state) || state === 'running'],
    ] as const) {
      const key = `${kind}-${state}`;
      const first = idOf(await submit(keyed(key, { hold: { kind } })));
      await put(first, state);
      expect(await submit(keyed(key, { onConflict: 'reject' }))).toMatchObject(
        isHeld ? { kind: 'refused', fault: { code: 'unique-conflict' } } : { kind: 'accepted' },
      );
      const second = await submit(keyed(key));
      expect([second.kind, idOf(second) === first]).toEqual(['existing', isHeld]);
    }
  });

  test('within a window is held whatever becomes of its task, until the window is over', async () => {
    const hold: KeyHold = { kind: 'window', withinMs: 600_000 };
    const first = idOf(await submit(keyed('window', { hold })));
    await put(first, 'succeeded');
    expect(await submit(keyed('window', { hold }))).toEqual({ kind: 'existing', id: first });
    await db.query({ text: `update unique_keys set until = now() - interval '1 ms' where key = 'window'` });
    expect((await submit(keyed('window', { hold }))).kind).toBe('accepted');
  });

  test('belongs to its task type', async () => {
    expect((await submit(keyed('typed'))).kind).toBe('accepted');
    expect((await submit(keyed('typed', {}, { type: 'report.csv' }))).kind).toBe('accepted');
  });

  test('is taken by one of 50 clients at once, and the others are told whose it is', async () => {
    for (const onConflict of ['return', 'reject'] as const) {
      const key = `fifty-${onConflict}`;
      const all = await Promise.all(Array.from({ length: 50 }, async () => await submit(keyed(key, { onConflict }))));
      const accepted = all.filter(({ kind }) => kind === 'accepted');
      expect(accepted).toHaveLength(1);
      expect(all.filter(({ kind }) => kind === (onConflict === 'return' ? 'existing' : 'refused'))).toHaveLength(49);
      expect(new Set(all.map(idOf)).size).toBe(onConflict === 'return' ? 1 : 2);
      expect(await count(db, 'unique_keys', `key = '${key}'`)).toBe(1);
    }
  });

  test('that an ended task held is taken over by one of 50 clients at once', async () => {
    for (let round = 0; round < 5; round += 1) {
      await put(idOf(await submit(keyed('over'))), 'succeeded');
      const all = await Promise.all(Array.from({ length: 50 }, async () => await submit(keyed('over'))));
      expect(all.filter(({ kind }) => kind === 'accepted')).toHaveLength(1);
      expect(new Set(all.map(idOf)).size).toBe(1);
      await put(idOf(all[0] as Acceptance), 'cancelled');
    }
  });

  test('of many in one batch costs the others nothing: they are accepted', async () => {
    const all = await Promise.all(
      Array.from(
        { length: 200 },
        async (_each, n) => await submit(n % 2 === 0 ? keyed('hot') : { ...keyed(`cold-${n}`) }),
      ),
    );
    expect(all.filter(({ kind }) => kind === 'accepted')).toHaveLength(101);
  });

  test('taken for a message that turns out to be known is given back', async () => {
    const external = { publisher: 'shop', messageId: 'known', digest: Buffer.from('a') };
    const first = await submit(keyed('first', {}, { external }));
    // The same message under another key: the key was taken before the message id was found known.
    expect(await submit(keyed('second', {}, { external }))).toMatchObject({ kind: 'duplicate', id: idOf(first) });
    expect(await count(db, 'unique_keys', `key = 'second'`)).toBe(0);
    expect((await submit(keyed('second'))).kind).toBe('accepted');
  });

  test('taken by an acceptance that a crash cut off is free', async () => {
    for (const hold of ['unfinished', 'window']) {
      await db.query({
        text: `insert into unique_keys (type, key, task_id, hold, until)
               values ('mail.send', $1, gen_random_uuid(), $2, case when $2 = 'window' then now() + interval '1 day' end)`,
        values: [`crash-${hold}`, hold],
      });
      expect((await submit(keyed(`crash-${hold}`))).kind).toBe('accepted');
    }
  });

  test('is swept once nobody holds it, and not before', async () => {
    const held = idOf(await submit(keyed('sweep-held')));
    await put(idOf(await submit(keyed('sweep-free'))), 'succeeded');
    const forgetting = createForgetting({ db, clock: systemClock, log: silentLogger, random: () => 0.5 });
    await forgetting.start();
    await eventually(async () => expect(await count(db, 'unique_keys', `key = 'sweep-free'`)).toBe(0));
    await forgetting.stop(systemClock.monotonicMs() + 5_000);
    expect(await rows(db, `select task_id from unique_keys where key = 'sweep-held'`)).toEqual([{ task_id: held }]);
  });
});

describe('a submission that replaces', () => {
  const replacing = (key: string, n: number, more: Partial<Submission> = {}): Submission =>
    keyed(key, { hold: { kind: 'waiting' }, onConflict: 'replace' }, { input: Buffer.from(`{"n":${n}}`), ...more });

  test('makes the task that waits into what it is, and what was invited before loses', async () => {
    const first = idOf(await submit(replacing('swap', 1, { priority: 2, deadline: new Date('2099-01-01T00:00:00Z') })));
    const later = { priority: 7, delayMs: 60_000, concurrencyKey: 'c' };
    expect(await submit(replacing('swap', 2, later))).toEqual({ kind: 'replaced', id: first });
    const row = await readTask(db, first);
    expect(row).toMatchObject({ state: 'scheduled', priority: 7, generation: 2, deadline: null, invited_at: null });
    expect(row.input.toString()).toBe('{"n":2}');
    expect(await submit(replacing('swap', 3))).toEqual({ kind: 'replaced', id: first });
    expect(await readTask(db, first)).toMatchObject({ state: 'pending', generation: 3, run_at: null });
    expect(await count(db, 'due', `task_id = '${first}'`)).toBe(0);
    expect(await count(db, 'audit', `target = '${first}'`)).toBe(0); // a key may see many a second
  });

  test('makes a task of its own once the one before has started, and is refused where that holds the key still', async () => {
    const first = idOf(await submit(replacing('started', 1)));
    await put(first, 'running');
    const second = await submit(replacing('started', 2));
    expect([second.kind, idOf(second) === first]).toEqual(['accepted', false]);
    const held = idOf(await submit(keyed('unfinished-replace')));
    await put(held, 'running');
    const refused = await submit(keyed('unfinished-replace', { onConflict: 'replace' }));
    expect(refused).toMatchObject({ kind: 'refused', fault: { code: 'unique-conflict' } });
  });

  test('from 50 clients at once leaves one task with the input of one of them', async () => {
    const all = await Promise.all(Array.from({ length: 50 }, async (_each, n) => await submit(replacing('fifty', n))));
    expect(all.filter(({ kind }) => kind === 'accepted')).toHaveLength(1);
    expect(all.filter(({ kind }) => kind === 'replaced')).toHaveLength(49);
    expect(new Set(all.map(idOf)).size).toBe(1);
    expect((await readTask(db, idOf(all[0] as Acceptance))).input.toString()).toMatch(/^\{"n":\d+\}$/);
  });

  test('puts a task off, but not for longer than was said', async () => {
    const rule = { hold: { kind: 'waiting' } as const, onConflict: 'replace' as const, maxWaitMs: 60_000 };
    const first = await submit(keyed('put-off', rule, { delayMs: 50_000 }));
    const id = idOf(first);
    await db.query({
      text: `update tasks set accepted_at = accepted_at - interval '30 s' where id = $1`,
      values: [id],
    });
    expect(await submit(keyed('put-off', rule, { delayMs: 50_000 }))).toEqual({ kind: 'replaced', id });
    const { run_at: runAt } = await readTask(db, id);
    const waitMs = (runAt?.getTime() ?? 0) - systemClock.now().getTime();
    expect(waitMs).toBeGreaterThan(15_000);
    expect(waitMs).toBeLessThanOrEqual(30_000);
    await db.query({
      text: `update tasks set accepted_at = accepted_at - interval '60 s' where id = $1`,
      values: [id],
    });
    await submit(keyed('put-off', rule, { delayMs: 50_000 }));
    expect(await readTask(db, id)).toMatchObject({ state: 'pending', run_at: null });
  });
});

describe('a submission that comes again', () => {
  test('is answered as the first time, also where that was another task', async () => {
    const holder = idOf(await submit(keyed('asked')));
    for (const id of [
      { external: { publisher: 'shop', messageId: 'm-asked', digest: Buffer.from('d') } },
      { publisher: 'ann', idempotency: { key: 'k-asked', digest: Buffer.from('d') } },
    ]) {
      expect(await submit(keyed('asked', {}, id))).toEqual({ kind: 'existing', id: holder });
      await put(holder, 'succeeded');
      expect(await submit(keyed('asked', {}, id))).toMatchObject({ kind: 'duplicate', id: holder });
      await put(holder, 'pending');
    }
  });

  test('makes one task, of 50 at once under one idempotency key', async () => {
    const again: Partial<Submission> = { publisher: 'ann', idempotency: { key: 'k-50', digest: Buffer.from('d') } };
    const { unique: _none, ...plain } = keyed('');
    const all = await Promise.all(Array.from({ length: 50 }, async () => await submit({ ...plain, ...again })));
    expect(all.filter(({ kind }) => kind === 'accepted')).toHaveLength(1);
    expect(all.filter(({ kind }) => kind === 'duplicate')).toHaveLength(49);
    expect(new Set(all.map(idOf)).size).toBe(1);
    const other = { ...plain, publisher: 'ann', idempotency: { key: 'k-50', digest: Buffer.from('e') } };
    expect(await submit(other)).toMatchObject({ kind: 'refused', fault: { code: 'idempotency-key-reused' } });
    expect((await submit({ ...other, publisher: 'bob' })).kind).toBe('accepted');
  });

  test('may come anew after seven days', async () => {
    const { unique: _none, ...plain } = keyed('');
    const again = { ...plain, publisher: 'ann', idempotency: { key: 'k-old', digest: Buffer.from('d') } };
    const first = await submit(again);
    await db.query({
      text: `update idempotency_keys set accepted_at = now() - interval '7 days 1 s' where key = 'k-old'`,
    });
    const second = await submit(again);
    expect([second.kind, idOf(second) === idOf(first)]).toEqual(['accepted', false]);
  });
});

test('keys behave as a model of them does, whatever is submitted and whatever becomes of the tasks', async () => {
  const key = fc.constantFrom('a', 'b');
  const hold = fc.constantFrom<KeyHold>(
    { kind: 'waiting' },
    { kind: 'unfinished' },
    { kind: 'window', withinMs: 3_600_000 },
  );
  const step = fc.oneof(
    fc.record({
      key,
      hold,
      onConflict: fc.constantFrom('return' as const, 'reject' as const),
      clients: fc.integer({ min: 1, max: 4 }),
    }),
    fc.record({ key, becomes: fc.constantFrom(...STATES) }),
  );
  let run_ = 0;
  await fc.assert(
    fc.asyncProperty(fc.array(step, { maxLength: 12 }), async (steps) => {
      run_ += 1;
      const holders = new Map<string, { id: string; hold: KeyHold; state: string }>();
      const last = new Map<string, string>();
      const isHeld = (name: string): boolean => {
        const holder = holders.get(name);
        if (holder === undefined) return false;
        if (holder.hold.kind === 'window' || WAITING.includes(holder.state)) return true;
        return holder.hold.kind === 'unfinished' && holder.state === 'running';
      };
      for (const each of steps) {
        const name = `model-${run_}-${each.key}`;
        if ('becomes' in each) {
          const id = last.get(name);
          if (id === undefined) continue;
          await put(id, each.becomes);
          const holder = holders.get(name);
          if (holder?.id === id) holders.set(name, { ...holder, state: each.becomes });
          continue;
        }
        const wasHeld = isHeld(name);
        const answers = await Promise.all(
          Array.from({ length: each.clients }, async () => await submit(keyed(name, each))),
        );
        const accepted = answers.filter(({ kind }) => kind === 'accepted');
        expect(accepted).toHaveLength(wasHeld ? 0 : 1);
        const [made] = accepted;
        if (made !== undefined) {
          holders.set(name, { id: idOf(made), hold: each.hold, state: 'pending' });
          last.set(name, idOf(made));
        }
        const others = answers.filter((answer) => answer !== made);
        const told =
          each.onConflict === 'return'
            ? { kind: 'existing', id: holders.get(name)?.id }
            : { kind: 'refused', fault: { code: 'unique-conflict' } };
        expect(others).toMatchObject(others.map(() => told));
        const [row] = await run(db, contestKeys, ['mail.send'], [name]);
        expect(row).toMatchObject({ task_id: holders.get(name)?.id, is_held: true });
      }
    }),
    { numRuns: 30 },
  );
});
