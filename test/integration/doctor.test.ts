/** What doctor sees of the servers themselves: rights, room for the pools, a clock that is wrong, and policies of the broker. */
import { randomUUID } from 'node:crypto';
import { afterAll, beforeAll, expect, test } from '@jest/globals';
import { parseAddress } from '../../shared/amqp/address.ts';
import { systemClock } from '../../shared/time/clock.ts';
import { AMQP_URL, MANAGEMENT_URL, openBroker, removeTopology } from '../support/broker.ts';
import type { TestBroker } from '../support/broker.ts';
import { warren } from '../support/cli-io.ts';
import { openDatabase } from '../support/database.ts';
import type { TestDatabase } from '../support/database.ts';
import { eventually } from '../support/eventually.ts';
import { testWith } from '../support/tools.ts';

const NOWHERE = '127.0.0.1:1';

let db: TestDatabase;
let broker: TestBroker;
let env: Readonly<Record<string, string>>;
beforeAll(async () => {
  db = await openDatabase();
  broker = await openBroker();
  env = {
    DATABASE_URL: db.url,
    AMQP_URL,
    WARREN_PREFIX: broker.prefix,
    WARREN_URL: `http://${NOWHERE}`,
    WARREN_DEAD_LETTERS_URL: `http://${NOWHERE}`,
  };
  await warren(['topology', 'apply'], { env });
});
afterAll(async () => {
  await removeTopology(broker.prefix, ['default']);
  await broker[Symbol.asyncDispose]();
  await db[Symbol.asyncDispose]();
});

const lines = async (more: Readonly<Record<string, string>> = {}, args: readonly string[] = []): Promise<string> =>
  (await warren(['doctor', ...args], { env: { ...env, ...more } })).stdout;

test('a user without all rights is named, with what it may not use', async () => {
  const user = `u${randomUUID().replaceAll('-', '')}`;
  await db.database.query({
    text: `create role ${user} login password '${user}';
           grant usage on schema warren to ${user};
           grant select, insert, update, delete on all tables in schema warren to ${user};
           revoke delete on outbox, claims from ${user};
           revoke execute on function uuid_v7() from public`,
  });
  try {
    const url = new URL(db.url);
    url.username = user;
    url.password = user;
    const stdout = await lines({ DATABASE_URL: url.href });
    expect(stdout).toMatch(new RegExp(`^fail +rights +${user} may not use claims, outbox, uuid_v7$`, 'm'));
    expect(stdout).toMatch(/→ Grant select, insert, update and delete on all tables/);
  } finally {
    await db.database.query({
      text: `grant execute on function uuid_v7() to public; drop owned by ${user}; drop role ${user}`,
    });
  }
});

test('a clock that is wrong is told, and by how much', async () => {
  const late = { ...systemClock, now: () => new Date(systemClock.now().getTime() - 90_000) };
  const { stdout } = await warren(['doctor'], { env, clock: late });
  expect(stdout).toMatch(/^warn +clock +this machine's is (89|90)\.\d s behind that of Postgres$/m);
  expect(await lines()).toMatch(/^ok +clock +[01]\.\d s from that of Postgres$/m);
});

test('more connections than Postgres allows are foreseen, and task types that run longer than RabbitMQ waits are named', async () => {
  await db.database.query({
    text: `insert into leases (worker, host, pid, code_version, queues, task_types, slots)
           select gen_random_uuid(), 'h', n, 'v', '{"default": 10}', '{}', 10 from generate_series(1, 3) n;
           insert into queues (name) values ('default') on conflict do nothing;
           insert into task_types (name, queue, priority, timeout_ms, max_attempts, description, code_version)
           values ('video.cut', 'default', 4, 7200000, 3, '{}', 'v')`,
  });
  try {
    const stdout = await lines({ WARREN_POSTGRES_POOL_MAX: '1000' });
    expect(stdout).toMatch(/^warn +connections +\d+ of \d+ are open; the pools of 3 workers, .* may want [34]\d{3}$/m);
    expect(stdout).toMatch(/^ok +long tasks +acked at the start, .* longer than the 30 min .*: video\.cut$/m);
    expect(await lines({ WARREN_POSTGRES_POOL_MAX: '2' })).toMatch(/^ok +connections /m);
  } finally {
    await db.database.query({ text: 'delete from leases; delete from task_types' });
  }
});

// oxlint-disable jest/no-standalone-expect -- because testWith declares the test
testWith(
  { name: 'the management API', path: MANAGEMENT_URL },
  'a policy that changes our queues is told',
  async (url) => {
    const policy = `${broker.prefix}-policy`;
    const vhost = encodeURIComponent(parseAddress(AMQP_URL).vhost);
    const { origin, username, password } = new URL(url);
    const headers = { authorization: `Basic ${Buffer.from(`${username}:${password}`).toString('base64')}` };
    const address = `${origin}/api/policies/${vhost}/${policy}`;
    const calm = await lines({ MANAGEMENT_URL: url });
    expect(calm).toMatch(/^ok +policies +none changes our queues$/m);
    expect(calm).toMatch(/^ok +management +KEDA's rabbitmq trigger sees 0 messages of 1 queues, 0 of them unacked$/m);
    const body = JSON.stringify({
      pattern: `^${broker.prefix}\\.q\\.`,
      definition: { 'max-length': 10 },
      'apply-to': 'queues',
    });
    expect((await fetch(address, { method: 'PUT', headers, body })).ok).toBe(true);
    try {
      await eventually(async () =>
        expect(await lines({}, ['--management-url', url])).toMatch(
          new RegExp(`^warn +policies +${policy} sets max-length = 10 on default$`, 'm'),
        ),
      );
    } finally {
      await fetch(address, { method: 'DELETE', headers });
    }
  },
);

testWith(
  { name: 'the management API', path: MANAGEMENT_URL },
  'a wrong password of it is told, without the password',
  async (url) => {
    const wrong = new URL(url);
    wrong.password = 's3cret';
    const stdout = await lines({ MANAGEMENT_URL: wrong.href });
    expect(stdout).toMatch(/^fail +management +127\.0\.0\.1:\d+ answers 401$/m);
    expect(stdout).not.toContain('s3cret');
    const away = await lines({ MANAGEMENT_URL: `http://a:s3cret@${NOWHERE}` });
    expect(away).toMatch(/^fail +management +127\.0\.0\.1:1 .*/m);
    expect(away).not.toContain('s3cret');
    expect(await lines({ MANAGEMENT_URL: 'rabbit' })).toMatch(/^fail +management +its address is no URL$/m);
  },
);
