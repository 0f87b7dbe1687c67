/** The pod of a worker, as every pool has it. Pure. */
import type { Manifest, Pool } from './pools.ts';

/** Seconds past the drain that a worker's stop may take: settles, confirms, closing; and some for the kubelet. */
const AFTER_DRAIN_SECONDS = 15;

/** The pod's spec. */
export function podOf(
  pool: Pool,
  {
    name,
    labels,
    env = [],
  }: { name: string; labels: Readonly<Record<string, string>>; env?: readonly { name: string; value: string }[] },
): Manifest {
  const securityContext = {
    allowPrivilegeEscalation: false,
    readOnlyRootFilesystem: true,
    capabilities: { drop: ['ALL'] },
  };
  const volumeMounts = [
    { name: 'broker', mountPath: '/etc/warren/broker', readOnly: true },
    { name: 'postgres', mountPath: '/etc/warren/postgres', readOnly: true },
    { name: 'postgres-ca', mountPath: '/etc/warren/postgres-ca', readOnly: true },
    { name: 'temp', mountPath: '/tmp' },
  ];
  const envFrom = [{ configMapRef: { name: 'warren-config' } }];
  const spread = (topologyKey: string): Manifest => ({
    maxSkew: 1,
    topologyKey,
    whenUnsatisfiable: 'ScheduleAnyway',
    labelSelector: { matchLabels: labels },
  });
  return {
    serviceAccountName: 'warren-worker',
    automountServiceAccountToken: false,
    enableServiceLinks: false,
    terminationGracePeriodSeconds: pool.drainSeconds + AFTER_DRAIN_SECONDS,
    securityContext: {
      runAsNonRoot: true,
      runAsUser: 1_000,
      runAsGroup: 1_000,
      fsGroup: 1_000,
      seccompProfile: { type: 'RuntimeDefault' },
    },
    topologySpreadConstraints: [spread('kubernetes.io/hostname'), spread('topology.kubernetes.io/zone')],
    initContainers: [
      {
        name: 'wait-for-migrations',
        image: 'warren',
        args: ['migrate', '--wait', '15m'],
        envFrom,
        securityContext,
        resources: { requests: { cpu: '50m', memory: '96Mi' }, limits: { memory: '192Mi' } },
        volumeMounts,
      },
    ],
    containers: [
      {
        name: 'worker',
        image: 'warren',
        args: ['worker'],
        envFrom,
        env: [
          { name: 'WARREN_QUEUES', value: pool.queues.map((each) => `${each.name}:${each.concurrency}`).join(',') },
          { name: 'WARREN_WORKER_DRAIN_MS', value: String(pool.drainSeconds * 1_000) },
          { name: 'WARREN_AMQP_DECLARE_TOPOLOGY', value: 'false' },
          ...env,
        ],
        ports: [{ name: 'http', containerPort: 8082, protocol: 'TCP' }],
        securityContext,
        startupProbe: { httpGet: { path: '/livez', port: 'http' }, periodSeconds: 3, failureThreshold: 30 },
        livenessProbe: { httpGet: { path: '/livez', port: 'http' }, periodSeconds: 10, timeoutSeconds: 5 },
        readinessProbe: {
          httpGet: { path: '/readyz', port: 'http' },
          periodSeconds: 5,
          timeoutSeconds: 3,
          failureThreshold: 2,
        },
        resources: { requests: { cpu: pool.cpu, memory: pool.memory }, limits: { memory: pool.memory } },
        volumeMounts,
      },
    ],
    volumes: [
      { name: 'broker', secret: { secretName: `${name}-user-credentials`, defaultMode: 0o440 } },
      { name: 'postgres', secret: { secretName: 'warren-postgres-app', defaultMode: 0o440 } },
      {
        name: 'postgres-ca',
        secret: {
          secretName: 'warren-postgres-ca',
          defaultMode: 0o440,
          items: [{ key: 'ca.crt', path: 'ca.crt' }],
        },
      },
      { name: 'temp', emptyDir: { sizeLimit: '1Gi' } },
    ],
  };
}
