/** A pool of jobs: a pod for each task, for tasks that take hours, so that no pod with work in it is ever one too many. Pure. */
import type { Manifest, Pool } from './pools.ts';
import { podOf } from './worker-pod.ts';

/** Milliseconds after which a job that finds nothing ends: KEDA may start one for a task that another has just taken. */
const IDLE_EXIT_MS = 60_000;
/** Ended jobs that are kept to be looked at. */
const KEPT_JOBS = 5;

/**
 * The ScaledJob of a pool; `triggers` count what waits. A busy job has its task out of that count, for it holds no other message, so
 * `accurate` starts a job for each that waits.
 */
export function scaledJobOf(
  pool: Pool,
  {
    metadata,
    labels,
    triggers,
  }: { metadata: Manifest; labels: Readonly<Record<string, string>>; triggers: readonly Manifest[] },
): Manifest {
  const { name } = metadata as { readonly name: string };
  const env = [
    { name: 'WARREN_WORKER_MAX_TASKS', value: '1' },
    { name: 'WARREN_WORKER_IDLE_EXIT_MS', value: String(IDLE_EXIT_MS) },
  ];
  return {
    apiVersion: 'keda.sh/v1alpha1',
    kind: 'ScaledJob',
    metadata,
    spec: {
      jobTargetRef: {
        parallelism: 1,
        completions: 1,
        // Warren repeats a task that is lost; a second pod of the same job would only wait for another.
        backoffLimit: 0,
        template: {
          metadata: {
            labels: { ...labels, 'app.kubernetes.io/part-of': 'warren' },
            // A node that is to be removed for thrift waits for it.
            annotations: { 'cluster-autoscaler.kubernetes.io/safe-to-evict': 'false' },
          },
          spec: { restartPolicy: 'Never', ...podOf(pool, { name, labels, env }) },
        },
      },
      pollingInterval: 10,
      maxReplicaCount: pool.maxReplicas,
      successfulJobsHistoryLimit: KEPT_JOBS,
      failedJobsHistoryLimit: KEPT_JOBS,
      // The default would end every running job at each change of this manifest.
      rollout: { strategy: 'gradual' },
      // Without pendingPodConditions: a worker that runs its last task is not ready for more, and would count as one that has not begun.
      scalingStrategy: { strategy: 'accurate' },
      triggers,
    },
  };
}
