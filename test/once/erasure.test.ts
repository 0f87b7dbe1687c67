/** Erasing one person's payloads over HTTP: nothing of them is left in any table, and nobody else loses anything. */
import { afterAll, beforeAll, expect, test } from '@jest/globals';
import { Replayer } from '../../services/dead-letter-handler/replayer.ts';
import { addTask, partDeps, rows } from '../support/core.ts';
import { expectAllAccounted, addEnded } from '../support/retention.ts';
import { namesOf } from '../../shared/amqp/topology.ts';
import { aType, openTaskApi } from '../support/task-api.ts';
import type { TestTaskApi } from '../support/task-api.ts';
import { systemClock } from '../../shared/time/clock.ts';

const SECRET = 'Bartleby Quillfeather';
const KEY = 'customer-17';
const TOKENS = [
  { name: 'eyes', role: 'editor', token: 'editor-token-0123456789' },
  { name: 'boss', role: 'admin', token: 'admin-token-01234567890' },
] as const;
const ADMIN = { authorization: `Bearer ${TOKENS[1].token}` };

let api: TestTaskApi;
let db: TestTaskApi['db']['database'];
beforeAll(async () => {
  api = await openTaskApi([aType('mail.send')], { tokens: TOKENS });
  db = api.db.database;
});
afterAll(async () => await api[Symbol.asyncDispose]());

async function erase(body: object, headers: Record<string, string> = ADMIN) {
  return await api.post('/v1/erasures', JSON.stringify(body), headers);
}

/** Every table that holds the secret in any column, as text. */
async function leaks(): Promise<readonly string[]> {
  const tables = await rows<{ name: string }>(
    db,
    `select relname::text as name from pg_class where relnamespace = 'warren'::regnamespace and relkind = 'r'`,
  );
  const found: string[] = [];
  for (const { name } of tables) {
    const [row] = await rows<{ n: number }>(
      db,
      `select count(*)::int4 as n from "${name}" t
        where t::text like '%' || $1::text || '%' or t::text like '%' || encode(convert_to($1::text, 'UTF8'), 'hex') || '%'`,
      SECRET,
    );
    if ((row?.n ?? 0) > 0) found.push(name);
  }
  return found.toSorted();
}

/** A dead task of the person, with a trace in every table that can hold one. */
async function aDeadTask(): Promise<{ readonly taskId: string; readonly letterId: string }> {
  const [taskId = ''] = await addEnded(db, 1, systemClock.now().getTime() - 60_000, {
    state: 'dead',
    type: 'mail.send',
  });
  const [made] = await rows<{ letter: string; replay: string; group: string }>(
    db,
    'select uuid_v7() as letter, uuid_v7() as replay, gen_random_uuid() as group',
  );
  const { letter, replay, group } = made as { letter: string; replay: string; group: string };
  const json = JSON.stringify({ to: SECRET });
  for (const [text, values] of [
    [
      `update tasks set input = $2, result = $2, tags = array[$3], business_key = $4, correlation_id = $3 where id = $1`,
      [taskId, json, SECRET, KEY],
    ],
    [
      `insert into attempts (task_id, attempt, worker, started_at, finished_at, outcome, error_type, error_message, error_stack)
       values ($1, 1, gen_random_uuid(), now(), now(), 'failed', 'TypeError', $2, $2)`,
      [taskId, SECRET],
    ],
    [`insert into origins values ($1, 'x', 'y', $2, $2)`, [taskId, json]],
    [`insert into attempt_logs (task_id, attempt, lines, dropped) values ($1, 1, $2, 0)`, [taskId, SECRET]],
    [
      `insert into once_runs (task_id, key, run_id, attempt, finished_at, result) values ($1, 'k', gen_random_uuid(), 1, now(), $2)`,
      [taskId, json],
    ],
    [
      `insert into held_back (task_id, reason, scope, key, priority) values ($1, 'concurrency', 'x', $2, 4)`,
      [taskId, SECRET],
    ],
    [`insert into progress (task_id, attempt, fraction, step) values ($1, 1, 0.5, $2)`, [taskId, SECRET]],
    [
      `insert into failure_groups (id, kind, letters, open_letters, first_at, last_at, error_message)
       values ($1, 'task', 1, 1, now(), now(), $2)`,
      [group, SECRET],
    ],
    [
      `insert into dead_letters (id, kind, task_id, reason, attempt, error_type, error_message, error_stack, properties, headers, group_id)
       values ($1, 'task', $2, 'timeout', 0, 'TypeError', $3, $3, $4, $4, $5)`,
      [letter, taskId, SECRET, json, group],
    ],
    [`insert into letter_facts values ($1, array[$2], $2, $3)`, [letter, SECRET, json]],
    [`insert into mended_inputs (letter_id, replay_id, input) values ($1, $2, $3)`, [letter, replay, json]],
    [
      `insert into replays (id, state, created_by, role, selection, items, waves, patch, finished_at)
       values ($1, 'finished', 'ann', 'operator', '{}', 1, '"none"', $2, now())`,
      [replay, json],
    ],
    [
      `insert into replay_items (replay_id, n, letter_id, state, error_message) values ($1, 1, $2, 'dead', $3)`,
      [replay, letter, SECRET],
    ],
  ] as const) {
    await db.query({ text, values: [...values] });
  }
  return { taskId, letterId: letter };
}

test('by business key: of everything that ended nothing is left, what waits is left and named, and it is audited', async () => {
  const { taskId, letterId } = await aDeadTask();
  const waiting = await addTask(db, { type: 'mail.send' });
  await db.query({ text: 'update tasks set business_key = $2 where id = $1', values: [waiting, KEY] });
  const others = await addEnded(db, 3, systemClock.now().getTime() - 60_000);
  expect((await leaks()).length).toBeGreaterThan(8);

  const answer = await erase({ businessKey: KEY, reason: 'request 114' });
  expect(answer.status).toBe(200);
  expect(answer.json).toMatchObject({
    isPartial: false,
    erased: {
      tasks: 1,
      attempts: 1,
      attemptLogs: 1,
      onceResults: 1,
      origins: 1,
      progress: 1,
      deadLetters: 1,
      searchEntries: 1,
      mendedInputs: 1,
      replayPatches: 1,
      replayItems: 1,
      failureGroups: 1,
    },
    notEnded: { count: 1, ids: [waiting] },
  });
  expect(await leaks()).toEqual([]);
  expect(await rows(db, `select id from tasks where input = '{}' and id = any($1::uuid[])`, others)).toHaveLength(3);
  expect(await rows(db, 'select open_letters::int4 from failure_groups')).toEqual([{ open_letters: 0 }]);
  expect(await rows(db, 'select state, close_reason, error_type from dead_letters where id = $1', letterId)).toEqual([
    { state: 'discarded', close_reason: 'erased', error_type: 'TypeError' },
  ]);
  expect((await api.get(`/v1/tasks/${taskId}`, ADMIN)).json).toMatchObject({ state: 'dead', input: { erased: true } });
  const [line] = await rows<{ detail: Record<string, unknown> }>(
    db,
    `select actor, target, detail from audit where action = 'payload.erase'`,
  );
  expect(line).toMatchObject({ actor: 'boss', target: answer.json['id'], detail: { reason: 'request 114' } });
  expect(JSON.stringify(line)).not.toContain(KEY);
  await expectAllAccounted(db);

  await db.query({
    text: `update tasks set state = 'cancelled', finished_at = now() where id = $1`,
    values: [waiting],
  });
  expect((await erase({ businessKey: KEY, reason: 'request 114' })).json).toMatchObject({ erased: { tasks: 1 } });
  expect(await rows(db, 'select id from tasks where business_key = $1', KEY)).toEqual([]);
});

test('by ids: tasks and letters of messages that never were tasks', async () => {
  const { taskId } = await aDeadTask();
  const [letter] = await rows<{ id: string }>(
    db,
    `insert into dead_letters (id, kind, reason, body, headers) values (uuid_v7(), 'foreign', 'rejected', $1, $2) returning id`,
    SECRET,
    JSON.stringify({ who: SECRET }),
  );
  const answer = await erase({ taskIds: [taskId], letterIds: [letter?.id], reason: 'request 115' });
  expect(answer.json).toMatchObject({ erased: { tasks: 1, deadLetters: 2 }, notEnded: { count: 0 } });
  expect(await leaks()).toEqual([]);
});

test('more than a chunk is erased in chunks', async () => {
  const ids = await addEnded(db, 1_200, systemClock.now().getTime() - 60_000);
  await db.query({
    text: `update tasks set business_key = 'many' where id = any($1::uuid[])`,
    values: [`{${ids.join(',')}}`],
  });
  expect((await erase({ businessKey: 'many', reason: 'all' })).json).toMatchObject({ erased: { tasks: 1_200 } });
});

test('an erased letter is not replayed, and whoever tries is told so', async () => {
  const { letterId } = await aDeadTask();
  const { json } = await erase({ letterIds: [letterId], reason: 'request 116' });
  expect(json).toMatchObject({ erased: { tasks: 1, deadLetters: 1 } });
  expect(await leaks()).toEqual([]);
  const never = (): never => {
    throw new Error('nothing may be sent');
  };
  const replayer = new Replayer(
    { ...partDeps, db, invite: never, publish: never, hasExchange: never, names: namesOf('x') },
    { destinations: [], unfinishedAfterMs: 1_000 },
  );
  const replaying = replayer.replay({ letterId, actor: { name: 'ann', role: 'operator' } });
  await expect(replaying).rejects.toMatchObject({ code: 'dead-letter-erased' });
});

test.each([
  ['nothing to erase', { reason: 'x' }, 'give businessKey, or taskIds, letterIds or both'],
  [
    'a key and ids',
    { businessKey: 'a', taskIds: ['0198f3a2-7c10-7d3e-9a4b-2f6c1d8e5b70'], reason: 'x' },
    'give businessKey, or taskIds, letterIds or both',
  ],
  ['no reason', { businessKey: 'a' }, 'reason'],
  ['an id that is none', { taskIds: ['17'], reason: 'x' }, 'taskIds[0]'],
])('a request with %s is refused, and says why', async (_what, body, said) => {
  const answer = await erase(body);
  expect(answer.status).toBe(400);
  expect(answer.json['type']).toBe('field-invalid');
  expect(answer.text).toContain(said);
});

test('only an admin may', async () => {
  const answer = await erase({ businessKey: KEY, reason: 'x' }, { authorization: `Bearer ${TOKENS[0].token}` });
  expect(answer.status).toBe(403);
});

test('retention is shown with its rules, partitions and tables, to whoever may look', async () => {
  const answer = await api.get('/v1/retention', { authorization: `Bearer ${TOKENS[0].token}` });
  expect(answer.status).toBe(200);
  expect(answer.json).toMatchObject({ spanMs: 5 * 86_400_000, behindMs: 0 });
  expect(answer.json['rules']).toContainEqual({ state: 'dead', keptMs: 90 * 86_400_000 });
  expect(answer.json['partitions']).toEqual([expect.objectContaining({ name: 'tasks_default', state: 'default' })]);
  expect((answer.json['next'] as { make: unknown[] }).make.length).toBeGreaterThan(1);
  expect(answer.json['tables']).toContainEqual(
    expect.objectContaining({ table: 'dead_letters', keptMs: 90 * 86_400_000 }),
  );
});
