import { randomUUID } from 'node:crypto';
import { createServer } from 'node:net';
import type { AddressInfo } from 'node:net';
import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import { classifyFailure } from '../../../shared/postgres/failure.ts';
import { run, sql, statement } from '../../../shared/postgres/statement.ts';
import { inTransaction } from '../../../shared/postgres/transaction.ts';
import { systemClock } from '../../../shared/time/clock.ts';
import { aDatabase, openEmptyDatabase } from '../../support/database.ts';
import type { TestDatabase } from '../../support/database.ts';

const soon = (): number => systemClock.monotonicMs() + 1_000;

const echo = statement<
  [
    texts: readonly (string | null)[],
    bytes: readonly (Buffer | null)[],
    times: readonly (Date | null)[],
    numbers: readonly (number | null)[],
    big: string,
    day: string,
    flags: readonly (boolean | null)[],
  ]
>()({
  name: 'test_echo',
  text: sql`
    select $1::text[] as texts, $2::bytea[] as bytes, $3::timestamptz[] as times, $4::float8[] as numbers,
           $5::int8 as big, $6::date as day, $7::bool[] as flags, now() as at, '{"a":1}'::jsonb as document,
           current_setting('search_path') as path`,
  columns: {
    texts: 'text[]',
    bytes: 'bytea[]',
    times: 'timestamptz[]',
    numbers: 'float8[]',
    big: 'int8',
    day: 'date',
    flags: 'bool[]',
    at: 'timestamptz',
    document: 'jsonb',
    path: 'text',
  },
});

let db: TestDatabase;
beforeAll(async () => {
  db = await openEmptyDatabase();
  await db.database.query({ text: 'create schema warren' });
  await db.database.query({ text: 'create table pairs (id int primary key, n int not null)' });
  await db.database.query({ text: 'insert into pairs values (1, 0), (2, 0)' });
});
afterAll(async () => {
  await db[Symbol.asyncDispose]();
});

describe('values', () => {
  test('arrays of every kind, nulls and specials come back as they went', async () => {
    const texts = ['plain', null, '', 'NULL', 'a"b\\c,{d}', 'ünï\ncode', '__proto__'];
    const bytes = [Buffer.from([0, 1, 92, 120, 255]), null, Buffer.alloc(0)];
    const times = [new Date('2026-11-29T12:00:00.123Z'), null];
    const [row] = await run(
      db.database,
      echo,
      texts,
      bytes,
      times,
      [1.5, null, -0.25],
      '9007199254740993',
      '2026-02-03',
      [true, null, false],
    );
    expect(row).toMatchObject({
      texts,
      bytes,
      times,
      numbers: [1.5, null, -0.25],
      big: '9007199254740993',
      day: '2026-02-03',
      flags: [true, null, false],
      document: { a: 1 },
      path: 'warren',
    });
    expect(row?.at.getTime()).toBeGreaterThan(0);
  });

  test('U+0000 is bad data and leaves the connection usable', async () => {
    const failed = await run(db.database, echo, ['a\0b'], [], [], [], '1', '2026-01-01', []).catch((e: unknown) => e);
    expect(classifyFailure(failed)).toBe('bad-data');
    expect(await db.database.query({ text: 'select 1 as one' })).toMatchObject({ rows: [{ one: 1 }], affected: 1 });
  });
});

describe('availability', () => {
  test('sessions ended by the server, idle or busy, do not end the process', async () => {
    await using other = await openEmptyDatabase();
    const { database } = other;
    for (let round = 0; round < 20; round += 1) {
      await Promise.allSettled([database.query({ text: 'select 1' }), database.query({ text: 'select 2' })]);
      await db.database.query({
        text: 'select pg_terminate_backend(pid) from pg_stat_activity where datname = $1',
        values: [new URL(other.url).pathname.slice(1)],
      });
    }
    while (!(await database.ping(2_000)).isAvailable); // the pool learns of dead connections one by one
    const connection = await database.checkOut();
    const { rows } = await connection.query({ text: 'select pg_backend_pid() as pid' });
    const busy = connection.query({ text: 'select pg_sleep(30)' }).catch((thrown: unknown) => thrown);
    await db.database.query({ text: 'select pg_terminate_backend($1)', values: [(rows as { pid: number }[])[0]?.pid] });
    expect(await busy).toMatchObject({ code: 'database-unavailable' });
    connection.release(true);
    expect(await database.ping(2_000)).toEqual({ isAvailable: true });
    expect(database.isAvailable).toBe(true);
  });

  test('with every connection in use the next caller is refused in time and waiters are counted', async () => {
    const small = aDatabase(db.url, { max: 1, connectTimeoutMs: 300 });
    await small.connectOrThrow();
    const held = await small.checkOut();
    const refused = small.query({ text: 'select 1' }).catch((thrown: unknown) => thrown);
    expect(small.stats).toEqual({ total: 1, idle: 0, waiting: 1 });
    expect(await refused).toMatchObject({ code: 'database-unavailable' });
    expect(small.isAvailable).toBe(true); // Postgres is there: we are the ones who are busy
    held.release(false);
    expect(await small.ping(1_000)).toEqual({ isAvailable: true });
    await small.stop(soon());
  });

  test('a row held by somebody else is a lock timeout', async () => {
    const hasty = aDatabase(db.url, { lockTimeoutMs: 100 });
    await hasty.connectOrThrow();
    const failed = await inTransaction(db.database, async (tx) => {
      await tx.query({ text: 'update pairs set n = n where id = 1' });
      return await hasty.query({ text: 'update pairs set n = n where id = 1' }).catch((thrown: unknown) => thrown);
    });
    expect(failed).toMatchObject({ code: 'database-unavailable' });
    expect(classifyFailure(failed)).toBe('lock-timeout');
    await hasty.stop(soon());
  });

  test('a server that is not there fails no start and says why', async () => {
    const away = aDatabase('postgres://nobody:geheim@127.0.0.1:1/x');
    await away.start();
    expect(away.isAvailable).toBe(false);
    const failed: unknown = await away.query({ text: 'select 1' }).catch((thrown: unknown) => thrown);
    expect(failed).toMatchObject({
      code: 'database-unavailable',
      facts: { reason: expect.stringContaining('ECONNREFUSED') },
    });
    expect(JSON.stringify(failed)).not.toContain('geheim');
    expect(await away.ping(1_000)).toMatchObject({ isAvailable: false });
    await away.stop(soon());
  });

  test('users with any character in their names connect', async () => {
    const user = `p@:/#%?&\\_$ ü ${randomUUID()}`;
    await db.database.query({ text: `create role "${user}" login password 'p@:/#%?&\\_$'` });
    const url = new URL(db.url);
    url.username = encodeURIComponent(user);
    url.password = encodeURIComponent('p@:/#%?&\\_$');
    const database = aDatabase(url.href);
    await database.connectOrThrow();
    const { rows } = await database.query({ text: 'select current_user::text as name' });
    await database.stop(soon());
    await db.database.query({ text: `drop role "${user}"` });
    expect(rows).toEqual([{ name: user }]);
  });

  test('a server that never answers is given up in time', async () => {
    const server = createServer((socket) => socket.on('error', () => undefined));
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
    const { port } = server.address() as AddressInfo;
    const deaf = aDatabase(`postgres://x@127.0.0.1:${port}/x`, { connectTimeoutMs: 200 });
    await deaf.start();
    await expect(deaf.query({ text: 'select 1' })).rejects.toMatchObject({ code: 'database-unavailable' });
    await deaf.stop(soon());
    server.close();
  });

  test('a query past its own limit is cut and the next one works', async () => {
    const cut: unknown = await db.database
      .query({ text: 'select pg_sleep(20)', withinMs: 100 })
      .catch((thrown: unknown) => thrown);
    expect(cut).toMatchObject({ code: 'database-unavailable' });
    expect(await db.database.ping(1_000)).toEqual({ isAvailable: true });
  });

  test('start and stop twice are harmless, and stop cuts what is in use at its deadline', async () => {
    const database = aDatabase(db.url);
    await database.stop(soon());
    await database.start();
    await database.start();
    const held = await database.checkOut();
    const running = held.query({ text: 'select pg_sleep(20)', withinMs: 0 }).catch((thrown: unknown) => thrown);
    await database.stop(systemClock.monotonicMs() + 50);
    await database.stop(soon());
    expect(await running).toMatchObject({ code: 'database-unavailable' });
    await expect(database.query({ text: 'select 1' })).rejects.toMatchObject({ code: 'database-unavailable' });
  });

  test('the start of the server is known', async () => {
    expect((await db.database.serverStartedAt()).getTime()).toBeLessThan(systemClock.now().getTime());
  });
});

describe('inTransaction', () => {
  const readBoth = async (): Promise<unknown> =>
    (await db.database.query({ text: 'select n from pairs order by id' })).rows;

  test('what throws is rolled back', async () => {
    const before = await readBoth();
    await expect(
      inTransaction(db.database, async (tx) => {
        await tx.query({ text: 'update pairs set n = n + 1' });
        throw new Error('no');
      }),
    ).rejects.toThrow('no');
    expect(await readBoth()).toEqual(before);
  });

  test('two that deadlock both succeed', async () => {
    await db.database.query({ text: 'update pairs set n = 0' });
    let arrived = 0;
    const both = newGate();
    const cross = async (first: number, second: number): Promise<void> => {
      await inTransaction(db.database, async (tx) => {
        await tx.query({ text: 'update pairs set n = n + 1 where id = $1', values: [first] });
        arrived += 1;
        if (arrived === 2) both.open();
        if (arrived <= 2) await both.opened;
        await tx.query({ text: 'update pairs set n = n + 1 where id = $1', values: [second] });
      });
    };
    await Promise.all([cross(1, 2), cross(2, 1)]);
    expect(await readBoth()).toEqual([{ n: 2 }, { n: 2 }]);
    expect(arrived).toBe(3);
  });

  test('a swallowed failure is not taken for a commit', async () => {
    await expect(
      inTransaction(db.database, async (tx) => {
        await tx.query({ text: 'select nonsense' }).catch(() => undefined);
      }),
    ).rejects.toThrow('swallowed');
  });

  test('a session that ends inside is unavailable and its connection is not used again', async () => {
    await expect(
      inTransaction(
        db.database,
        async (tx) => await tx.query({ text: 'select pg_terminate_backend(pg_backend_pid())' }),
      ),
    ).rejects.toMatchObject({ code: 'database-unavailable' });
    expect(await db.database.ping(1_000)).toEqual({ isAvailable: true });
  });
});

function newGate(): { readonly opened: Promise<void>; readonly open: () => void } {
  let open = (): void => undefined;
  const opened = new Promise<void>((resolve) => {
    open = resolve;
  });
  return { opened, open: () => open() };
}
