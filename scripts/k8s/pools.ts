/**
 * Pools of workers: what `pools.yaml` of an overlay says in three lines becomes a Deployment or ScaledJob with all that belongs
 * to it. Pure; `printed-manifests.ts` writes the files.
 */
import { z } from 'zod';
import { queueSlots } from '../../shared/config/format.ts';
import type { QueueSlots } from '../../shared/config/format.ts';
import { namesOf } from '../../shared/amqp/topology.ts';
import { scaledJobOf } from './scaled-job.ts';
import { podOf } from './worker-pod.ts';

/** Anything that can be a YAML document. */
export type Manifest = Readonly<Record<string, unknown>>;

const slots = queueSlots('', []);

const poolSchema = z
  .strictObject({
    /** `job`: a pod for each task, for tasks of hours; else a Deployment. */
    kind: z.enum(['deployment', 'job']).default('deployment'),
    /** Of the Deployment or ScaledJob: `warren-worker-<name>`. */
    name: z.string().regex(/^[a-z][a-z0-9-]{0,30}$/, 'must be a letter and up to 30 of a-z 0-9 -'),
    /** As `worker.queues`: `high:20,low:2`. */
    queues: z.string().transform((text, context): readonly QueueSlots[] => {
      const value = slots.read(text);
      try {
        slots.format(value);
      } catch (thrown) {
        context.addIssue({ code: 'custom', message: (thrown as Error).message });
      }
      return value as readonly QueueSlots[];
    }),
    maxReplicas: z.int().min(1).max(1_000),
    /** 0: no worker while the queue is empty. The first task then waits for a pod, and no fallback rescues from 0. */
    minReplicas: z.int().min(0).max(1_000).default(1),
    /** Replicas while neither figure can be read. Default: half of the most. */
    fallbackReplicas: z.int().min(1).max(1_000).optional(),
    /** Target of the p95 wait, seconds. */
    sloSeconds: z.int().min(1).max(3_600).default(30),
    /** `worker.drainMs` in seconds: what running attempts get at the end of a pod. */
    drainSeconds: z.int().min(5).max(86_400).default(60),
    cpu: z.string().default('500m'),
    memory: z.string().default('512Mi'),
  })
  .refine(({ kind, queues }) => kind === 'deployment' || queues.every(({ concurrency }) => concurrency === 1), {
    path: ['queues'],
    error: 'must say one slot a queue, such as video:1: a job runs one task',
  });

const fileSchema = z.strictObject({
  /** True where the component tls is in: KEDA then asks by https. */
  tls: z.boolean().default(false),
  /** Namespace of the fleet; KEDA asks from another. */
  namespace: z.string().default('warren'),
  pools: z
    .array(poolSchema)
    .min(1)
    .refine(
      (pools) => new Set(pools.map(({ name }) => name)).size === pools.length,
      'each pool needs a name of its own',
    ),
});

/** One pool, with what it left out filled in. */
export type Pool = z.output<typeof poolSchema>;

/** What `pools.yaml` of an overlay says. */
export type PoolsFile = z.output<typeof fileSchema>;

/** The files of an overlay that are made from its pools, by name. */
export interface PoolFiles {
  readonly 'workers.yaml': readonly Manifest[];
  readonly 'scaling.yaml': readonly Manifest[];
  readonly 'disruption.yaml': readonly Manifest[];
  readonly 'broker-users.yaml': readonly Manifest[];
  readonly 'queues.env': string;
}

/** Reads what `pools.yaml` holds. Throws a ZodError that names every fault. */
export function readPools(content: unknown): PoolsFile {
  return fileSchema.parse(content);
}

/** Everything that the pools need. */
export function renderPools(file: PoolsFile): PoolFiles {
  const { pools } = file;
  const standing = pools.filter(({ kind }) => kind === 'deployment');
  const queues = [...new Set(pools.flatMap((pool) => pool.queues.map(({ name }) => name)))];
  return {
    'workers.yaml': standing.map((pool) => deploymentOf(pool)),
    'scaling.yaml': pools.map((pool) => (pool.kind === 'job' ? jobOf(pool, file) : scaledObjectOf(pool, file))),
    'disruption.yaml': standing.map((pool) => disruptionBudgetOf(pool)),
    'broker-users.yaml': pools.flatMap((pool) => brokerUserOf(pool)),
    // Queues exist from the topology job on, be there a worker or none.
    'queues.env': `WARREN_PRODUCER_DECLARED_QUEUES=${queues.join(',')}\n`,
  };
}

/** `warren-worker-high`. */
export function workerName({ name }: Pick<Pool, 'name'>): string {
  return `warren-worker-${name}`;
}

function labelsOf({ name }: Pool): Readonly<Record<string, string>> {
  return { 'app.kubernetes.io/name': 'warren', 'app.kubernetes.io/component': 'worker', 'warren/pool': name };
}

function metadataOf(pool: Pool): Manifest {
  return { name: workerName(pool), labels: { ...labelsOf(pool), 'app.kubernetes.io/part-of': 'warren' } };
}

function deploymentOf(pool: Pool): Manifest {
  return {
    apiVersion: 'apps/v1',
    kind: 'Deployment',
    metadata: metadataOf(pool),
    spec: {
      // No number of replicas: the autoscaler's would be undone by every apply. 1 until it has spoken.
      revisionHistoryLimit: 5,
      strategy: { rollingUpdate: { maxUnavailable: '25%', maxSurge: '25%' } },
      selector: { matchLabels: labelsOf(pool) },
      template: {
        metadata: { labels: { ...labelsOf(pool), 'app.kubernetes.io/part-of': 'warren' } },
        spec: podOf(pool, { name: workerName(pool), labels: labelsOf(pool) }),
      },
    },
  };
}

/** What KEDA looks at, a queue at a time: never a regular expression, which fails on quorum queues. */
function depthTriggers(
  pool: Pool,
  { tls, namespace }: PoolsFile,
  excludeUnacknowledged: boolean,
): readonly (readonly [queue: string, trigger: Manifest])[] {
  const names = namesOf('warren');
  return pool.queues.map(({ name, concurrency }) => [
    name,
    {
      type: 'rabbitmq',
      metadata: {
        // http: amqp sees ready messages alone, and takes pods away that still work.
        protocol: 'http',
        host: tls ? `https://warren-rabbitmq.${namespace}.svc:15671` : `http://warren-rabbitmq.${namespace}.svc:15672`,
        vhostName: 'warren',
        queueName: names.queue(name),
        mode: 'QueueLength',
        value: String(concurrency),
        excludeUnacknowledged: String(excludeUnacknowledged),
        timeout: '5000',
      },
      authenticationRef: { name: 'warren-keda-broker' },
    },
  ]);
}

/** Only what waits is counted: a running task has its job. */
function jobOf(pool: Pool, file: PoolsFile): Manifest {
  const triggers = depthTriggers(pool, file, true).map(([, trigger]) => trigger);
  return scaledJobOf(pool, { metadata: metadataOf(pool), labels: labelsOf(pool), triggers });
}

function scaledObjectOf(pool: Pool, file: PoolsFile): Manifest {
  const { tls, namespace } = file;
  const fallback = pool.fallbackReplicas ?? Math.max(pool.minReplicas, Math.ceil(pool.maxReplicas / 2));
  return {
    apiVersion: 'keda.sh/v1alpha1',
    kind: 'ScaledObject',
    metadata: metadataOf(pool),
    spec: {
      scaleTargetRef: { name: workerName(pool) },
      minReplicaCount: pool.minReplicas,
      maxReplicaCount: pool.maxReplicas,
      pollingInterval: 10,
      cooldownPeriod: 300,
      fallback: { failureThreshold: 3, replicas: fallback },
      advanced: {
        horizontalPodAutoscalerConfig: {
          behavior: {
            scaleUp: {
              stabilizationWindowSeconds: 0,
              selectPolicy: 'Max',
              policies: [
                { type: 'Percent', value: 100, periodSeconds: 15 },
                { type: 'Pods', value: 4, periodSeconds: 15 },
              ],
            },
            scaleDown: {
              stabilizationWindowSeconds: 300,
              selectPolicy: 'Min',
              policies: [{ type: 'Percent', value: 10, periodSeconds: 60 }],
            },
          },
        },
      },
      triggers: depthTriggers(pool, file, false).flatMap(([name, depth]) => [
        { metricType: 'AverageValue', ...depth },
        {
          type: 'metrics-api',
          metricType: 'AverageValue',
          metadata: {
            url: `http${tls ? 's' : ''}://warren-producer.${namespace}.svc:8080/v1/scaling/${name}?slo=${pool.sloSeconds}s`,
            valueLocation: 'workersWanted',
            targetValue: '1',
            authMode: 'bearer',
          },
          authenticationRef: { name: 'warren-keda-producer' },
        },
      ]),
    },
  };
}

/** A node that is emptied takes one worker of a pool after the other. */
function disruptionBudgetOf(pool: Pool): Manifest {
  return {
    apiVersion: 'policy/v1',
    kind: 'PodDisruptionBudget',
    metadata: metadataOf(pool),
    spec: { maxUnavailable: 1, selector: { matchLabels: labelsOf(pool) } },
  };
}

/** A user of the broker that can read its own queues, invite anew what it gives back, and nothing else. */
function brokerUserOf(pool: Pool): readonly Manifest[] {
  const queues = pool.queues.map(({ name }) => name.replaceAll('.', String.raw`\.`)).join('|');
  const metadata = metadataOf(pool);
  const rabbitmqClusterReference = { name: 'warren-rabbitmq' };
  return [
    { apiVersion: 'rabbitmq.com/v1beta1', kind: 'User', metadata, spec: { rabbitmqClusterReference } },
    {
      apiVersion: 'rabbitmq.com/v1beta1',
      kind: 'Permission',
      metadata,
      spec: {
        rabbitmqClusterReference,
        vhost: 'warren',
        userReference: { name: workerName(pool) },
        permissions: {
          configure: '^$',
          write: String.raw`^warren\.work$`,
          read: String.raw`^warren\.q\.(${queues})$`,
        },
      },
    },
  ];
}
