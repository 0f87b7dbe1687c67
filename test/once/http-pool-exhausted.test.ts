/** The HTTP API while every connection to Postgres is in use: refusals in time, and health that answers. */
import { afterAll, beforeAll, expect, test } from '@jest/globals';
import { eventually } from '../support/eventually.ts';
import { aType, openTaskApi } from '../support/task-api.ts';
import type { TestTaskApi } from '../support/task-api.ts';

const CONNECTIONS = 2;

let api: TestTaskApi;
beforeAll(async () => {
  api = await openTaskApi([aType('mail.send')], { database: { max: CONNECTIONS, connectTimeoutMs: 2_000 } });
});
afterAll(async () => await api[Symbol.asyncDispose]());

test('submissions and looks are answered 503 in time, health answers at once, and all works once a connection is free', async () => {
  const { database } = api.db;
  const held = await Promise.all(Array.from({ length: CONNECTIONS }, async () => await database.checkOut()));
  const asked = [
    ...Array.from({ length: 20 }, async () => await api.post('/v1/tasks', '{"type":"mail.send","input":{}}')),
    api.get('/v1/tasks'),
  ];
  await eventually(() => expect(database.stats.waiting).toBeGreaterThan(0));
  expect((await api.get('/livez')).status).toBe(200);
  expect((await api.get('/readyz')).status).toBe(200);
  expect(database.stats.waiting).toBeGreaterThan(0); // health did not wait for a connection
  for (const { status, json, headers } of await Promise.all(asked)) {
    expect({ status, type: json['type'] }).toEqual({ status: 503, type: 'database-unavailable' });
    expect(Number(headers.get('retry-after'))).toBeGreaterThan(0);
  }
  expect(database.isAvailable).toBe(true); // it is our own load: nothing pauses because of it
  for (const connection of held) connection.release(false);
  expect((await api.post('/v1/tasks', '{"type":"mail.send","input":{}}')).status).toBe(202);
});
