/** Filters of tasks against Postgres: which tasks each of them finds, in pages, and in bounded time. */
import { afterAll, beforeAll, expect, test } from '@jest/globals';
import fc from 'fast-check';
import { parseTaskFilter } from '../../services/producer/task-filter.ts';
import { listTasks } from '../../services/producer/tasks.ts';
import { selectsEverything } from '../../shared/filter/read-filter.ts';
import { parseFilter } from '../../shared/filter/filter.ts';
import type { Transactional } from '../../shared/postgres/transaction.ts';
import { idAtLeast, newId } from '../../shared/tasks/ids.ts';
import { systemClock } from '../../shared/time/clock.ts';
import { TASK_KEYS, TASK_LANGUAGE } from '../../shared/tasks/task-keys.ts';
import { openDatabase } from '../support/database.ts';
import type { TestDatabase } from '../support/database.ts';
import { SERVICE_PLANS } from '../support/task-api.ts';

const WORKER = '00000000-0000-4000-8000-000000000001';
const idOf = new Map<string, string>();
const nameOf = new Map<string, string>();
let opened: TestDatabase;
const db = (): TestDatabase['database'] => opened.database;

/** Columns of a task, as SQL. */
const TASKS: Readonly<Record<string, Readonly<Record<string, string>>>> = {
  mail: { type: `'mail.send'`, tags: `array['vip', 'eu']`, business_key: `'order-1'`, priority: '9' },
  old: { type: `'mail_send'`, accepted_at: `now() - interval '2 h'`, external_id: `'m-1'`, publisher: `'shop'` },
  retrying: { state: `'retrying'`, run_at: `now() + interval '1 h'`, attempt: '3', failures: '2' },
  running: { state: `'running'`, worker: `'${WORKER}'`, claim_id: `'${WORKER}'`, started_at: 'now()', attempt: '1' },
  over: { state: `'succeeded'`, finished_at: 'now()', attempt: '1', queue: `'bulk'`, correlation_id: `'c-1'` },
  number: { input: `'{"user": {"id": 42}, "note": "100% of_all"}'`, deadline: `'2030-01-31T12:00:00Z'` },
  text: { input: `'{"user": {"id": "42"}, "rows": 7}'` },
  // What no front door lets in, and what jsonb does not hold.
  bytes: { input: `'\\xff'` },
  zero: { input: `'{"user": "\\\\u0000"}'` },
};

beforeAll(async () => {
  opened = await openDatabase({ settings: { ...SERVICE_PLANS, plan_cache_mode: 'force_generic_plan' } });
  for (const [name, columns] of Object.entries(TASKS)) {
    // Ids are times: what was accepted earlier has a smaller one.
    const id = name === 'old' ? idAtLeast(new Date(systemClock.now().getTime() - 7_200_000)) : newId();
    idOf.set(name, id);
    nameOf.set(id, name);
    const all: Record<string, string> = {
      id: `'${id}'`,
      state: `'pending'`,
      max_attempts: '5',
      priority: '4',
      type: `'test.noop'`,
      queue: `'default'`,
      input: `'{}'`,
      invited_at: 'now()',
      ...columns,
    };
    await db().query({
      text: `insert into tasks (${Object.keys(all).join(', ')}) values (${Object.values(all).join(', ')})`,
    });
  }
  const id = idOf.get('retrying');
  await db().query({ text: `insert into due (task_id, at) values ('${id}', now() + interval '1 h')` });
  await db().query({
    text: `insert into claims (id, worker, claimed_at, task_ids)
           values ('${WORKER}', '${WORKER}', now(), array['${idOf.get('running')}'::uuid])`,
  });
  await db().query({
    text: `insert into attempts (task_id, attempt, worker, started_at, finished_at, outcome, error_type, error_code, error_message)
           values ('${id}', 1, '${WORKER}', now(), now(), 'failed', 'SystemError', 'ECONNREFUSED', 'connect 10.0.0.1')`,
  });
});
afterAll(async () => await opened[Symbol.asyncDispose]());

async function found(text: string): Promise<string[]> {
  const filter = parseTaskFilter(text.replaceAll(/<(\w+)>/g, (_all, name: string) => idOf.get(name) ?? ''));
  const { rows } = await listTasks(db(), filter, { limit: 50, below: undefined });
  return rows.map(({ id }) => nameOf.get(id) ?? '').toSorted();
}

const ALL = Object.keys(TASKS).toSorted();
const but = (...names: readonly string[]): string[] => ALL.filter((name) => !names.includes(name));

test.each([
  ['', ALL],
  ['state:pending', but('retrying', 'running', 'over')],
  ['state:running', ['running']],
  ['state:retrying,scheduled', ['retrying']],
  ['state:running,succeeded', ['over', 'running']],
  ['-state:pending', ['over', 'retrying', 'running']],
  ['type:mail.*', ['mail']],
  ['type:mail_send', ['old']],
  ['-type:test.noop', ['mail', 'old']],
  ['queue:bulk', ['over']],
  ['tag:vip', ['mail']],
  ['tag:v*', ['mail']],
  ['-tag:vip', but('mail')],
  ['key:order-1', ['mail']],
  ['key:order-*', ['mail']],
  ['key:order-1,order-2', ['mail']],
  ['externalId:m-1', ['old']],
  ['externalId:m-1,m-2', ['old']],
  ['publisher:shop', ['old']],
  ['correlation:c-1', ['over']],
  ['priority:>=5', ['mail']],
  ['priority:0..4', but('mail')],
  ['attempts:>1', ['retrying']],
  ['failures:2', ['retrying']],
  ['age:>1h', ['old']],
  ['age:<1h', but('old')],
  ['age:1h..3h', ['old']],
  ['-age:<1h', ['old']],
  ['accepted:>2026-01-01', ALL],
  ['accepted:<2020-01-01', []],
  ['accepted:<2020-01-01,>2026-01-01', ALL],
  ['runAt:>2026-01-01', ['retrying']],
  ['deadline:2030-01-31', ['number']],
  ['finished:>2026-01-01', ['over']],
  [`worker:${WORKER}`, ['running']],
  ['id:<mail>,<text>', ['mail', 'text']],
  ['id:<mail> type:test.noop', []],
  ['-id:<mail>', but('mail')],
  ['error:econnrefused', ['retrying']],
  ['error:"connect 10.0.0.1"', ['retrying']],
  ['error:*', ['retrying']],
  ['-error:*', but('retrying')],
  ['input.user.id:42', ['number', 'text']],
  ['input.user.id:"42"', ['text']],
  ['input.rows:>5', ['text']],
  ['-input.user:*', but('number', 'text')],
  ['100%', ['number']],
  ['text:of_all', ['number']],
  ['text:ofXall', []],
  ['"\\\\u0000"', ['zero']],
  ['type:test.* tag:*', []],
  ['state:pending type:test.* -input.user.id:42 priority:4', ['bytes', 'zero']],
])('%s finds %j', async (text, expected) => {
  expect(await found(text)).toEqual(expected);
});

const ODD_VALUES = [
  ['pending', 'running', 'x', 'a*b%_', '*', '"q\\"\\\\"', '""', "'", '7', '-1.5', '1e9', '1e999', '-0', '007'],
  ['>=3', '<999999999999999', '1..2', '..5', '5..', '>1h', '<36500d', '1s..2d', '2026-01-31', '>9999-12-31'],
  ['<1970-01-01', '>=2026-01-31T18:00:00.123456789+02:00', WORKER, 'true', 'null', '{}', '$1', '\u2028', '\u{1F600}'],
  ['"\\n"', '9'.repeat(100), '0.1e-300'],
].flat();
const ODD_PATHS = ['input.a', 'input."a\\"b\\\\".c', 'input.$.@', "input.'x'", 'input."\t\u007f"'];

test('Postgres takes every condition that a filter can become', async () => {
  const key = fc.constantFrom(...Object.keys(TASK_KEYS).filter((each) => each !== 'input'), ...ODD_PATHS);
  const term = fc
    .tuple(fc.constantFrom('', '-'), key, fc.array(fc.constantFrom(...ODD_VALUES), { minLength: 1, maxLength: 3 }))
    .map(([sign, name, values]) => `${sign}${name}:${values.join(',')}`)
    .filter((text) => parseFilter(text, TASK_LANGUAGE).kind === 'ok');
  await fc.assert(
    fc.asyncProperty(fc.array(term, { maxLength: 3 }), async (terms) => {
      const filter = parseTaskFilter(terms.join(' '));
      expect((await listTasks(db(), filter, { limit: 50, below: undefined })).isPartial).toBe(false);
    }),
    { numRuns: 400 },
  );
});

test.each([
  ['', true],
  ['state:pending', true],
  ['type:*', true],
  ['-type:*', false],
  ['type:a*', false],
])('%j selects everything: %s', (text, isEverything) => {
  expect(selectsEverything(parseTaskFilter(text).terms)).toBe(isEverything);
});

test('a filter that cannot be read is refused with the place and what is allowed', () => {
  expect(() => parseTaskFilter('type:a stat:b')).toThrow(
    expect.objectContaining({
      code: 'field-invalid',
      facts: expect.objectContaining({
        reason: expect.stringMatching(/^at character 8: there is no key "stat"; keys are state, type, /) as unknown,
      }) as unknown,
    }),
  );
});

test('a page that takes too long is partial, and pages together neither repeat nor miss one', async () => {
  let ms = 0;
  const slow: Transactional = {
    deps: { ...db().deps, clock: { ...db().deps.clock, monotonicMs: () => (ms += 1_500) } },
    query: async (query) => await db().query(query),
    checkOut: async () => await db().checkOut(),
  };
  await db().query({
    text: `insert into tasks (id, state, max_attempts, priority, type, queue, input, invited_at)
           select uuid_v7(), 'pending', 1, case when n % 100 = 0 then 7 else 1 end, 'walked', 'default', '{"n":1}', now()
             from generate_series(1, 500) n`,
  });
  const seen: string[] = [];
  const partial: boolean[] = [];
  let below: string | undefined;
  do {
    const page = await listTasks(slow, parseTaskFilter('type:walked priority:7 input.n:1'), { limit: 2, below });
    seen.push(...page.rows.map(({ id }) => id));
    partial.push(page.isPartial);
    below = page.next;
  } while (below !== undefined);
  expect([seen.length, new Set(seen).size]).toEqual([5, 5]);
  expect(partial).toContain(true);
  expect(partial.at(-1)).toBe(false);
});
