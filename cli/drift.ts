/** Says in a line where the broker differs from the topology. */
import type { Drift } from '../shared/amqp/topology-drift.ts';

/** `queue warren.q.high: x-max-priority is 5, should be 10`. */
export function describeDrift({ kind, name, problem, argument, expected, actual }: Drift): string {
  if (problem === 'missing') return `${kind} ${name} is missing`;
  if (argument === undefined) return `${kind} ${name} differs: ${actual ?? 'the broker does not say in what'}`;
  return `${kind} ${name}: ${argument} is ${actual ?? 'none'}, should be ${expected ?? 'none'}`;
}
