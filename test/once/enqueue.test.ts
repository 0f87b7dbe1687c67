/** Tasks accepted by the function of the database: as over HTTP, in the caller's transaction, with execute right only. */
import { randomUUID } from 'node:crypto';
import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import fc from 'fast-check';
import { readTrace } from '../../shared/observability/trace-context.ts';
import { limitKeyOf } from '../../shared/tasks/limit-key.ts';
import { openCallersPool } from '../support/callers-pool.ts';
import type { CallersPool } from '../support/callers-pool.ts';
import { eventually } from '../support/eventually.ts';
import { aType, openTaskApi } from '../support/task-api.ts';
import type { TestTaskApi } from '../support/task-api.ts';

let api: TestTaskApi;
let pool: CallersPool;
beforeAll(async () => {
  api = await openTaskApi([
    aType('mail.send', { queue: 'mail', priority: 6, retry: { maxAttempts: 7, firstDelayMs: 1, maxDelayMs: 1 } }),
    aType('user.add'),
    aType('warren.webhook'),
    aType('slow.import', { queue: 'draining' }),
    aType('tenant.sync', {
      concurrency: { limit: 2, key: 'input.tenant.id' },
      rate: { limit: 5, perMs: 1_000 },
    }),
  ]);
  await rowsOf(`update queues set mode = 'draining' where name = 'draining'`);
  await api.catalog.refreshAfterMiss();
  pool = openCallersPool(api.db.url, { max: 60 });
});
afterAll(async () => {
  await pool.end();
  await api[Symbol.asyncDispose]();
});

type Row = Readonly<Record<string, unknown>>;
const rowsOf = async (text: string, ...values: readonly unknown[]): Promise<readonly Row[]> =>
  (await api.db.database.query({ text, values })).rows as Row[];

interface Said {
  readonly id?: string | undefined;
  readonly duplicate?: boolean;
  /** Code and field. */
  readonly refused?: readonly [code: string, field: string];
}

/** What a body comes to by the function of the database. */
async function bySql(type: string, input: string, options: object = {}, on: CallersPool = pool): Promise<Said> {
  const text = 'select id, duplicate from warren.enqueue_task($1, $2, $3::jsonb)';
  try {
    const { rows } = await on.query<Said>(text, [type, input, JSON.stringify(options)]);
    return rows[0] ?? {};
  } catch (thrown) {
    const { constraint, column, message } = thrown as Record<string, string>;
    if (constraint === undefined || column === undefined) throw thrown;
    if (message?.startsWith(column) !== true) throw thrown;
    return { refused: [constraint, column] };
  }
}

/** The same over HTTP. */
async function byHttp(type: string, input: string, options: object = {}): Promise<Said> {
  const others = JSON.stringify(options).slice(1, -1);
  const body = `{"type":${JSON.stringify(type)},"input":${input}${others === '' ? '' : `,${others}`}}`;
  const answer = await api.post('/v1/tasks', body);
  const { id, duplicate, type: code, field } = answer.json;
  return answer.status < 300
    ? { id: String(id), duplicate: duplicate === true }
    : { refused: [String(code), String(field)] };
}

/** All that stands of a task, but for what two acceptances cannot share. */
async function recordOf(id: string | undefined): Promise<unknown> {
  if (id === undefined) return undefined;
  const [task] = await rowsOf('select to_jsonb(t) as task from tasks t where id = $1', id);
  const [due] = await rowsOf('select at from due where task_id = $1', id);
  const [outbox] = await rowsOf(
    'select types, queues, priorities, generations from outbox where $1 = any(task_ids)',
    id,
  );
  const [held] = await rowsOf('select reason, scope, key, priority from held_back where task_id = $1', id);
  const [callback] = await rowsOf('select callback, is_waiting from callbacks where task_id = $1', id);
  const [unique] = await rowsOf('select type, hold from unique_keys where task_id = $1', id);
  const { accepted_at: at, ...row } = (task?.['task'] ?? {}) as Record<string, string>;
  const after = (instant: string | null | undefined): number | null =>
    typeof instant === 'string' ? Math.round((Date.parse(instant) - Date.parse(at ?? '')) / 10_000) : null;
  // Invitations of one statement share a row of the outbox.
  const invited = outbox === undefined ? undefined : Object.values(outbox).map((list) => (list as unknown[])[0]);
  return {
    ...row,
    id: '',
    publisher: '',
    invited_at: after(row['invited_at']),
    run_at: after(row['run_at']),
    due: due === undefined ? undefined : after((due['at'] as Date).toISOString()),
    invited,
    held,
    callback,
    unique,
  };
}

describe('both doors', () => {
  const options = fc.record(
    {
      priority: fc.oneof(fc.integer({ min: -1, max: 10 }), fc.constantFrom(1.5, '5', 4.0)),
      queue: fc.constantFrom('mail', 'default', 'nowhere', 7, ''),
      delayMs: fc.constantFrom(0, 60_000, -1, 31_622_400_001, 1.5, '1'),
      runAt: fc.constantFrom('2001-01-01T00:00:00Z', '2099-01-01T00:00+02:00', '2030-02-30T00:00:00Z', '2030-01-01', 5),
      deadline: fc.constantFrom('2099-01-01T23:59:59.123456789Z', '9999-12-31T24:00:00Z', '1969-12-31T23:59:59Z', 'x'),
      maxAttempts: fc.constantFrom(1, 100, 0, 101),
      tags: fc.oneof(
        fc.array(fc.constantFrom('a', 'b', 'ß😀', 'x'.repeat(100)), { maxLength: 4 }),
        fc.constantFrom(
          ['x'.repeat(101)],
          Array.from({ length: 21 }, (_each, n) => `t${n}`),
          'a',
          [1],
          [''],
        ),
      ),
      businessKey: fc.constantFrom('order-1', '😀'.repeat(200), '😀'.repeat(201), ''),
      webhook: fc.constantFrom(
        { url: 'https://hooks.example.com/a' },
        { url: 'https://hooks.example.com/a', states: ['dead', 'succeeded', 'dead'] },
        { url: 'ftp://hooks.example.com' },
        { states: ['dead'] },
      ),
      unknown: fc.constant(1),
    },
    { requiredKeys: [] },
  );
  const rare = fc.oneof({ weight: 3, arbitrary: fc.constant({}) }, { weight: 7, arbitrary: options });

  test('accept and refuse the same, for the same field, and write the same rows', async () => {
    await fc.assert(
      fc.asyncProperty(
        fc.constantFrom('mail.send', 'user.add', 'tenant.sync', 'no.such', 'warren.webhook', 'slow.import'),
        fc.dictionary(fc.string(), fc.jsonValue({ maxDepth: 3 }), { maxKeys: 3 }),
        rare,
        async (type, input, asked) => {
          const text = JSON.stringify(input);
          const [http, sql] = [await byHttp(type, text, asked), await bySql(type, text, asked)];
          // Of several faults each door names the one that it meets first.
          const isClear = http.refused === undefined || Object.keys(asked).length === 1;
          const shown = ({ refused, ...said }: Said): unknown =>
            isClear ? { refused, ...said, id: '' } : { isRefused: refused !== undefined };
          expect(shown(sql)).toEqual(shown(http));
          expect(await recordOf(sql.id)).toEqual(await recordOf(http.id));
        },
      ),
      { numRuns: 80 },
    );
  });

  test.each<[string, string]>([
    ['an integer beyond 2^53', '{"a":[1,{"b c":9007199254740993}]}'],
    ['an integer with an exponent that is not exact', '{"a":123456789012345678901e1}'],
    ['an integer with an exponent that is exact', '{"a":1e21,"b":1.5e3,"c":-0.0,"d":0e999}'],
    ['a number beyond a double', '{"a":1e400}'],
    ['the largest number', '{"a":1.7976931348623157e308,"b":5e-324}'],
    ['a number below a double', '{"a":-1e-400}'],
    ['a fraction of many digits', '{"a":0.1234567890123456789}'],
    ['a pair of surrogates', '{"a":"\\ud83d\\ude00"}'],
    ['64 levels', '{"a":'.repeat(63) + '{}' + '}'.repeat(63)],
    ['65 levels', '{"a":'.repeat(64) + '{}' + '}'.repeat(64)],
    ['65 levels of lists', `{"a":${'['.repeat(64)}${']'.repeat(64)}}`],
    ['a list', '[]'],
    ['null', 'null'],
    ['white space and the names of Object.prototype', ' {\t"__proto__" : {"a":1} ,\n "constructor":[ ] }\r'],
  ])('judge an input with %s alike', async (_name, input) => {
    expect({ ...(await bySql('mail.send', input)), id: '' }).toEqual({ ...(await byHttp('mail.send', input)), id: '' });
  });

  test.each<[string, string, string]>([
    ['a member twice', '{"a":{"b":1,"\\u0062":2}}', 'body-invalid'],
    ['no JSON', '{"a":}', 'body-invalid'],
    ['a lone surrogate', '{"a":"\\ud800"}', 'text-invalid'],
    ['U+0000', '{"a":"\\u0000"}', 'text-invalid'],
    ['nothing', '', 'body-invalid'],
    ['40 000 levels', '['.repeat(40_000) + ']'.repeat(40_000), 'body-too-deep'],
    ['262 145 bytes', `{"a":"${'x'.repeat(262_137)}"}`, 'body-too-large'],
  ])('refuse an input with %s', async (_name, input, code) => {
    expect((await bySql('mail.send', input)).refused?.[0]).toBe(code);
    expect((await byHttp('mail.send', input)).refused?.[0]).toBe(code);
  });

  test.each<[object, string]>([
    [{ delayMs: 1, runAt: '2099-01-01T00:00:00Z' }, 'runAt'],
    [{ unique: { key: 'a' }, throttle: { key: 'a', withinMs: 5 } }, 'throttle'],
    [{ unique: {} }, 'unique.key'],
    [{ unique: { key: 'a', while: 'ever' } }, 'unique.while'],
    [{ unique: { key: 'a', while: 'waiting', withinMs: 5 } }, 'unique.withinMs'],
    [{ unique: { key: 'a', onConflict: 'explode' } }, 'unique.onConflict'],
    [{ unique: { key: 'x'.repeat(201) } }, 'unique.key'],
    [{ throttle: { key: 'a' } }, 'throttle.withinMs'],
    [{ throttle: { key: 'a', withinMs: 0 } }, 'throttle.withinMs'],
  ])('refuse %j by its field', async (asked, field) => {
    expect(await byHttp('mail.send', '{}', asked)).toEqual({ refused: ['field-invalid', field] });
    expect(await bySql('mail.send', '{}', asked)).toEqual({ refused: ['field-invalid', field] });
  });

  test.each<[object, string]>([
    [{ debounce: { key: 'a', delayMs: 5 } }, 'debounce'],
    [{ unique: { key: 'a', onConflict: 'replace' } }, 'unique.onConflict'],
  ])('differ where a task that waits would be edited: %j is for HTTP alone', async (asked, field) => {
    expect((await byHttp('mail.send', '{}', asked)).refused).toBeUndefined();
    expect(await bySql('mail.send', '{}', asked)).toEqual({ refused: ['field-invalid', field] });
  });

  test('let a task wait for its turn under the same key, where its queue is fair', async () => {
    await api.db.database.query({ text: `update queues set fair_by = 'input.tenant' where name = 'mail'` });
    const holds = async (id: string | undefined): Promise<readonly Row[]> =>
      await rowsOf('select reason, scope, key from held_back where task_id = $1', id);
    const input = '{"tenant":{"n":1.50}}';
    await eventually(async () => {
      expect(await holds((await byHttp('user.add', input, { queue: 'mail' })).id)).toHaveLength(1);
    });
    for (const tenant of ['"ü"', '7', 'null', '[1, "a"]', `"${'x'.repeat(201)}"`]) {
      const text = `{"tenant":${tenant}}`;
      const [http, sql] = [
        await byHttp('user.add', text, { queue: 'mail' }),
        await bySql('user.add', text, { queue: 'mail' }),
      ];
      expect(await holds(http.id)).toMatchObject([{ reason: 'turn', scope: 'mail' }]);
      expect(await holds(sql.id)).toEqual(await holds(http.id));
      expect(await recordOf(sql.id)).toEqual(await recordOf(http.id));
    }
    await api.db.database.query({ text: `update queues set fair_by = null where name = 'mail'` });
    await eventually(async () => {
      expect(await holds((await byHttp('user.add', input, { queue: 'mail' })).id)).toEqual([]);
    });
  });

  test('count a task under the same key of a limit, whatever the key is', async () => {
    await fc.assert(
      fc.asyncProperty(
        fc.oneof(
          fc.string({ unit: 'grapheme' }),
          fc.double({ noNaN: true, noDefaultInfinity: true }),
          fc.jsonValue({ maxDepth: 3 }),
          fc.constantFrom('x'.repeat(201), '😀'.repeat(200), '😀'.repeat(201), 1e21, 1e-7, -0, {
            10: 1,
            9: 2,
            b: 3,
            a: 4,
          }),
        ),
        fc.constantFrom('input.tenant', 'input.tenant.id', 'input.tenant.0', 'input.tenant.length', 'input.tenant.01'),
        async (tenant, path) => {
          const input = { tenant };
          const [row] = await rowsOf('select limit_key($1, $2::json) as key', path, JSON.stringify(input));
          expect(row?.['key']).toBe(limitKeyOf(path, JSON.parse(JSON.stringify(input))));
        },
      ),
      { numRuns: 150 },
    );
  });
});

describe('a call', () => {
  test('keeps the bytes of a text, and takes jsonb', async () => {
    const input = '{ "n" : 1.10e2,\n\t"é":"\\u00e9" }';
    const { id } = await bySql('user.add', input);
    expect((await rowsOf('select input from tasks where id = $1', id))[0]?.['input']).toEqual(Buffer.from(input));
    const { rows } = await pool.query(
      `select warren.enqueue('user.add', jsonb_build_object('n', 1), '{"priority": 9}') as id`,
    );
    const [task] = await rowsOf(
      'select priority, publisher, convert_from(input, $2) as input from tasks where id = $1',
      (rows[0] as Row)['id'],
      'UTF8',
    );
    const [we] = await rowsOf('select session_user as name');
    expect(task).toEqual({ priority: 9, publisher: `sql:${String(we?.['name'])}`, input: '{"n": 1}' });
  });

  test('that is rolled back leaves nothing, and one that commits is in the books and invited at once', async () => {
    const client = await pool.connect();
    const before = await rowsOf('select count(*)::int4 as n from tasks');
    await client.query('begin');
    await client.query(`select warren.enqueue('user.add', '{}', '{"unique": {"key": "rolled back"}}')`);
    await client.query('rollback');
    expect(await rowsOf('select count(*)::int4 as n from tasks')).toEqual(before);
    expect((await bySql('user.add', '{}', { unique: { key: 'rolled back' } })).duplicate).toBe(false);
    await client.query('begin');
    const { rows } = await client.query(`select warren.enqueue('user.add', '{}') as id`);
    const { id } = rows[0] as { id: string };
    expect(await rowsOf('select 1 from tasks where id = $1', id)).toEqual([]);
    await client.query('commit');
    client.release();
    expect(await rowsOf('select retry_at <= now() as is_due from outbox where $1 = any(task_ids)', id)).toEqual([
      { is_due: true },
    ]);
    const [books] = await rowsOf(`
      select (select sum(tasks) from ledger_entries where entry = 'accepted')::int4 as counted, (select count(*) from tasks)::int4 as there`);
    expect(books?.['counted']).toBe(books?.['there']);
  });

  test('under a unique key of 50 callers at once makes one task, in whatever way they come', async () => {
    for (const onConflict of ['return', 'reject']) {
      const rule = { unique: { key: `fifty ${onConflict}`, onConflict } };
      const all = await Promise.all(
        Array.from({ length: 50 }, async (_each, n) => await (n % 5 === 0 ? byHttp : bySql)('user.add', '{}', rule)),
      );
      expect(all.filter(({ duplicate }) => duplicate === false)).toHaveLength(1);
      const said = new Set(
        all.map(({ id, refused }) => (refused === undefined ? `task ${id ?? ''}` : refused.join(' '))),
      );
      const one = `task ${all.find(({ duplicate }) => duplicate === false)?.id ?? ''}`;
      expect(said).toEqual(new Set(onConflict === 'return' ? [one] : [one, 'unique-conflict unique.key']));
    }
  });

  test('under a key that nobody holds any more takes it over', async () => {
    const rule = { unique: { key: 'ended' } };
    const first = await bySql('user.add', '{}', rule);
    expect(await bySql('user.add', '{}', rule)).toEqual({ id: first.id, duplicate: true });
    await rowsOf(`update tasks set state = 'cancelled', finished_at = now() where id = $1`, first.id);
    expect((await bySql('user.add', '{}', rule)).duplicate).toBe(false);
  });

  test('under an idempotency key comes again without a second task, and never with other content', async () => {
    const key = { idempotencyKey: 'call 1' };
    const all = await Promise.all(Array.from({ length: 20 }, async () => await bySql('user.add', '{"n":1}', key)));
    expect(new Set(all.map(({ id }) => id)).size).toBe(1);
    expect(all.filter(({ duplicate }) => duplicate === false)).toHaveLength(1);
    expect(await bySql('user.add', '{"n":2}', key)).toEqual({ refused: ['idempotency-key-reused', 'idempotencyKey'] });
    // A call that was answered with another's task is answered so again.
    const unique = { unique: { key: 'of another' } };
    const holder = await bySql('user.add', '{}', unique);
    const answered = { id: holder.id, duplicate: true };
    expect(await bySql('user.add', '{}', { ...unique, idempotencyKey: 'call 2' })).toEqual(answered);
    await rowsOf(`update tasks set state = 'cancelled', finished_at = now() where id = $1`, holder.id);
    expect(await bySql('user.add', '{}', { ...unique, idempotencyKey: 'call 2' })).toEqual(answered);
  });

  test('that says in which trace it stands is the same call in another, and reads what it says as other doors do', async () => {
    const parent = '00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01';
    const options = { traceparent: parent, tracestate: 'a=1, b=2', idempotencyKey: 'traced' };
    const first = await bySql('user.add', '{}', options);
    const [row] = await rowsOf('select trace from tasks where id = $1', first.id);
    expect(row).toEqual({ trace: `${parent} a=1,b=2` });
    const again = await bySql('user.add', '{}', { ...options, traceparent: 'nonsense' });
    expect(again).toEqual({ id: first.id, duplicate: true });
    const without = await bySql('user.add', '{}', { traceparent: 7 });
    expect(await rowsOf('select trace from tasks where id = $1', without.id)).toEqual([{ trace: null }]);

    const hex = (digits: number): fc.Arbitrary<string> =>
      fc.oneof(
        fc.string({ unit: fc.constantFrom('0', '1', '7', '9', 'a', 'c', 'f'), minLength: digits, maxLength: digits }),
        fc.constant('0'.repeat(digits)),
        fc.string({ maxLength: digits }),
      );
    const traceparents = fc
      .tuple(
        fc.constantFrom('00', '01', 'ff', 'cc', '0'),
        hex(32),
        hex(16),
        hex(2),
        fc.constantFrom('', '', '-x', 'x', ' '),
      )
      .map(([version, trace, span, flags, more]) => `${version}-${trace}-${span}-${flags}${more}`);
    const member = fc.tuple(fc.constantFrom('a', 'b@c', '0', '', 'A', 'a b'), fc.string({ maxLength: 300 }));
    const tracestates = fc
      .array(member, { maxLength: 34 })
      .map((members) => members.map(([key, value]) => `${key}=${value}`).join(','));
    const storable = (text: string): boolean => !text.includes('\0');
    await fc.assert(
      fc.asyncProperty(traceparents.filter(storable), tracestates.filter(storable), async (traceparent, tracestate) => {
        const [read] = await rowsOf('select read_trace($1, $2) as trace', traceparent, tracestate);
        expect(read).toEqual({ trace: readTrace(traceparent, tracestate) ?? null });
      }),
      { numRuns: 500 },
    );
  });

  test('says what is wrong as an SQLSTATE too', async () => {
    const stateOf = async (type: string, input: string, options = '{}'): Promise<unknown> =>
      await pool.query('select warren.enqueue($1, $2::text, $3)', [type, input, options]).then(
        () => 'accepted',
        (thrown: unknown) => (thrown as { code?: unknown }).code,
      );
    expect(await stateOf('no.such', '{}')).toBe('42704');
    expect(await stateOf('user.add', '{')).toBe('22P02');
    expect(await stateOf('user.add', '{}', '{"priority":10}')).toBe('22023');
    expect(await stateOf('user.add', '{}', '[]')).toBe('22023');
    expect(await stateOf('user.add', '{"a":1e999}')).toBe('22003');
  });
});

describe('a user with nothing but the right to execute', () => {
  const user = `warren_test_${randomUUID().replaceAll('-', '').slice(0, 16)}`;
  let theirs: CallersPool;
  beforeAll(async () => {
    await rowsOf(`create role ${user} login password '${user}'`);
    await rowsOf(`grant usage on schema warren to ${user}`);
    theirs = openCallersPool(api.db.url, { user, password: user });
  });
  afterAll(async () => {
    await theirs.end();
    await rowsOf(`drop owned by ${user}`);
    await rowsOf(`drop role ${user}`);
  });

  test('can enqueue, and can read and write nothing', async () => {
    const enqueue = async (): Promise<unknown> => await theirs.query(`select warren.enqueue('user.add', '{}') as id`);
    await expect(enqueue()).rejects.toMatchObject({ code: '42501' });
    await rowsOf(
      `grant execute on function enqueue_task, enqueue(text, text, jsonb), enqueue(text, jsonb, jsonb) to ${user}`,
    );
    expect(await enqueue()).toMatchObject({ rows: [{ id: expect.any(String) }] });
    const [task] = await rowsOf('select publisher from tasks order by id desc limit 1');
    expect(task).toEqual({ publisher: `sql:${user}` });
    const tables = (await rowsOf(`select tablename from pg_tables where schemaname = 'warren'`)).map(({ tablename }) =>
      String(tablename),
    );
    expect(tables.length).toBeGreaterThan(20);
    for (const table of tables) {
      await expect(theirs.query(`select 1 from warren.${table}`)).rejects.toMatchObject({ code: '42501' });
      await expect(theirs.query(`delete from warren.${table}`)).rejects.toMatchObject({ code: '42501' });
    }
  });

  test('cannot put tables of their own in the place of ours', async () => {
    const client = await theirs.connect();
    try {
      await client.query('create temporary table task_types (like warren.task_types)').catch(() => undefined);
      await client.query('create temporary table tasks (id uuid, input bytea)');
      await client.query('create temporary table outbox (id bigint)');
      await client.query('set search_path = pg_temp, public');
      const { rows } = await client.query(`select warren.enqueue('user.add', '{"mine":1}') as id`);
      expect(await rowsOf('select 1 as there from tasks where id = $1', (rows[0] as Row)['id'])).toHaveLength(1);
      expect((await client.query('select 1 from pg_temp.tasks')).rows).toEqual([]);
    } finally {
      client.release(true);
    }
  });
});

test('settings of the caller change nothing: not how numbers, dates and texts are written', async () => {
  const client = await pool.connect();
  try {
    for (const setting of [
      `extra_float_digits = -15`,
      `datestyle = 'German, DMY'`,
      `timezone = 'Asia/Kathmandu'`,
      `standard_conforming_strings = off`,
      `default_transaction_isolation = 'serializable'`,
    ]) {
      await client.query(`set ${setting}`);
    }
    const { rows } = await client.query('select warren.enqueue($1, $2::text, $3) as id', [
      'tenant.sync',
      '{"tenant":{"id":0.1234567890123456}}',
      '{"runAt":"2099-01-02T03:04:05.678Z"}',
    ]);
    const [task] = await rowsOf('select run_at, concurrency_key from tasks where id = $1', (rows[0] as Row)['id']);
    expect(task).toEqual({ run_at: new Date('2099-01-02T03:04:05.678Z'), concurrency_key: '0.1234567890123456' });
  } finally {
    client.release(true);
  }
});
