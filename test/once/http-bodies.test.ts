/** Bodies and queries that are not as they should be, over real HTTP: whatever is wrong is named, and nothing is left out in silence. */
import { afterAll, beforeAll, expect, test } from '@jest/globals';
import { aType, openTaskApi } from '../support/task-api.ts';
import type { TestTaskApi } from '../support/task-api.ts';

let api: TestTaskApi;
beforeAll(async () => {
  api = await openTaskApi([aType('mail.send')]);
});
afterAll(async () => await api[Symbol.asyncDispose]());

const TASK = '{"type":"mail.send","input":{}}';
const ID = '019a0000-0000-7000-8000-000000000000';
const NO_NAME = 'is a name that nothing here can have';

test.each([
  ['a flow', '/v1/flows', `{"name":"f","steps":{"__proto__":${TASK}}}`, 'steps.__proto__', NO_NAME],
  ['a flow', '/v1/flows', `{"name":"f","steps":{"a":{"type":"mail.send","x":1}}}`, 'steps.a.x', 'allowed are type, '],
  ['a flow', '/v1/flows', '{"name":"f"}', 'steps', 'is required'],
  ['a signal', `/v1/flows/${ID}/signals/go`, '{"dat":1}', 'dat', 'allowed are data'],
  ['a retry of a flow', `/v1/flows/${ID}/retry`, '{"form":"a"}', 'form', 'allowed are from, reason'],
  ['a retry of flows', '/v1/flows/retry', '{}', 'reason', 'is required'],
  [
    'a task',
    '/v1/tasks',
    '{"type":"mail.send","input":{},"unique":{"key":"k","__proto__":1}}',
    'unique.__proto__',
    'allowed',
  ],
  ['a batch', '/v1/tasks/batch', `{"tasks":[${TASK}],"spread":1}`, 'spread', 'allowed are tasks, spreadMs'],
  ['a batch', '/v1/tasks/batch', `{"tasks":[]}`, 'tasks', 'must be a list of 1 to 1000 entries'],
  [
    'a fairness',
    '/v1/queues/default/fair',
    '{"key":"input.a","weights":{"__proto__":2}}',
    'weights.__proto__',
    NO_NAME,
  ],
  [
    'a fairness',
    '/v1/queues/default/fair',
    '{"key":"input.a","weights":{"a":0}}',
    'weights.a',
    'must be an integer from 1 to 100',
  ],
  ['a cancel of many', '/v1/tasks/cancel', '{"filter":7}', 'filter', 'must be a text of up to'],
])('of %s (%s) what is wrong is named: %s', async (_what, path, body, field, reason) => {
  const answer = await api.post(path, body);
  expect([answer.status, answer.json]).toEqual([
    400,
    expect.objectContaining({
      type: 'field-invalid',
      field,
      reason: expect.stringContaining(reason),
      faults: [{ code: 'field-invalid', field, reason: expect.stringContaining(reason) }],
    }),
  ]);
});

test.each([
  ['/v1/flows?stat=failed', 'stat', 'allowed are limit, cursor, name, state, businessType, businessKey'],
  ['/v1/flows?state=odd', 'state', 'must be one of pending, running, '],
  ['/v1/tasks?limit=many', 'limit', 'must be an integer from 1 to 200'],
  ['/v1/tasks?limit=1&limit=2', 'limit', 'must be an integer from 1 to 200'],
  [`/v1/tasks/${ID}/attempts/0/logs`, 'attempt', 'must be an integer from 1 to 2147483647'],
])('of %s what is wrong is named', async (path, field, reason) => {
  expect((await api.get(path)).json).toMatchObject({ status: 400, field, reason: expect.stringContaining(reason) });
});
