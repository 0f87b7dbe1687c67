/** What is counted of flows: their starts by whoever starts them, their ends by one producer from the table, without a scan of it. */
import { afterAll, beforeAll, expect, test } from '@jest/globals';
import { createFlowFigures } from '../../services/producer/flow-figures.ts';
import { countOpenFlows, listEndedFlows } from '../../services/producer/flow-figures.sql.ts';
import type { Part } from '../../shared/lifecycle/part.ts';
import { createMetrics } from '../../shared/observability/metrics.ts';
import type { Metrics } from '../../shared/observability/metrics.ts';
import { FleetFigures } from '../../shared/tasks/fleet-figures.ts';
import { systemClock } from '../../shared/time/clock.ts';
import { partDeps } from '../support/core.ts';
import { eventually } from '../support/eventually.ts';
import { openClient } from '../support/pg-client.ts';
import { aType, openTaskApi, SERVICE_PLANS } from '../support/task-api.ts';
import type { TestTaskApi } from '../support/task-api.ts';

let api: TestTaskApi;
const loops: Part[] = [];
beforeAll(async () => {
  api = await openTaskApi([aType('mail.send')]);
});
afterAll(async () => {
  await stopAll();
  await api[Symbol.asyncDispose]();
});

const SETTLE_MS = 300;
/** A producer that counts, or would. */
async function openProducer(): Promise<Metrics> {
  const metrics = createMetrics({ service: 'producer', version: '0', withProcess: false });
  const deps = { ...partDeps, db: api.db.database, metrics };
  const figures = new FleetFigures(deps, { name: 'fleet', intervalMs: 20, holdMs: 2_000 });
  const loop = createFlowFigures({ ...deps, figures }, { intervalMs: 20, settleMs: SETTLE_MS });
  loops.push(loop, figures);
  await figures.start();
  await loop.start();
  return metrics;
}

/** The one producer that counts, and has begun to. */
async function openCounting(): Promise<Metrics> {
  await stopAll();
  const metrics = await openProducer();
  await hasBegun(metrics);
  return metrics;
}

async function hasBegun(metrics: Metrics): Promise<void> {
  await eventually(async () => expect(await metrics.render()).toMatch(/^warren_flows_open\{state="pending"\} \d+$/m));
}

async function stopAll(): Promise<void> {
  for (const part of loops.splice(0)) await part.stop(systemClock.monotonicMs() + 2_000);
}

const query = async (text: string): Promise<unknown> => (await api.db.database.query({ text })).rows;
const addFlows = async (name: string, state: string, count: number, seconds = 1): Promise<void> => {
  const isOpen = state === 'pending' || state === 'running';
  await query(
    `insert into flows (id, name, state, on_failure, steps_total, steps_open, created_at, finished_at)
     select uuid_v7(), '${name}', '${state}', 'stop', 1, 0, clock_timestamp() - interval '${seconds} s',
            ${isOpen ? 'null::timestamptz' : 'clock_timestamp()'}
       from generate_series(1, ${count})`,
  );
};

const seriesOf = async (metrics: Metrics, name: string): Promise<readonly string[]> =>
  (await metrics.render()).split('\n').filter((line) => line.startsWith(name));

test('starts are counted by name, once each however often they are sent', async () => {
  const body = '{"name":"coupon","steps":{"a":{"type":"mail.send"}}}';
  for (const key of ['one', 'one', 'two']) await api.post('/v1/flows', body, { 'idempotency-key': key });
  await api.post('/v1/flows', '{"name":"coupon","dryRun":true,"steps":{"a":{"type":"mail.send"}}}');
  expect(await seriesOf(api.metrics, 'warren_flows_started_total')).toEqual([
    'warren_flows_started_total{flow="coupon"} 2',
  ]);
});

test('ends are counted by name and state from when the first producer began, with how long it took, by one producer', async () => {
  await addFlows('before', 'succeeded', 1);
  const producers = [await openCounting()];
  const idle = await openProducer();
  await addFlows('chain', 'succeeded', 3, 2);
  await addFlows('chain', 'failed', 1, 600);
  await addFlows('apart', 'partial', 1);
  for (const metrics of producers) {
    await eventually(async () =>
      expect(new Set(await seriesOf(metrics, 'warren_flows_ended_total'))).toEqual(
        new Set([
          'warren_flows_ended_total{flow="chain",state="succeeded"} 3',
          'warren_flows_ended_total{flow="chain",state="failed"} 1',
          'warren_flows_ended_total{flow="apart",state="partial"} 1',
        ]),
      ),
    );
    const seconds = await seriesOf(metrics, 'warren_flow_seconds');
    expect(seconds).toContain('warren_flow_seconds_bucket{flow="chain",le="1"} 0');
    expect(seconds).toContain('warren_flow_seconds_bucket{flow="chain",le="5"} 3');
    expect(seconds).toContain('warren_flow_seconds_bucket{flow="chain",le="900"} 4');
  }
  expect(await seriesOf(idle, 'warren_flows_ended_total{')).toEqual([]);
  expect(await seriesOf(idle, 'warren_flows_open{')).toEqual([]);
  // A flow that is retried ends again.
  await query(`update flows set state = 'running', finished_at = null where state = 'failed'`);
  await query(
    `update flows set state = 'succeeded', finished_at = clock_timestamp() where name = 'chain' and state = 'running'`,
  );
  await eventually(async () =>
    expect(await seriesOf(producers[0] as Metrics, 'warren_flows_ended_total')).toContain(
      'warren_flows_ended_total{flow="chain",state="succeeded"} 4',
    ),
  );
});

test('who takes over counts on from where the last one came to, what ended in between as well', async () => {
  const first = await openCounting();
  await addFlows('over', 'succeeded', 2);
  await eventually(async () =>
    expect(await seriesOf(first, 'warren_flows_ended_total{flow="over"')).toEqual([
      'warren_flows_ended_total{flow="over",state="succeeded"} 2',
    ]),
  );
  await stopAll();
  await addFlows('over', 'succeeded', 3);
  const second = await openCounting();
  await eventually(async () =>
    expect(await seriesOf(second, 'warren_flows_ended_total{flow="over"')).toEqual([
      'warren_flows_ended_total{flow="over",state="succeeded"} 3',
    ]),
  );
});

test('an end that is committed later than one after it is counted all the same', async () => {
  const metrics = await openCounting();
  await using slow = await openSlow();
  await addFlows('quick', 'succeeded', 1);
  await slow.commit();
  for (const name of ['quick', 'slow']) {
    await eventually(async () =>
      expect(await seriesOf(metrics, 'warren_flows_ended_total')).toContain(
        `warren_flows_ended_total{flow="${name}",state="succeeded"} 1`,
      ),
    );
  }
});

test('thousands that end at once are counted, and what is open by its state', async () => {
  const metrics = await openCounting();
  await addFlows('many', 'succeeded', 5_000);
  await addFlows('waits', 'running', 7);
  await eventually(async () => {
    expect(await seriesOf(metrics, 'warren_flows_ended_total{flow="many"')).toEqual([
      'warren_flows_ended_total{flow="many",state="succeeded"} 5000',
    ]);
    expect(await seriesOf(metrics, 'warren_flows_open{state="running"}')).toEqual([
      'warren_flows_open{state="running"} 7',
    ]);
  });
});

test('counting looks at what ended since, by an index, and not at the flows that there are', async () => {
  await query(
    `insert into flows (id, name, state, on_failure, steps_total, steps_open, finished_at)
     select uuid_v7(), 'old', 'succeeded', 'stop', 1, 0, now() - interval '1 day' from generate_series(1, 20000)`,
  );
  const texts = [
    `prepare ended (text, float8, int4) as ${listEndedFlows.text}`,
    `explain (analyze, format text) execute ended (clock_timestamp()::text, 0, 2000)`,
    `prepare open (int4) as ${countOpenFlows.text}`,
    `explain (analyze, format text) execute open (100000)`,
  ];
  for (const analyze of [false, true]) {
    await using client = await openClient(api.db.url);
    await client.query('set search_path = warren');
    for (const [name, value] of Object.entries(SERVICE_PLANS)) await client.query(`set ${name} = ${value}`);
    await client.query('set plan_cache_mode = force_generic_plan');
    if (analyze) await client.query('analyze flows');
    let plan = '';
    for (const text of texts) {
      const { rows } = await client.query<{ 'QUERY PLAN'?: string }>(text);
      plan += rows.map((row) => row['QUERY PLAN'] ?? '').join('\n');
    }
    expect(plan).toContain('flows_finished_at');
    expect(plan).toContain('flows_state');
    expect(plan).not.toMatch(/Seq Scan|flows_pkey/);
  }
});

/** A flow that ended in a transaction which is open still. */
async function openSlow(): Promise<{ commit(): Promise<void>; [Symbol.asyncDispose](): Promise<void> }> {
  const client = await openClient(api.db.url);
  await client.query('begin');
  await client.query(
    `insert into warren.flows (id, name, state, on_failure, steps_total, steps_open, finished_at)
     values (warren.uuid_v7(), 'slow', 'succeeded', 'stop', 1, 0, clock_timestamp())`,
  );
  return {
    commit: async () => void (await client.query('commit')),
    [Symbol.asyncDispose]: async () => await client[Symbol.asyncDispose](),
  };
}
