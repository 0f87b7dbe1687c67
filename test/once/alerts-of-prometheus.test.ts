/**
 * A real Prometheus with the shipped rules watches a real fleet: alerts fire when something is wrong, and resolve when it is well again.
 * The rules are as shipped, but that each `for` is two seconds.
 */
// oxlint-disable jest/no-standalone-expect -- because testWith declares the tests
import { expect } from '@jest/globals';
import { dashboards, queriesOf } from '../support/dashboards.ts';
import { eventually } from '../support/eventually.ts';
import { openFleet } from '../support/fleet.ts';
import type { Fleet } from '../support/fleet.ts';
import { openPrometheus } from '../support/prometheus.ts';
import type { ListedAlert, TestPrometheus } from '../support/prometheus.ts';
import { prometheus, testWith } from '../support/tools.ts';

const SERVICES = ['producer', 'worker', 'dead-letter-handler'] as const;

/** What lives of the fleet is scraped from now on. */
async function scrape(fleet: Fleet, server: TestPrometheus): Promise<void> {
  const living = SERVICES.map((service) => [
    `warren-${service}`,
    fleet.all(service).flatMap((process) => (process.exitCode === undefined ? [process.url] : [])),
  ]);
  await server.scrape(Object.fromEntries(living) as Record<string, string[]>);
}

const firing = async (server: TestPrometheus): Promise<readonly ListedAlert[]> =>
  (await server.alerts()).filter(({ state }) => state === 'firing');
const namesOf = async (server: TestPrometheus): Promise<readonly string[]> =>
  (await firing(server)).map(({ labels }) => labels['alertname'] ?? '').toSorted();

testWith(
  prometheus,
  'a queue without workers is an alert until workers are there; so is a database that is away; and all queries are answered',
  async (path) => {
    await using fleet = await openFleet({ producers: 2, deadLetterHandlers: 1, through: ['postgres'] });
    await using server = await openPrometheus(path);
    await scrape(fleet, server);

    // Well: what is asked for is there, from two producers once, and nothing fires.
    await eventually(async () => {
      expect((await server.query('warren_build_info')).length).toBe(4);
      expect(await server.query('sum by (queue) (warren_workers_alive)')).toEqual([
        { metric: { queue: 'default' }, value: 1 },
      ]);
      expect((await server.query('warren_outbox_max_invitations')).length).toBe(1);
      expect(await server.query('count(warren_dead_letters_open)')).toEqual([{ metric: {}, value: 1 }]);
    });
    await fleet.submit({}, {}, { input: { failures: 1 } });
    await fleet.ended();
    await eventually(async () => expect(await namesOf(server)).toEqual([]));

    await fleet.worker(0).terminate();
    await scrape(fleet, server);
    await fleet.submit({}, {}, {});
    await eventually(
      async () => {
        const found = (await firing(server)).find(({ labels }) => labels['alertname'] === 'WarrenQueueWithoutWorkers');
        expect(found).toMatchObject({
          labels: { queue: 'default', severity: 'critical' },
          annotations: {
            summary: '3 tasks wait in default, and no living worker takes them.',
            runbook_url: 'docs/runbooks.md#warrenqueuewithoutworkers',
          },
        });
      },
      { withinMs: 60_000 },
    );

    await fleet.start('worker').ready();
    await scrape(fleet, server);
    await fleet.ended();
    await eventually(async () => expect(await namesOf(server)).toEqual([]), { withinMs: 60_000 });

    fleet.postgresProxy.refuse();
    fleet.postgresProxy.cut();
    await eventually(async () => expect(await namesOf(server)).toContain('WarrenDatabaseAway'), { withinMs: 60_000 });
    fleet.postgresProxy.accept();
    await eventually(async () => expect(await namesOf(server)).not.toContain('WarrenDatabaseAway'), {
      withinMs: 60_000,
    });

    const rules = await server.rules();
    expect(rules.length).toBeGreaterThan(25);
    expect(rules.filter(({ health }) => health !== 'ok')).toEqual([]);
    const queries = dashboards.flatMap((dashboard) => queriesOf(dashboard));
    const answers = await Promise.all(queries.map(async ({ plain }) => await server.query(plain)));
    expect(answers).toHaveLength(queries.length);
  },
  400_000,
);
