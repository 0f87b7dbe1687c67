/** Filters against Postgres: which letters each of them finds, in pages, and in bounded time. */
import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import fc from 'fast-check';
import { countLetters, findLetterIds, findLetters } from '../../services/dead-letter-handler/finder.ts';
import { isEmpty, parseLetterFilter } from '../../services/dead-letter-handler/letter-filter.ts';
import { LETTER_KEYS, LETTER_LANGUAGE } from '../../shared/dead-letters/letter-keys.ts';
import { WarrenError } from '../../shared/errors/warren-error.ts';
import { parseFilter } from '../../shared/filter/filter.ts';
import type { Query } from '../../shared/postgres/statement.ts';
import { inTimeLimit, isTimeLimitReached } from '../../shared/postgres/transaction.ts';
import type { Transactional } from '../../shared/postgres/transaction.ts';
import { rows } from '../support/core.ts';
import { openDatabase } from '../support/database.ts';
import type { TestDatabase } from '../support/database.ts';
import { addLetter } from '../support/letters.ts';
import type { NewLetter } from '../support/letters.ts';
import { SERVICE_PLANS } from '../support/task-api.ts';

const GROUP = '00000000-0000-4000-8000-000000000001';
const TASK = '0198f3a4-0b52-7e6f-8c1d-4a9e7b3f2c60';
const HOUR_MS = 3_600_000;

const LETTERS: Readonly<Record<string, NewLetter>> = {
  timeout: { reason: 'timeout', type: 'image.resize', tags: ['vip', 'eu'], attempt: 3, ageMs: 2 * HOUR_MS },
  refused: { kind: 'refused', reason: 'unknown_type', type: null, queue: 'ingress' },
  grouped: { type: 'image_resize', groupId: GROUP, codeVersion: '1.4.0', errorType: 'DiskFull', errorCode: 'ENOSPC' },
  number: {
    type: 'report.csv',
    taskId: TASK,
    input: '{"user": {"id": 42}, "ok": true, "none": null, "a b": {"c.d": "x"}}',
  },
  text: {
    errorText: 'connect ECONNREFUSED 10.0.0.1: 100% of_all \\ "quoted"',
    input: '{"user": {"id": "42"}, "rows": 7}',
  },
  closed: { state: 'discarded', reason: 'timeout' },
};

let opened: TestDatabase;
const nameOf = new Map<string, string>();
const db = (): TestDatabase['database'] => opened.database;
beforeAll(async () => {
  opened = await openDatabase({ settings: { ...SERVICE_PLANS, plan_cache_mode: 'force_generic_plan' } });
  for (const [name, letter] of Object.entries(LETTERS)) nameOf.set(await addLetter(db(), letter), name);
});
afterAll(async () => await opened[Symbol.asyncDispose]());

async function found(text: string): Promise<string[]> {
  const { items } = await findLetters(db(), { filter: parseLetterFilter(text), limit: 50 });
  return items.map(({ id }) => nameOf.get(id) ?? '').toSorted();
}

const OPEN = ['grouped', 'number', 'refused', 'text', 'timeout'];

test.each([
  ['', OPEN],
  ['state:all', [...OPEN, 'closed'].toSorted()],
  ['state:discarded,replayed', ['closed']],
  ['-state:open', ['closed']],
  ['reason:timeout', ['timeout']],
  ['reason:timeout state:all', ['closed', 'timeout']],
  ['reason:timeout,unknown_type', ['refused', 'timeout']],
  ['reason:time*,unknown_type', ['refused', 'timeout']],
  ['type:image.*', ['timeout']],
  ['type:image_*', ['grouped']],
  ['type:"image.*"', []],
  ['type:*', ['grouped', 'number', 'text', 'timeout']],
  ['-type:*', ['refused']],
  ['-type:image.resize', ['grouped', 'number', 'refused', 'text']],
  ['kind:refused', ['refused']],
  ['queue:ingress', ['refused']],
  [`group:${GROUP}`, ['grouped']],
  ['version:1.4.*', ['grouped']],
  ['errorType:DiskFull code:ENOSPC', ['grouped']],
  ['tag:vip', ['timeout']],
  ['tag:v*', ['timeout']],
  ['tag:vip tag:eu', ['timeout']],
  ['-tag:vip', ['grouped', 'number', 'refused', 'text']],
  ['age:>1h', ['timeout']],
  ['age:<1h', ['grouped', 'number', 'refused', 'text']],
  ['age:1h..3h', ['timeout']],
  ['-age:<1h', ['timeout']],
  ['age:>3h', []],
  ['died:>2026-01-01', OPEN],
  ['died:<2026-01-01T00:00:00Z', []],
  ['error:econnrefused', ['text']],
  ['econn*10.0.0.1', ['text']],
  ['error:100%', ['text']],
  ['error:1%0', []],
  ['error:of_all', ['text']],
  ['error:ofXall', []],
  ['error:"\\\\ \\"quoted"', ['text']],
  ['-econnrefused', ['grouped', 'number', 'refused', 'timeout']],
  ['attempts:>=3', ['timeout']],
  ['attempts:2..4', ['timeout']],
  [`task:${TASK}`, ['number']],
  ['input.user.id:42', ['number', 'text']],
  ['input.user.id:"42"', ['text']],
  ['input.user.id:41,42', ['number', 'text']],
  ['input.ok:true', ['number']],
  ['input.none:null', ['number']],
  ['input.none:*', ['number']],
  ['input.user:*', ['number', 'text']],
  ['-input.user:*', ['grouped', 'refused', 'timeout']],
  ['input."a b"."c.d":x', ['number']],
  ['input.rows:>5', ['text']],
  ['input.rows:8..', []],
  ['error:"\'; drop table dead_letters; --"', []],
  ['reason:timeout type:image.* age:>1h tag:vip attempts:>=3', ['timeout']],
])('%s finds %j', async (text, expected) => {
  expect(await found(text)).toEqual(expected);
  expect(await countLetters(db(), parseLetterFilter(text))).toEqual({ count: expected.length, isPartial: false });
});

const ODD_VALUES = [
  'open',
  'all',
  'task',
  'x',
  'a*b%_',
  '*',
  '"q\\"\\\\"',
  '""',
  "'",
  '7',
  '-1.5',
  '1e9',
  '1e999',
  '-0',
  '007',
  '>=3',
  '<999999999999999',
  '1..2',
  '..5',
  '5..',
  '>1h',
  '<36500d',
  '1s..2d',
  '2026-01-31',
  '>9999-12-31',
  '<1970-01-01',
  '>=2026-01-31T18:00:00.123456789+02:00',
  TASK,
  GROUP,
  'true',
  'null',
  '{}',
  '$1',
  '\u2028',
  '\u{1F600}',
  '"\\n"',
  '9'.repeat(100),
  '0.1e-300',
];
const ODD_PATHS = ['input.a', 'input."a\\"b\\\\".c', 'input.$.@', "input.'x'", 'input."\t\u007f"'];

test('Postgres takes every condition that a filter can become', async () => {
  const value = fc.constantFrom(...ODD_VALUES);
  const key = fc.constantFrom(...Object.keys(LETTER_KEYS).filter((each) => each !== 'input'), ...ODD_PATHS);
  const term = fc
    .tuple(fc.constantFrom('', '-'), key, fc.array(value, { minLength: 1, maxLength: 3 }))
    .map(([sign, name, values]) => `${sign}${name}:${values.join(',')}`)
    .filter((text) => parseFilter(text, LETTER_LANGUAGE).kind === 'ok');
  await fc.assert(
    fc.asyncProperty(fc.array(term, { maxLength: 3 }), async (terms) => {
      const filter = parseLetterFilter(terms.join(' '));
      expect((await findLetterIds(db(), { filter, limit: 50 })).isPartial).toBe(false);
    }),
    { numRuns: 400 },
  );
});

test.each([
  ['', true],
  ['state:open', true],
  ['state:all', true],
  ['type:*', true],
  ['-type:*', false],
  ['type:a*', false],
  ['age:>1h', false],
])('%j selects everything: %s', (text, isEverything) => {
  expect(isEmpty(parseLetterFilter(text))).toBe(isEverything);
});

test('a filter that cannot be read is refused with the place and what is allowed', () => {
  expect(() => parseLetterFilter('type:a resaon:b')).toThrow(
    expect.objectContaining({
      code: 'field-invalid',
      facts: {
        field: 'filter',
        reason: expect.stringMatching(/^at character 8: there is no key "resaon"; keys are state, /) as unknown,
        position: 8,
      },
    }),
  );
});

test('a statement that takes too long is ended, and its session is as it was', async () => {
  const late = inTimeLimit(db(), 30, async (tx) => await tx.query({ text: 'select pg_sleep(20)' }));
  await expect(late).rejects.toThrow(expect.objectContaining({ code: 'database-unavailable' }));
  expect(isTimeLimitReached(await late.catch((thrown: unknown) => thrown))).toBe(true);
  const [row] = await rows(db(), `select current_setting('statement_timeout') as limit`);
  expect(row).toEqual({ limit: '30s' });
});

describe('where Postgres takes too long for the whole page', () => {
  const MANY = 9_000;
  let expected: string[];
  beforeAll(async () => {
    await db().query({
      text: `insert into dead_letters (id, kind, task_id, reason, type, attempt)
             select uuid_v7(), 'task', gen_random_uuid(), 'many', 'walked', case when n % 1000 = 0 then 7 else 1 end
               from generate_series(1, ${MANY}) n`,
    });
    const all = await rows<{ id: string }>(
      db(),
      `select id from dead_letters where reason = 'many' and attempt = 7 order by id desc`,
    );
    expected = all.map(({ id }) => id);
  });

  /** A database that never answers for a page at once, and whose clock runs so that a walk takes one step a page. */
  function slow(isLate: (query: Query) => boolean): Transactional {
    let ms = 0;
    const clock = { ...db().deps.clock, monotonicMs: () => (ms += 500) };
    return {
      deps: { ...db().deps, clock },
      query: async (query) => await db().query(query),
      checkOut: async () => {
        const connection = await db().checkOut();
        return {
          release: (destroy) => connection.release(destroy),
          query: async (query) => {
            if (isLate(query))
              throw new WarrenError('database-unavailable', {}, Object.assign(new Error('late'), { code: '57014' }));
            return await connection.query(query);
          },
        };
      },
    };
  }
  const isWholePage = ({ text }: Query): boolean => /left join letter_facts/.test(text) && !/unnest/.test(text);

  test('pages are partial, say where to go on, and together neither repeat nor miss one', async () => {
    const filter = parseLetterFilter('reason:many attempts:7');
    const seen: string[] = [];
    const partial: boolean[] = [];
    let below: string | undefined;
    do {
      const page = await findLetterIds(slow(isWholePage), { filter, limit: 5, below });
      seen.push(...page.items);
      partial.push(page.isPartial);
      below = page.next;
    } while (below !== undefined);
    expect(seen).toEqual(expected);
    expect(partial.length).toBeGreaterThan(1);
    expect(partial).toContain(true);
    expect(partial.at(-1)).toBe(false);
  });

  test('a count is marked as partial', async () => {
    const counted = await countLetters(slow(isWholePage), parseLetterFilter('reason:many attempts:7'));
    expect(counted.isPartial).toBe(true);
    expect(counted.count).toBeLessThan(expected.length);
  });

  test('where not even one step can be made, the failure is told', async () => {
    const everything = slow(({ text }) => text.includes('dead_letters'));
    await expect(findLetterIds(everything, { filter: parseLetterFilter('attempts:7'), limit: 5 })).rejects.toThrow(
      expect.objectContaining({ code: 'database-unavailable' }),
    );
  });
});
