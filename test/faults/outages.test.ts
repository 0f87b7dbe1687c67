/** Postgres away, RabbitMQ away, both away, for longer than a lease: the fleet waits, and goes on by itself. */
import { expect, test } from '@jest/globals';
import { call } from '../../scripts/call.ts';
import { openBroker } from '../support/broker.ts';
import { eventually } from '../support/eventually.ts';
import { openFleet } from '../support/fleet.ts';
import type { Fleet } from '../support/fleet.ts';
import type { FaultyProxy } from '../support/faulty-proxy.ts';
import { IS_LONG_RUN } from '../support/long-run.ts';
import type { ServiceProcess } from '../support/service-process.ts';
import { expectSoundHistory } from '../support/soundness.ts';

const LEASE_MS = 2_000;
const OUTAGE_MS = IS_LONG_RUN ? 600_000 : 4_000;
const SLOW_BYTES_PER_SECOND = 20_000;
const WITHIN_MS = OUTAGE_MS + 90_000;

interface Readiness {
  readonly status: number;
  readonly checks: Readonly<Record<string, { readonly status: string }>>;
}

const open = async (): Promise<Fleet> =>
  await openFleet({
    workers: 2,
    deadLetterHandlers: 1,
    queues: 'default:4',
    leaseMs: LEASE_MS,
    through: ['broker', 'postgres'],
    env: {
      WARREN_AMQP_HEARTBEAT_SECONDS: '1',
      WARREN_AMQP_CONNECT_TIMEOUT_MS: '1000',
      WARREN_POSTGRES_CONNECT_TIMEOUT_MS: '3000',
      WARREN_POSTGRES_STATEMENT_TIMEOUT_MS: '1000',
    },
  });

test(
  'with Postgres silent for longer than a lease nobody is reaped, nothing is promised, and all runs once afterwards',
  async () => {
    await using fleet = await open();
    const throughout = await startLongTasks(fleet);
    fleet.postgresProxy.pause();
    await publishToFrontDoor(fleet, 20);
    await expectReadiness(fleet.worker(0), { status: 503, postgres: 'failing' });
    await expectReadiness(fleet.producer(), { status: 503, postgres: 'failing' });
    await expectReadiness(fleet.deadLetterHandler(), { status: 503, postgres: 'failing' });
    const refused = await call(fleet.producer().url, 'POST', '/v1/tasks', fleet.body({}));
    expect(refused).toMatchObject({ status: 503, body: { type: 'database-unavailable' } });
    await fleet.pass(OUTAGE_MS);
    expectAlive(fleet);
    fleet.postgresProxy.resume();
    await expectAllRanOnce(fleet, throughout.length + 20);
  },
  WITHIN_MS,
);

test(
  'with RabbitMQ silent the fleet is unready within some heartbeats, accepts over HTTP, and consumes again by itself',
  async () => {
    await using fleet = await open();
    const throughout = await startLongTasks(fleet);
    fleet.brokerProxy.pause();
    await expectReadiness(fleet.worker(0), { status: 503, rabbitmq: 'failing', 'consumer default': 'failing' });
    await expectReadiness(fleet.producer(), { status: 200, rabbitmq: 'degraded', 'front door': 'degraded' });
    const accepted = await fleet.submit({}, {}, {}, {}, {});
    expect(accepted).toHaveLength(5);
    await fleet.pass(OUTAGE_MS);
    expectAlive(fleet);
    fleet.brokerProxy.resume();
    await expectAllRanOnce(fleet, throughout.length + accepted.length);
    await expectReadiness(fleet.producer(), { status: 200, rabbitmq: 'ok', 'front door': 'ok' });
  },
  WITHIN_MS,
);

test(
  'with both away running tasks end, and their outcomes arrive once Postgres is back',
  async () => {
    await using fleet = await open();
    const throughout = await startLongTasks(fleet);
    for (const proxy of proxiesOf(fleet)) {
      proxy.refuse();
      proxy.cut();
    }
    await fleet.pass(OUTAGE_MS);
    expectAlive(fleet);
    for (const proxy of proxiesOf(fleet)) proxy.accept();
    await expectAllRanOnce(fleet, throughout.length);
    expect(await fleet.run()).toBe('succeeded');
  },
  WITHIN_MS,
);

test(
  'a Postgres that a failover made read-only is away until it takes writes: nobody is reaped, and all runs once',
  async () => {
    await using fleet = await open();
    const throughout = await startLongTasks(fleet);
    const { database } = fleet.database;
    const admin = await database.checkOut(); // a session that stays as it is
    const name = new URL(fleet.database.url).pathname.slice(1);
    await admin.query({ text: `alter database ${name} set default_transaction_read_only = on` });
    await admin.query({
      text: `select pg_terminate_backend(pid) from pg_stat_activity
            where datname = current_database() and application_name in
                  ('warren-producer', 'warren-worker', 'warren-dead-letter-handler', 'warren-lease')`,
    });
    await expectReadiness(fleet.worker(0), { status: 503, postgres: 'failing' });
    await expectReadiness(fleet.producer(), { status: 503, postgres: 'failing' });
    const refused = await call(fleet.producer().url, 'POST', '/v1/tasks', fleet.body({}));
    expect(refused).toMatchObject({ status: 503, body: { type: 'database-unavailable' } });
    await fleet.pass(OUTAGE_MS);
    expectAlive(fleet);
    await expectReadiness(fleet.worker(0), { status: 503, postgres: 'failing' });
    await admin.query({ text: `alter database ${name} reset default_transaction_read_only` });
    admin.release(false);
    await expectAllRanOnce(fleet, throughout.length);
    expect(await fleet.run()).toBe('succeeded');
  },
  WITHIN_MS,
);

test('an outbox that is full refuses with 503 and keeps its bound, and takes again once RabbitMQ has taken it', async () => {
  await using fleet = await openFleet({
    through: ['broker'],
    queues: 'default:100',
    env: { WARREN_PRODUCER_OUTBOX_MAX_ROWS: '1000' },
  });
  fleet.brokerProxy.refuse();
  fleet.brokerProxy.cut();
  await fleet.next('broker connection lost', { service: 'producer' });
  let accepted = 0;
  await eventually(async () => {
    const tasks = Array.from({ length: 100 }, () => fleet.body({}));
    const { status, body } = await call(fleet.producer().url, 'POST', '/v1/tasks/batch', { tasks });
    if (status === 200) accepted += tasks.length;
    expect({ status, type: body['type'] }).toEqual({ status: 503, type: 'outbox-full' });
  });
  expect(accepted).toBeGreaterThanOrEqual(1_000);
  expect(await fleet.books()).toMatchObject({ accepted, waiting: accepted });
  await expectReadiness(fleet.producer(), { status: 503, outbox: 'failing' });
  fleet.brokerProxy.accept();
  await expectAllRanOnce(fleet, accepted);
  expect(await fleet.run()).toBe('succeeded');
}, 270_000);

test('over slow links to both servers every task runs once', async () => {
  await using fleet = await open();
  for (const proxy of proxiesOf(fleet)) proxy.throttle(SLOW_BYTES_PER_SECOND);
  const ids = await fleet.submit(...Array.from({ length: 100 }, () => ({ input: { ms: 10 } })));
  expect(ids).toHaveLength(100);
  await expectAllRanOnce(fleet, 100);
  for (const proxy of proxiesOf(fleet)) proxy.resume();
}, 270_000);

const proxiesOf = (fleet: Fleet): readonly FaultyProxy[] => [fleet.brokerProxy, fleet.postgresProxy];

/** Starts tasks that end during the outage, and some that outlast it. */
async function startLongTasks(fleet: Fleet): Promise<readonly string[]> {
  const inputs = [{ ms: 1_500 }, { ms: OUTAGE_MS / 2 }, { ms: OUTAGE_MS + 1_000 }];
  const ids = await fleet.submit(...inputs.flatMap((input) => [{ input }, { input }]));
  await eventually(() => expect(fleet.entries()).toHaveLength(ids.length), { withinMs: 20_000 });
  // Tasks run, and no transaction is open for them.
  const { rows } = await fleet.database.database.query({
    text: `select query from pg_stat_activity
            where datname = current_database() and state like 'idle in transaction%'
              and state_change < clock_timestamp() - interval '1 s'`,
  });
  expect(rows).toEqual([]);
  return ids;
}

async function publishToFrontDoor(fleet: Fleet, count: number): Promise<void> {
  await using broker = await openBroker();
  for (let index = 0; index < count; index += 1) {
    const body = Buffer.from(JSON.stringify(fleet.body({})['input']));
    broker.raw.publish(fleet.names.tasks, 'fault.step', body, { persistent: true, messageId: `m${index}` });
  }
  await broker.raw.waitForConfirms();
}

async function expectReadiness(
  process: ServiceProcess,
  { status: wanted, ...statuses }: Readonly<Record<string, string | number>>,
): Promise<void> {
  await eventually(
    async () => {
      const answer = await fetch(`${process.url}/readyz`);
      const { checks } = (await answer.json()) as Readiness;
      const found = Object.fromEntries(Object.keys(statuses).map((name) => [name, checks[name]?.status]));
      expect({ status: answer.status, ...found }).toEqual({ status: wanted, ...statuses });
    },
    { withinMs: 20_000 },
  );
}

function expectAlive(fleet: Fleet): void {
  for (const service of ['producer', 'worker', 'dead-letter-handler'] as const) {
    for (const { exitCode } of fleet.all(service)) expect(exitCode).toBeUndefined();
  }
}

async function expectAllRanOnce(fleet: Fleet, count: number): Promise<void> {
  await eventually(
    async () => {
      await fleet.makeDue();
      expect(await fleet.books()).toMatchObject({ accepted: count, succeeded: count, dead: 0 });
    },
    { withinMs: 40_000, everyMs: 200 },
  );
  await fleet.ended();
  expect(await fleet.attempts()).toEqual([]);
  for (const service of ['producer', 'worker', 'dead-letter-handler'] as const) {
    await Promise.all(fleet.all(service).map(async (process) => await process.ready()));
  }
  await expectSoundHistory(fleet);
}
