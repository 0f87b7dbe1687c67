/** Declares the topology on a broker. Never deletes, never changes what exists. */
import { WarrenError } from '../errors/warren-error.ts';
import type { Logger } from '../observability/log.ts';
import { driftError, exists, findDrift } from './topology-drift.ts';
import type { Drift } from './topology-drift.ts';
import { replyCodeOf, withChannel } from './throwaway-channel.ts';
import type { ThrowawayDeps } from './throwaway-channel.ts';
import type { BindingSpec, Topology } from './topology.ts';

/** What applying needs. */
export interface TopologyApplyDeps extends ThrowawayDeps {
  readonly log: Logger;
}

/** What applying did and found. */
export interface Applied {
  /** Names of exchanges and queues that were declared now. */
  readonly created: readonly string[];
  /** What existed already and differs; it was kept as it is, and logged. */
  readonly drift: readonly Drift[];
}

/**
 * Declares what is missing and makes the bindings. Whatever exists keeps its type and arguments, since those cannot be
 * changed and deleting would lose messages; differences are logged as `topology-drift` and returned. Several processes
 * may do this at once. Throws `broker-unavailable`.
 */
export async function applyTopology(deps: TopologyApplyDeps, topology: Topology): Promise<Applied> {
  const created: string[] = [];
  for (const { name, type } of topology.exchanges) {
    if (await exists(deps, 'exchange', name)) continue;
    await withChannel(deps, async (channel) => await channel.assertExchange(name, type, { durable: true }));
    created.push(name);
  }
  for (const spec of topology.queues) {
    if (await exists(deps, 'queue', spec.name)) continue;
    await withChannel(
      deps,
      async (channel) => await channel.assertQueue(spec.name, { durable: true, arguments: { ...spec.arguments } }),
    );
    created.push(spec.name);
  }
  if (!(await bindAll(deps, topology.bindings))) {
    throw new WarrenError('broker-unavailable', { reason: 'what was declared was deleted meanwhile' });
  }
  const drift = await findDrift(deps, topology);
  for (const found of drift) {
    deps.log.warn('topology differs', {
      err: driftError(found),
      hint: 'what exists was kept; to change it, drain it, delete it and apply the topology again',
    });
  }
  if (created.length > 0) deps.log.info('topology applied', { created });
  return { created, drift };
}

/** Makes bindings, those that exist too. False where an exchange or queue of them is missing. Throws `broker-unavailable`. */
export async function bindAll(deps: ThrowawayDeps, bindings: readonly BindingSpec[]): Promise<boolean> {
  return await withChannel(deps, async (channel) => {
    try {
      for (const { exchange, queue, routingKey } of bindings) await channel.bindQueue(queue, exchange, routingKey);
      return true;
    } catch (thrown) {
      if (replyCodeOf(thrown) === 404) return false;
      throw thrown;
    }
  });
}
