/** Exports over HTTP: whole letters, in order, no faster than they are read, and not for a client that has gone. */
import { afterAll, beforeAll, expect, test } from '@jest/globals';
import type { Readable } from 'node:stream';
import { exportLetters } from '../../services/dead-letter-handler/exporter.ts';
import { addDeadLetterRoutes } from '../../services/dead-letter-handler/http/dead-letters.routes.ts';
import { parseLetterFilter } from '../../services/dead-letter-handler/letter-filter.ts';
import { WarrenError } from '../../shared/errors/warren-error.ts';
import { HttpServer } from '../../shared/http/server.ts';
import { createMetrics } from '../../shared/observability/metrics.ts';
import { silentLogger } from '../../shared/observability/silent-log.ts';
import type { Transactional } from '../../shared/postgres/transaction.ts';
import { systemClock } from '../../shared/time/clock.ts';
import { rows } from '../support/core.ts';
import { openDatabase } from '../support/database.ts';
import type { TestDatabase } from '../support/database.ts';
import { eventually } from '../support/eventually.ts';
import { addLetter } from '../support/letters.ts';
import { SERVICE_PLANS } from '../support/task-api.ts';

const MANY = 1_200;

let opened: TestDatabase;
let server: HttpServer;
/** Whole letters that were read. */
let readLetters = 0;
/** From this letter on Postgres is away. */
let failsFrom = Number.POSITIVE_INFINITY;
const streams: Readable[] = [];

beforeAll(async () => {
  opened = await openDatabase({ settings: SERVICE_PLANS });
  await opened.database.query({
    text: `insert into dead_letters (id, kind, reason, queue, body)
           select uuid_v7(), 'foreign', 'maxlen', 'large', convert_to(repeat('x', 20000), 'UTF8') from generate_series(1, ${MANY})`,
  });
  const never = async (): Promise<never> => await Promise.reject(new Error('nobody calls this'));
  server = new HttpServer(
    {
      clock: systemClock,
      log: silentLogger,
      checks: [],
      metrics: createMetrics({ service: 'test', version: '', withProcess: false }),
      addRoutes: (app) => {
        app.addHook('onSend', async (_request, _reply, payload) => {
          if (typeof payload === 'object' && payload !== null && 'pipe' in payload) streams.push(payload as Readable);
          return await Promise.resolve(payload);
        });
        addDeadLetterRoutes(app, { db: counted(), replayer: { replay: never, discard: never } });
      },
    },
    { host: '127.0.0.1', port: 0, tokens: [], bodyBytes: 10_000, title: 'Test', version: '1' },
  );
  await server.start();
});
afterAll(async () => {
  await server.stop(systemClock.monotonicMs() + 1_000);
  await opened[Symbol.asyncDispose]();
});

function counted(): Transactional {
  const { database } = opened;
  return {
    deps: database.deps,
    checkOut: async () => await database.checkOut(),
    query: async (query) => {
      if (query.name === 'read_letter') readLetters += 1;
      if (readLetters >= failsFrom) throw new WarrenError('database-unavailable');
      return await database.query(query);
    },
  };
}

const get = async (path: string, signal?: AbortSignal): Promise<Response> =>
  await fetch(`${server.url ?? ''}/v1/dead-letters${path}`, signal === undefined ? {} : { signal });
const exported = (filter: string): string => `/export?filter=${encodeURIComponent(filter)}`;

test('each line is a whole letter as it is shown alone, newest first, of those that fit', async () => {
  const ids: string[] = [];
  for (const kind of ['task', 'refused', 'foreign'] as const) {
    ids.push(await addLetter(opened.database, { kind, queue: 'mixed', tags: ['a'] }));
  }
  await rows(
    opened.database,
    `insert into tasks (id, state, max_attempts, priority, type, queue, input, finished_at)
     select task_id, 'dead', 1, 4, 'test.noop', 'mixed', convert_to($1, 'UTF8'), now() from dead_letters where task_id is not null`,
    '{ "price": 1.10,\r\n  "text": "a\\nb" }',
  );
  await addLetter(opened.database, { state: 'discarded', queue: 'mixed' });
  const response = await get(exported('queue:mixed'));
  expect(response.headers.get('content-type')).toBe('application/jsonl; charset=utf-8');
  const lines = (await response.text()).split('\n');
  expect(lines.pop()).toBe('');
  const alone = await Promise.all(ids.toReversed().map(async (id) => await (await get(`/${id}`)).json()));
  expect(lines.map((line) => JSON.parse(line) as unknown)).toEqual(alone);
  expect(lines.at(-1)).toContain('"price": 1.10,');
});

test('an export of more than a page has every letter once', async () => {
  const lines = (await (await get('/export?queue=large')).text()).trimEnd().split('\n');
  const ids = lines.map((line) => (JSON.parse(line) as { readonly id: string }).id);
  expect(new Set(ids).size).toBe(MANY);
  expect(ids).toEqual(ids.toSorted().toReversed());
});

test('nothing is an empty answer', async () => {
  const response = await get(exported('tag:nothing'));
  expect({ status: response.status, text: await response.text() }).toEqual({ status: 200, text: '' });
});

test('a filter that cannot be read is a problem document', async () => {
  const response = await get(exported('x:y'));
  expect(response.status).toBe(400);
  expect(await response.json()).toMatchObject({ field: 'filter' });
});

test('letters are read no faster than the lines are taken', async () => {
  readLetters = 0;
  const lines = exportLetters(counted(), parseLetterFilter('queue:large'));
  for (let taken = 0; taken < 6; taken += 1) await lines.next();
  expect(readLetters).toBeLessThanOrEqual(8);
  await lines.return();
});

test('a client that goes ends the export', async () => {
  readLetters = 0;
  streams.length = 0;
  const gone = new AbortController();
  const response = await get('/export?queue=large', gone.signal);
  await response.body?.getReader().read();
  const [stream] = streams;
  expect(stream?.destroyed).toBe(false);
  gone.abort();
  await eventually(async () => {
    await Promise.resolve();
    expect(stream?.closed).toBe(true);
  });
  expect(readLetters).toBeLessThan(MANY);
});

test('where Postgres goes in the middle, the answer breaks off: nobody can take it for the whole', async () => {
  readLetters = 0;
  failsFrom = 100;
  const response = await get('/export?queue=large');
  expect(response.status).toBe(200);
  await expect(response.text()).rejects.toThrow('terminated');
  failsFrom = Number.POSITIVE_INFINITY;
});

test('where Postgres is away from the start, that is a problem document', async () => {
  readLetters = 0;
  failsFrom = 0;
  const response = await get('/export?queue=large');
  expect(response.status).toBe(503);
  failsFrom = Number.POSITIVE_INFINITY;
});

test('who took a copy, of what and why, is in the audit before the first letter is sent', async () => {
  const why = 'a look with other tools';
  const answer = await get(`${exported('queue:none reason:timeout')}&type=mail.send&why=${encodeURIComponent(why)}`);
  expect(await answer.text()).toBe('');
  const [line] = await rows(
    opened.database,
    `select actor, action, address, detail from audit where detail->>'reason' = $1`,
    why,
  );
  expect(line).toEqual({
    actor: 'local',
    action: 'dead-letters.export',
    address: '127.0.0.1',
    detail: { filter: 'queue:none reason:timeout', type: 'mail.send', reason: why },
  });
});

test.each([
  ['\0', 'text-invalid'],
  ['tag:a \0', 'text-invalid'],
  ['colour:red', 'field-invalid'],
])('a filter that cannot be read (%j) is refused, and nothing is written down', async (filter, type) => {
  const before = await rows(opened.database, 'select count(*) from audit');
  const answer = await get(exported(filter));
  expect(answer.status).toBe(400);
  expect(await answer.json()).toMatchObject({ type, field: 'filter' });
  expect(await rows(opened.database, 'select count(*) from audit')).toEqual(before);
});
