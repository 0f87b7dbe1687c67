/**
 * What Kubernetes' HorizontalPodAutoscaler does at each sync, after its documentation ("Horizontal Pod Autoscaling": algorithm details,
 * scaling policies, stabilisation window, default behaviour) and the order of its controller: metrics, stabilisation, policies, bounds.
 * Pure: what it remembers is handed in and given back.
 */

/** One policy of a direction. */
export interface ScalingPolicy {
  readonly type: 'Pods' | 'Percent';
  readonly value: number;
  readonly periodSeconds: number;
}

/** The rules of a direction. */
export interface ScalingRules {
  readonly stabilizationWindowSeconds: number;
  readonly policies: readonly ScalingPolicy[];
  /** Of several policies the one that allows the greatest change, the smallest, or none. */
  readonly selectPolicy: 'Max' | 'Min' | 'Disabled';
}

/** Both directions. */
export interface Behavior {
  readonly scaleUp: ScalingRules;
  readonly scaleDown: ScalingRules;
}

/** What holds where a manifest does not say. */
export const DEFAULT_BEHAVIOR: Behavior = {
  scaleUp: {
    stabilizationWindowSeconds: 0,
    policies: [
      { type: 'Percent', value: 100, periodSeconds: 15 },
      { type: 'Pods', value: 4, periodSeconds: 15 },
    ],
    selectPolicy: 'Max',
  },
  scaleDown: {
    stabilizationWindowSeconds: 300,
    policies: [{ type: 'Percent', value: 100, periodSeconds: 15 }],
    selectPolicy: 'Max',
  },
};

/** Seconds between two syncs. */
export const SYNC_SECONDS = 15;
const TOLERANCE = 0.1;

/** An external metric with a target per pod; `value` is undefined where it could not be had. */
export interface Metric {
  readonly value: number | undefined;
  readonly averageTarget: number;
}

/** What was recommended, or changed, when. */
export interface Memory {
  readonly recommendations: readonly { readonly atSeconds: number; readonly replicas: number }[];
  /** Replicas added (above 0) or taken away. */
  readonly changes: readonly { readonly atSeconds: number; readonly by: number }[];
}

/** Nothing yet. */
export const NO_MEMORY: Memory = { recommendations: [], changes: [] };

/** What a sync sees. */
export interface Sync {
  readonly atSeconds: number;
  readonly current: number;
  readonly min: number;
  readonly max: number;
  readonly metrics: readonly Metric[];
  readonly behavior: Behavior;
  readonly memory: Memory;
}

/** The replicas that a metric asks for: the total over the target, or none other where that is within the tolerance. */
export function replicasForMetric(current: number, { value, averageTarget }: Metric): number | undefined {
  if (value === undefined) return undefined;
  const ratio = value / (averageTarget * current);
  return Math.abs(1 - ratio) <= TOLERANCE ? current : Math.ceil(value / averageTarget);
}

/**
 * The greatest of what the metrics ask for. Where one of them could not be had nothing is taken away; where none could, nothing changes.
 */
export function replicasForMetrics(current: number, metrics: readonly Metric[]): number {
  const wanted = metrics.map((metric) => replicasForMetric(current, metric));
  const known = wanted.filter((each) => each !== undefined);
  if (known.length === 0) return current;
  const most = Math.max(...known);
  return known.length < wanted.length ? Math.max(most, current) : most;
}

/** One sync: the replicas from now on, and what is to be remembered. A target of 0 replicas is left alone. */
export function sync(seen: Sync): { readonly replicas: number; readonly memory: Memory } {
  const { atSeconds, current, min, max, metrics, behavior, memory } = seen;
  if (current === 0) return { replicas: 0, memory };
  const desired = replicasForMetrics(current, metrics);
  const recommendations = [...memory.recommendations, { atSeconds, replicas: desired }].filter(
    (each) => each.atSeconds > atSeconds - longestWindow(behavior),
  );
  const stable = stabilized(seen, desired);
  const limited = Math.min(Math.max(rateLimited(seen, stable), min), max);
  const by = limited - current;
  const changes = [...memory.changes, ...(by === 0 ? [] : [{ atSeconds, by }])].filter(
    (each) => each.atSeconds > atSeconds - longestPeriod(behavior),
  );
  return { replicas: limited, memory: { recommendations, changes } };
}

/** The lowest recommendation of the window of growing, if it is above what there is; the highest of that of shrinking, if it is below. */
function stabilized({ atSeconds, current, behavior, memory }: Sync, desired: number): number {
  const within = (seconds: number): number[] =>
    memory.recommendations.filter((each) => each.atSeconds > atSeconds - seconds).map(({ replicas }) => replicas);
  const up = Math.min(desired, ...within(behavior.scaleUp.stabilizationWindowSeconds));
  const down = Math.max(desired, ...within(behavior.scaleDown.stabilizationWindowSeconds));
  return Math.min(Math.max(current, up), Math.max(down, 0));
}

function rateLimited(seen: Sync, wanted: number): number {
  const { current, behavior } = seen;
  if (wanted > current) return Math.min(wanted, Math.max(current, limitOf(seen, behavior.scaleUp, 1)));
  if (wanted < current) return Math.max(wanted, Math.min(current, limitOf(seen, behavior.scaleDown, -1)));
  return current;
}

/** How far the policies of a direction (1: up, -1: down) let the replicas go. */
function limitOf({ atSeconds, current, memory }: Sync, rules: ScalingRules, direction: 1 | -1): number {
  if (rules.selectPolicy === 'Disabled') return current;
  const limits = rules.policies.map(({ type, value, periodSeconds }) => {
    const changed = memory.changes
      .filter((each) => each.atSeconds > atSeconds - periodSeconds)
      .reduce((sum, { by }) => sum + by, 0);
    const atStart = current - changed;
    if (type === 'Pods') return atStart + direction * value;
    // Rounded in favour of the change, else a small number would never move.
    return direction === 1 ? Math.ceil(atStart * (1 + value / 100)) : Math.floor(atStart * (1 - value / 100));
  });
  if (limits.length === 0) return current;
  const isGreatest = (rules.selectPolicy === 'Max') === (direction === 1);
  return isGreatest ? Math.max(...limits) : Math.min(...limits);
}

const longestWindow = ({ scaleUp, scaleDown }: Behavior): number =>
  Math.max(scaleUp.stabilizationWindowSeconds, scaleDown.stabilizationWindowSeconds);
const longestPeriod = ({ scaleUp, scaleDown }: Behavior): number =>
  Math.max(0, ...[...scaleUp.policies, ...scaleDown.policies].map(({ periodSeconds }) => periodSeconds));
