/** Lists of tasks, by whichever way they are found: along the primary key, by an index, by the tables beside. */
import { afterAll, beforeAll, expect, test } from '@jest/globals';
import { parseTaskFilter } from '../../services/producer/task-filter.ts';
import { listTasks } from '../../services/producer/tasks.ts';
import { openDatabase } from '../support/database.ts';
import type { TestDatabase } from '../support/database.ts';
import { SERVICE_PLANS } from '../support/task-api.ts';

const TASKS = 13_000;
let db: TestDatabase;

/** Task n is the nth oldest. */
beforeAll(async () => {
  db = await openDatabase({ settings: SERVICE_PLANS });
  await db.database.query({
    text: `insert into tasks (id, state, max_attempts, priority, type, queue, input, tags, correlation_id, run_at, claim_id, worker,
                              started_at, finished_at, attempt)
           select ('01890a5d-' || lpad(to_hex(n / 4096), 4, '0') || '-7' || lpad(to_hex(n % 4096), 3, '0') || '-8000-000000000000')::uuid,
                  state, 1, 4, case when n % 1000 = 1 then 'few' else 'many' end, 'q', '{}',
                  array_remove(array['all', case when n <= 6000 then 'old' end, case when n in (1, 2, 9000) then 'rare' end], null), n,
                  case when state = 'scheduled' then now() + interval '1 hour' end,
                  case when state = 'running' then gen_random_uuid() end, case when state = 'running' then gen_random_uuid() end,
                  case when state = 'running' then now() end, case when state = 'dead' then now() end,
                  case when state in ('running', 'dead') then 1 else 0 end
             from generate_series(1, ${TASKS}) n,
                  lateral (select case when n % 4 = 1 then 'dead' when n % 100 = 2 then 'running' when n % 100 = 3 then 'scheduled'
                                  else 'pending' end::task_state as state) s`,
  });
  // What stands beside them; some of the dead have a letter of an earlier death.
  for (const text of [
    `insert into dead_letters (id, kind, task_id, reason, type, queue, attempt, died_at, state, closed_at)
     select uuid_v7(), 'task', id, 'timeout', type, queue, 1, now(), s.state, case when s.state = 'replayed' then now() end
       from tasks t, lateral (select 'open' as state union all select 'replayed' where correlation_id like '%5') s
      where t.state = 'dead'`,
    `insert into claims (id, worker, claimed_at, task_ids)
     select gen_random_uuid(), gen_random_uuid(), now(), array_agg(id)
       from tasks where state = 'running' group by left(correlation_id, 2)`,
    `insert into due (task_id, at) select id, now() + interval '1 hour' from tasks where state = 'scheduled'`,
    'analyze',
  ]) {
    await db.database.query({ text });
  }
});
afterAll(async () => await db[Symbol.asyncDispose]());

/** The numbers of all tasks that a filter finds, page by page, and whether a page was not full. */
async function walk(text: string, limit: number): Promise<{ numbers: number[]; pages: number; isPartial: boolean }> {
  const numbers: number[] = [];
  let below: string | undefined;
  let isPartial = false;
  for (let pages = 1; pages < 500; pages += 1) {
    const page = await listTasks(db.database, parseTaskFilter(text), { limit, below });
    numbers.push(...page.rows.map((row) => Number(row.correlation_id)));
    isPartial ||= page.isPartial;
    below = page.next;
    if (below === undefined) return { numbers, pages, isPartial };
  }
  throw new Error('the list does not end');
}

const newestFirst = (from: number, to: number): number[] => Array.from({ length: from - to + 1 }, (_, n) => from - n);

const all = newestFirst(TASKS, 1);
const isDead = (n: number): boolean => n % 4 === 1;

test.each([
  ['', newestFirst(TASKS, 1), 66],
  ['tag:all', newestFirst(TASKS, 1), 66],
  ['tag:old', newestFirst(6_000, 1), 31],
  ['tag:rare', [9_000, 2, 1], 1],
  ['tag:nothing', [], 1],
  ['type:few', newestFirst(12, 0).map((n) => n * 1_000 + 1), 1],
  ['type:few tag:old', newestFirst(5, 0).map((n) => n * 1_000 + 1), 1],
  ['type:nothing', [], 1],
  ['state:dead', all.filter((n) => isDead(n)), 17],
  ['state:dead type:few', newestFirst(12, 0).map((n) => n * 1_000 + 1), 1],
  ['state:dead type:nothing', [], 1],
  ['state:running', all.filter((n) => n % 100 === 2), 1],
  ['state:dead,running,scheduled', all.filter((n) => isDead(n) || [2, 3].includes(n % 100)), 18],
  ['state:dead,running type:few', newestFirst(12, 0).map((n) => n * 1_000 + 1), 1],
  [
    'state:scheduled,dead type:many tag:old',
    all.filter((n) => n <= 6_000 && (isDead(n) || n % 100 === 3) && n % 1_000 !== 1),
    9,
  ],
])('the pages of %s together show each task once, newest first', async (text, expected, mostPages) => {
  const { numbers, pages, isPartial } = await walk(text, 200);
  expect(numbers).toEqual(expected);
  expect(pages).toBeLessThanOrEqual(mostPages);
  expect(isPartial).toBe(false);
});

test('a page that ends with the last task that fits has none behind it', async () => {
  expect(await walk('type:few', 13)).toMatchObject({ pages: 1 });
  expect(await walk('tag:rare', 3)).toMatchObject({ pages: 1 });
  expect(await walk('type:few', 12)).toMatchObject({ pages: 2 });
});
