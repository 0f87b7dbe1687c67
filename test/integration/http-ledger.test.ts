/** The books over HTTP and on the command line. */
import { afterAll, beforeAll, expect, test } from '@jest/globals';
import { aDeath, addTask, openWorker } from '../support/core.ts';
import { openAudit } from '../support/ledger.ts';
import { aType, openTaskApi } from '../support/task-api.ts';
import type { Answer, TestTaskApi } from '../support/task-api.ts';
import { warren } from '../support/cli-io.ts';

const TOKENS = [{ name: 'eyes', role: 'viewer', token: 'viewer-token-0123456789' }] as const;
/** Both are accepted at 22 o'clock. */
const OLD = '2025-12-08T22:00:00.000Z';
const oldId = (index: number): string => `019b0000-0000-7000-8000-${String(index).padStart(12, '0')}`;

let api: TestTaskApi;
beforeAll(async () => {
  api = await openTaskApi([aType('mail.send')], { tokens: TOKENS });
  const db = api.db.database;
  const worker = await openWorker(db);
  for (let index = 0; index < 3; index += 1) await addTask(db, { id: oldId(index), type: 'mail.send' });
  await addTask(db, { id: oldId(3), type: 'user.add' });
  await worker.settles.succeed(await worker.win(oldId(0)), undefined);
  await worker.settles.settle(await worker.win(oldId(1)), aDeath());
  await addTask(db, { type: 'mail.send' });
});
afterAll(async () => await api[Symbol.asyncDispose]());

const ledger = async (search = ''): Promise<Answer> => await api.get(`/v1/ledger${search}`);
const items = (answer: Answer): Record<string, unknown>[] => answer.json['items'] as Record<string, unknown>[];

test('without a filter it shows the last 24 hours', async () => {
  const answer = await ledger();
  expect(answer.status).toBe(200);
  expect(items(answer)).toHaveLength(1);
  expect(items(answer)[0]).toMatchObject({ type: 'mail.send', accepted: 1, inProgress: 1, difference: 0 });
  const [from, to] = [Date.parse(String(answer.json['from'])), Date.parse(String(answer.json['to']))];
  expect(to - from).toBe(24 * 3_600_000);
});

test('a line an hour and type, with their sum', async () => {
  const answer = await ledger(`?from=${OLD}&to=2025-12-08T22:00:01Z`);
  expect(answer.json).toMatchObject({
    from: OLD,
    to: '2025-12-08T23:00:00.000Z',
    totals: { accepted: 4, succeeded: 1, dead: 1, cancelled: 0, expired: 0, inProgress: 2, difference: 0 },
  });
  expect(items(answer)).toMatchObject([
    { type: 'mail.send', hour: OLD, accepted: 3, succeeded: 1, dead: 1, inProgress: 1 },
    { type: 'user.add', hour: OLD, accepted: 1, inProgress: 1 },
  ]);
  expect(items(await ledger(`?from=${OLD}&to=2025-12-09T00:00:00Z&type=user.add`))).toHaveLength(1);
  expect(items(await ledger(`?from=2025-12-08T23:00:00Z&to=2025-12-09T00:00:00Z`))).toEqual([]);
});

test.each([
  '?from=yesterday',
  '?hour=1',
  `?from=${OLD}&to=${OLD}`,
  '?from=2030-01-02T00:00:00Z&to=2030-01-01T00:00:00Z',
  '?from=2025-01-01T00:00:00Z&to=2025-03-01T00:00:00Z',
])('%s is refused', async (search) => {
  const answer = await ledger(search);
  expect([answer.status, answer.json['type']]).toEqual([400, 'field-invalid']);
});

test('a comparison shows with its instant, a difference with what was found, and the command line fails of it', async () => {
  const search = `?from=${OLD}&to=2025-12-09T00:00:00Z`;
  expect((await ledger(search)).json).not.toHaveProperty('comparedAt');
  await using audit = await openAudit(api.db.database);
  await audit.pass();
  const balanced = await ledger(search);
  expect(balanced.json['comparedAt']).toEqual(expect.any(String));
  expect(items(balanced)[0]).not.toHaveProperty('found');
  const args = ['ledger', '--url', api.url, '--from', OLD, '--to', '2025-12-09T00:00:00Z'];
  expect(await warren(args)).toMatchObject({ exitCode: 0, stdout: expect.stringContaining('Every line was compared') });

  await api.db.database.query({ text: 'delete from tasks where id = $1', values: [oldId(0)] });
  await audit.pass();
  expect(items(await ledger(search))[0]).toMatchObject({
    accepted: 3,
    succeeded: 1,
    difference: 1,
    found: { succeeded: 0, dead: 1, cancelled: 0, expired: 0, inProgress: 1 },
  });
  expect(await warren(args)).toMatchObject({
    exitCode: 1,
    stdout: expect.stringContaining('2025-12-08 22:00 mail.send: succeeded 1 but 0 found'),
  });
});
