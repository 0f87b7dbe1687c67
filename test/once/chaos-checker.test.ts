/**
 * The checker of chaos against fleets that are broken on purpose: it has to find each, and nothing in one that is sound. All at
 * once, since most of their time is spent waiting for what does not come.
 */
import { randomUUID } from 'node:crypto';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, test } from '@jest/globals';
import { greetBroker } from '../../deploy/local-stack/greeting.ts';
import { FAULTS } from '../chaos/faults.ts';
import { renderViolations } from '../chaos/report.ts';
import { FLOWS, runChaos } from '../chaos/run.ts';
import { AMQP_URL } from '../support/broker.ts';
import { openDatabase } from '../support/database.ts';
import { sabotaged } from '../support/sabotage.ts';
import type { Sabotage } from '../support/sabotage.ts';

const SECONDS = 5;
/** Long enough for whatever is not lost: the outbox of a killed process is swept after two to ten seconds. */
const DRAIN_MS = 8_000;
/** What is lost for good does not come back however long one waits. */
const SHORT_DRAIN_MS = 4_000;

interface Fire {
  readonly faults: readonly string[];
  readonly kinds: readonly string[];
  readonly sabotage?: readonly Sabotage[];
  readonly drainMs: number;
  /** Default 2. */
  readonly workers?: number;
  /** Default 1. */
  readonly seed?: number;
}

/** The report of a short run; empty where every invariant held. */
async function reportOf({ faults, kinds, sabotage, drainMs, workers = 2, seed = 1 }: Fire): Promise<string> {
  const opened = await openDatabase();
  const dir = await mkdtemp(join(tmpdir(), 'warren-chaos-'));
  try {
    const { violations } = await runChaos({
      seed,
      seconds: SECONDS,
      drainMs,
      servers: {
        amqpUrl: AMQP_URL,
        databaseUrl: opened.url,
        brokerVersion: (await greetBroker(AMQP_URL, 5_000))?.version ?? 'unknown',
      },
      prefix: `t${randomUUID().replaceAll('-', '').slice(0, 12)}`,
      databaseUrl: opened.url,
      dir,
      faults: FAULTS.filter(({ name }) => faults.includes(name)),
      counts: {
        producer: 1,
        worker: workers,
        'dead-letter-handler': kinds.includes('malformed') || kinds.includes(FLOWS) ? 1 : 0,
      },
      perSecond: 40,
      kinds,
      // What is broken on purpose shall be seen: the reconciler would mend it.
      ...(sabotage === undefined
        ? {}
        : { env: { ...sabotaged(...sabotage), WARREN_RECONCILER_INTERVAL_MS: '600000' } }),
      tell: () => undefined,
    });
    return renderViolations(violations);
  } finally {
    await rm(dir, { recursive: true, force: true });
    await opened[Symbol.asyncDispose]();
  }
}

/** Whether a frozen worker held anything is a matter of how busy the machine is: the first of a few runs whose report shows it. */
async function reportShowing(what: RegExp, fire: Fire): Promise<string> {
  let report = '';
  for (let seed = 1; seed <= MOST_RUNS && !what.test(report); seed += 1) report = await reportOf({ ...fire, seed });
  return report;
}

const MOST_RUNS = 4;

test.concurrent('a sound fleet whose workers are killed and frozen breaks no invariant', async () => {
  const faults = ['worker killed', 'worker frozen past its lease'];
  expect(await reportOf({ faults, kinds: ['slow', 'flaky', 'malformed'], drainMs: 60_000 })).toBe('');
}, 360_000);

test.concurrent('a sound fleet breaks no invariant of flows either, whatever operators do to them while workers are killed', async () => {
  const faults = ['worker killed'];
  expect(await reportOf({ faults, kinds: ['fast', FLOWS], drainMs: 60_000 })).toBe('');
}, 360_000);

test.concurrent('a flow that is not told of the end of some steps stands still: invariant 1', async () => {
  const module = 'shared/tasks/beside.sql.js';
  const from = 'where flow_id is not null and (select';
  const sabotage = [{ module, from, to: `where right(flow_id::text, 1) < '8' and (select` }];
  const report = await reportOf({ faults: [], kinds: ['fast', FLOWS], workers: 1, sabotage, drainMs: SHORT_DRAIN_MS });
  expect(report).toContain('invariant 1 is broken: a flow has not ended');
}, 360_000);

test.concurrent('an ack before the claim loses what a killed worker had taken: invariant 1', async () => {
  const module = 'services/worker/attempt.js';
  const from = 'const invitation = parseInvitation(delivery.body);';
  const sabotage = [{ module, from, to: `${from} delivery.ack();` }];
  const report = await reportOf({ faults: ['worker killed'], kinds: ['slow'], sabotage, drainMs: DRAIN_MS });
  expect(report).toContain('invariant 1 is broken: a task has not ended');
}, 360_000);

test.concurrent('a settle without its fence lets a worker that was taken for dead settle once more: invariant 2', async () => {
  const module = 'services/worker/settles.sql.js';
  const sabotage = [
    { module, from: `and state = 'running' and attempt = d.attempt and claim_id = d.claim_id`, to: '' },
    { module, from: 't.attempt = d.attempt and t.claim_id = d.claim_id', to: 'true' },
    { module, from: `and t.attempt = l.attempt and t.claim_id = l.claim_id and t.state = 'running'`, to: '' },
  ];
  const faults = ['worker frozen past its lease'];
  // Nothing is lost by it, so however busy the machine is, all ends.
  const broken = /^invariant 2 is broken: /m;
  const report = await reportShowing(broken, { faults, kinds: ['slow'], sabotage, drainMs: 60_000 });
  // Settled twice, or settled as succeeded after somebody else had cancelled it or given it up.
  expect(report).toMatch(broken);
}, 900_000);

test.concurrent('an outbox row that is dropped instead of published loses its task: invariant 1', async () => {
  const module = 'shared/tasks/outbox.js';
  const from = 'await this.#deps.publish(invitation);';
  const sabotage = [{ module, from, to: `if (invitation.taskId.endsWith('0')) return; ${from}` }];
  const report = await reportOf({ faults: [], kinds: ['fast'], workers: 1, sabotage, drainMs: SHORT_DRAIN_MS });
  expect(report).toContain('invariant 1 is broken: a task has not ended');
}, 360_000);

test.concurrent('sabotage of a text that is not there ends the process, so that no test passes by mistake', async () => {
  const sabotage = [{ module: 'services/worker/attempt.js', from: 'no such text', to: '' }];
  await expect(
    reportOf({ faults: [], kinds: ['fast'], workers: 1, sabotage, drainMs: SHORT_DRAIN_MS }),
  ).rejects.toThrow(/worker-1 cannot start[\s\S]*sabotage: \S+attempt.js does not hold no such text/);
}, 360_000);
