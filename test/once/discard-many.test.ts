/** Discarding many letters: what is closed, what is recorded, and what is left where it is cut off. */
import { afterAll, beforeAll, beforeEach, describe, expect, test } from '@jest/globals';
import { discardMany } from '../../services/dead-letter-handler/discarder.ts';
import { addDiscardRoutes } from '../../services/dead-letter-handler/http/discards.routes.ts';
import { parseLetterFilter } from '../../services/dead-letter-handler/letter-filter.ts';
import { WarrenError } from '../../shared/errors/warren-error.ts';
import { HttpServer } from '../../shared/http/server.ts';
import { createMetrics } from '../../shared/observability/metrics.ts';
import { silentLogger } from '../../shared/observability/silent-log.ts';
import type { Transactional } from '../../shared/postgres/transaction.ts';
import { systemClock } from '../../shared/time/clock.ts';
import { newId } from '../../shared/tasks/ids.ts';
import { rows } from '../support/core.ts';
import { openDatabase } from '../support/database.ts';
import type { TestDatabase } from '../support/database.ts';
import { addLetter } from '../support/letters.ts';
import { SERVICE_PLANS } from '../support/task-api.ts';

const TOKENS = [
  { name: 'vera', role: 'viewer', token: 'viewer-token-0123456789abcdef' },
  { name: 'olga', role: 'operator', token: 'operator-token-0123456789abcdef' },
] as const;
const metrics = createMetrics({ service: 'test', version: '', withProcess: false });

let opened: TestDatabase;
let server: HttpServer;
/** When the test began: the audit is never emptied. */
let since: Date;
beforeAll(async () => {
  opened = await openDatabase({ settings: SERVICE_PLANS });
  server = new HttpServer(
    {
      clock: systemClock,
      log: silentLogger,
      checks: [],
      metrics,
      addRoutes: (app) => addDiscardRoutes(app, { db: opened.database, metrics }),
    },
    { host: '127.0.0.1', port: 0, tokens: [...TOKENS], bodyBytes: 10_000, title: 'Test', version: '1' },
  );
  await server.start();
});
afterAll(async () => {
  await server.stop(systemClock.monotonicMs() + 1_000);
  await opened[Symbol.asyncDispose]();
});
beforeEach(async () => {
  await opened.database.query({ text: 'truncate dead_letters, letter_facts' });
  [{ at: since }] = (await rows<{ at: Date }>(opened.database, 'select clock_timestamp() as at')) as [{ at: Date }];
});

interface Answer {
  readonly status: number;
  readonly json: Record<string, unknown>;
}

async function discard(body: unknown, as: (typeof TOKENS)[number] = TOKENS[1]): Promise<Answer> {
  const response = await fetch(`${server.url ?? ''}/v1/dead-letters/discard`, {
    method: 'POST',
    headers: { 'content-type': 'application/json', authorization: `Bearer ${as.token}` },
    body: JSON.stringify(body),
  });
  return { status: response.status, json: (await response.json()) as Record<string, unknown> };
}

async function statesOf(): Promise<Readonly<Record<string, number>>> {
  const found = await rows<{ state: string; count: number }>(
    opened.database,
    'select state, count(*)::int4 as count from dead_letters group by state',
  );
  return Object.fromEntries(found.map(({ state, count }) => [state, count]));
}

async function auditOf(action: string): Promise<readonly { readonly id: string; readonly detail: unknown }[]> {
  return await rows(
    opened.database,
    'select id, actor, role, target, detail from audit where action = $1 and at >= $2 order by id',
    action,
    since,
  );
}

async function addMany(count: number): Promise<void> {
  await opened.database.query({
    text: `insert into dead_letters (id, kind, task_id, reason, type)
           select uuid_v7(), 'task', gen_random_uuid(), 'many', 'test.noop' from generate_series(1, ${count})`,
  });
}

describe('a discard by filter', () => {
  test('closes each open letter that fits, with one line for the whole and one for each letter', async () => {
    await addMany(1_203);
    const other = await addLetter(opened.database, { reason: 'timeout' });
    await addLetter(opened.database, { reason: 'many', state: 'replayed' });
    const { status, json } = await discard({ filter: 'reason:many state:all', reason: 'of a test' });
    expect({ status, json }).toMatchObject({
      status: 200,
      json: { dryRun: false, selected: 1_203, discarded: 1_203, isPartial: false },
    });
    expect(await statesOf()).toEqual({ discarded: 1_203, open: 1, replayed: 1 });
    const [left] = await rows<{ id: string }>(opened.database, `select id from dead_letters where state = 'open'`);
    expect(left?.id).toBe(other);
    expect(await auditOf('dead-letters.discard')).toEqual([
      {
        id: json['operation'],
        actor: 'olga',
        role: 'operator',
        target: json['operation'],
        detail: { filter: 'reason:many state:all', reason: 'of a test', selected: 1_203 },
      },
    ]);
    const lines = await auditOf('dead-letter.discard');
    expect(lines).toHaveLength(1_203);
    expect(lines[0]?.detail).toMatchObject({ kind: 'task', reason: 'of a test', operation: json['operation'] });
    const [letter] = await rows(
      opened.database,
      `select closed_by, close_reason, closed_at is not null as closed from dead_letters where state = 'discarded' limit 1`,
    );
    expect(letter).toEqual({ closed_by: 'olga', close_reason: 'of a test', closed: true });
    expect((await discard({ filter: 'reason:many', reason: 'again' })).json).toMatchObject({
      selected: 0,
      discarded: 0,
    });
  });

  test('with dryRun says how many, shows ten, and changes nothing', async () => {
    await addMany(25);
    const { json } = await discard({ filter: 'reason:many', dryRun: true });
    expect(json).toMatchObject({ dryRun: true, selected: 25, isPartial: false });
    expect(json['samples']).toHaveLength(10);
    expect(await statesOf()).toEqual({ open: 25 });
    expect(await auditOf('dead-letters.discard')).toEqual([]);
  });

  test.each([[{}], [{ filter: '' }], [{ filter: ' ' }], [{ filter: 'state:open' }], [{ filter: 'type:*' }]])(
    '%j would select everything: that must be said',
    async (selection) => {
      await addMany(3);
      expect(await discard({ ...selection, reason: 'x' })).toMatchObject({
        status: 400,
        json: { field: 'filter', reason: expect.stringMatching(/add "all": true/) as unknown },
      });
      expect(await statesOf()).toEqual({ open: 3 });
      expect((await discard({ ...selection, all: true, reason: 'x' })).json).toMatchObject({ discarded: 3 });
    },
  );
});

test('a discard by ids closes those that are open, and leaves the others', async () => {
  const [first, second, closed] = [
    await addLetter(opened.database),
    await addLetter(opened.database),
    await addLetter(opened.database, { state: 'replayed' }),
  ];
  const ids = [first, closed, newId(), first.toUpperCase()];
  expect((await discard({ ids, reason: 'x' })).json).toMatchObject({ selected: 1, discarded: 1 });
  expect(await statesOf()).toEqual({ discarded: 1, open: 1, replayed: 1 });
  expect((await auditOf('dead-letters.discard'))[0]?.detail).toMatchObject({ ids: 3 });
  expect((await discard({ ids: [second], reason: 'x' })).json).toMatchObject({ discarded: 1 });
});

test.each([
  [{ filter: 'type:a' }, 'reason'],
  [{ filter: 'type:a', reason: '' }, 'reason'],
  [{ filter: 'x:y', reason: 'x' }, 'filter'],
  [{ filter: 'type:a', ids: [newId()], reason: 'x' }, 'ids'],
  [{ ids: [], reason: 'x' }, 'ids'],
  [{ ids: ['7'], reason: 'x' }, 'ids[0]'],
  [{ filter: 'type:a', reason: 'x', force: true }, 'force'],
])('%j is refused by the field at fault', async (body, field) => {
  expect(await discard(body)).toMatchObject({ status: 400, json: { field } });
  expect(await auditOf('dead-letters.discard')).toEqual([]);
});

test('a viewer discards nothing', async () => {
  await addMany(1);
  expect(await discard({ filter: 'reason:many', reason: 'x' }, TOKENS[0])).toMatchObject({
    status: 403,
    json: { type: 'role-insufficient' },
  });
  expect(await statesOf()).toEqual({ open: 1 });
});

describe('a discard that is cut off', () => {
  const request = {
    filter: parseLetterFilter('reason:many'),
    asked: { filter: 'reason:many' },
    actor: { name: 'olga', role: 'operator' },
    reason: 'x',
  } as const;

  /** A database that is away from the `failsFrom`th statement of this name on, and whose clock runs by `stepMs` a look. */
  function cutOff(failsFrom: number, stepMs = 0): Transactional {
    const { database } = opened;
    let seen = 0;
    let ms = 0;
    const clock = { ...database.deps.clock, monotonicMs: () => (ms += stepMs) };
    return {
      deps: { ...database.deps, clock },
      checkOut: async () => await database.checkOut(),
      query: async (query) => {
        if (query.name === 'discard_letters' && (seen += 1) >= failsFrom) throw new WarrenError('database-unavailable');
        return await database.query(query);
      },
    };
  }

  test('leaves each letter open, or closed with its line, and the same request closes the rest', async () => {
    await addMany(1_700);
    await expect(discardMany({ db: cutOff(3), metrics }, request)).rejects.toThrow(
      expect.objectContaining({ code: 'database-unavailable' }),
    );
    expect(await statesOf()).toEqual({ discarded: 1_000, open: 700 });
    expect(await auditOf('dead-letter.discard')).toHaveLength(1_000);
    expect(await auditOf('dead-letters.discard')).toHaveLength(1);
    expect(await discardMany({ db: opened.database, metrics }, request)).toMatchObject({
      selected: 700,
      discarded: 700,
    });
    expect(await auditOf('dead-letter.discard')).toHaveLength(1_700);
  });

  test('by time says so, and was at work until then', async () => {
    await addMany(1_700);
    const slow = cutOff(Number.POSITIVE_INFINITY, 15_000);
    expect(await discardMany({ db: slow, metrics }, request)).toMatchObject({
      selected: 1_700,
      discarded: 1_000,
      isPartial: true,
    });
  });

  test('two at once close each letter once', async () => {
    await addMany(2_100);
    const both = await Promise.all([
      discardMany({ db: opened.database, metrics }, request),
      discardMany({ db: opened.database, metrics }, request),
    ]);
    expect(both[0].discarded + both[1].discarded).toBe(2_100);
    expect(await auditOf('dead-letter.discard')).toHaveLength(2_100);
  });
});
