/**
 * What KEDA does beside the HorizontalPodAutoscaler that it makes: it hands on the triggers' figures, or a fallback in their place, and
 * scales between 0 and 1 by itself ("ScaledObject specification": pollingInterval, cooldownPeriod, fallback, minReplicaCount). Pure.
 */
import type { Metric } from './hpa.ts';

/** What a trigger said, or that it could not be asked. */
export type Reading = number | undefined;

/** What is fallen back to. */
export interface Fallback {
  readonly failureThreshold: number;
  readonly replicas: number;
}

/** What the HPA is told of a trigger: its figure, and after too many failures in a row as much as the fallback's replicas stand for. */
export function metricOf(
  reading: Reading,
  averageTarget: number,
  failuresInRow: number,
  fallback: Fallback | undefined,
): Metric {
  if (reading !== undefined) return { value: reading, averageTarget };
  const hasFallen = fallback !== undefined && failuresInRow >= fallback.failureThreshold;
  return { value: hasFallen ? averageTarget * fallback.replicas : undefined, averageTarget };
}

/** What a poll sees. */
export interface Poll {
  readonly atSeconds: number;
  readonly current: number;
  readonly minReplicaCount: number;
  readonly cooldownPeriod: number;
  readonly fallback: Fallback | undefined;
  /** Each trigger's figure with the value above which it is active. */
  readonly triggers: readonly { readonly reading: Reading; readonly activation: number }[];
  /** When a trigger was active last; `undefined`: never. */
  readonly lastActiveSeconds: number | undefined;
}

/** One poll: the replicas from now on, and when a trigger was active last. Between 1 and more, the HPA decides. */
export function poll(seen: Poll): { readonly replicas: number; readonly lastActiveSeconds: number | undefined } {
  const { atSeconds, current, minReplicaCount, cooldownPeriod, fallback, triggers, lastActiveSeconds } = seen;
  const isActive = triggers.some(({ reading, activation }) => reading !== undefined && reading > activation);
  if (isActive) {
    return { replicas: current === 0 ? Math.max(1, minReplicaCount) : current, lastActiveSeconds: atSeconds };
  }
  const isFailing = triggers.some(({ reading }) => reading === undefined);
  const still = { replicas: current, lastActiveSeconds };
  if (isFailing) return fallback === undefined ? still : { ...still, replicas: fallback.replicas };
  if (current < minReplicaCount) return { ...still, replicas: minReplicaCount };
  const isCool = lastActiveSeconds === undefined || atSeconds - lastActiveSeconds >= cooldownPeriod;
  return minReplicaCount === 0 && isCool ? { ...still, replicas: 0 } : still;
}
