/** What `warren doctor` asks the broker: version, alarms, topology, and queues that nobody serves. */
import type { AmqpConnection } from '../shared/amqp/connection.ts';
import { queueCounts } from '../shared/amqp/throwaway-channel.ts';
import { findDrift } from '../shared/amqp/topology-drift.ts';
import { namesOf } from '../shared/amqp/topology.ts';
import type { Config } from '../shared/config/schema.ts';
import type { CommandContext } from './context.ts';
import { failedFinding } from './doctor.ts';
import type { Finding } from './doctor.ts';
import { describeDrift } from './drift.ts';
import type { Seen } from './examine-database.ts';
import { wantedTopology, withBroker } from './installation.ts';

/** Findings. `seen` is what the database told; without it, only the configured queues are looked for. */
export async function examineBroker(
  context: CommandContext,
  config: Config,
  seen: Seen | undefined,
): Promise<readonly Finding[]> {
  try {
    return await withBroker(context, config, async (connection) => {
      const findings = [brokerFinding(connection)];
      const queues = seen?.queues ?? config.producer.declaredQueues;
      const deps = { connection, clock: context.io.clock };
      const drift = await findDrift(deps, wantedTopology(connection, config, queues));
      const missing = drift.filter(({ problem }) => problem === 'missing');
      if (missing.length > 0) {
        findings.push({
          check: 'topology',
          status: 'fail',
          message: `missing: ${missing.map(({ kind, name }) => `${kind} ${name}`).join(', ')}`,
          hint: 'Run `warren topology apply`; services also declare it at their start.',
        });
      }
      const differing = drift.filter(({ problem }) => problem === 'differs');
      findings.push(
        ...differing.map((found): Finding => ({
          check: 'topology',
          status: 'warn',
          message: describeDrift(found),
          hint: 'It works on; to change it, drain it, delete it, and run `warren topology apply`.',
        })),
      );
      if (drift.length === 0) findings.push({ check: 'topology', status: 'ok', message: 'as it should be' });
      if (seen !== undefined) findings.push(...(await queueFindings(context, config, { connection, seen })));
      return findings;
    });
  } catch (thrown) {
    return [failedFinding('rabbitmq', thrown)];
  }
}

function brokerFinding(connection: AmqpConnection): Finding {
  const { brokerVersion = 'unknown', blockedBecause, capabilities } = connection;
  if (blockedBecause !== undefined) {
    const hint = 'Free memory or disk space on the broker; until then submissions gather in the outbox.';
    return {
      check: 'rabbitmq',
      status: 'fail',
      message: `${brokerVersion} takes no publishes: ${blockedBecause}`,
      hint,
    };
  }
  return {
    check: 'rabbitmq',
    status: 'ok',
    message: `${brokerVersion}, ${capabilities?.queueType ?? 'unknown'} queues`,
  };
}

/** The broker's consumer count proves no live consumer; leases do. */
async function queueFindings(
  { io }: CommandContext,
  config: Config,
  { connection, seen }: { readonly connection: AmqpConnection; readonly seen: Seen },
): Promise<readonly Finding[]> {
  const names = namesOf(config.prefix);
  const findings: Finding[] = [];
  for (const queue of seen.queues.filter((name) => !seen.served.has(name))) {
    const ready = (await queueCounts({ connection, clock: io.clock }, names.queue(queue)))?.ready ?? 0;
    const hint = `Start a worker with --queues ${queue}:10, or leave it where nothing is submitted to it.`;
    findings.push({
      check: 'queues',
      status: 'warn',
      message: `no worker consumes ${queue}; ${ready} invitations wait there`,
      hint,
    });
  }
  return findings.length > 0
    ? findings
    : [{ check: 'queues', status: 'ok', message: `each of ${seen.queues.length} has a worker` }];
}
