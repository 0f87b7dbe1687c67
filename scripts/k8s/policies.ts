/** Rules of our own about a rendered overlay, beyond what schemas say. Each says what is wrong in one line; none: all is well. */
import { listSettings } from '../../shared/config/schema.ts';
import { nameOf } from './documents.ts';
import type { K8sObject } from './documents.ts';

interface Container {
  readonly name: string;
  readonly image: string;
  readonly args?: readonly string[];
  readonly env?: readonly { readonly name: string; readonly value?: string }[];
  readonly envFrom?: readonly { readonly configMapRef?: { readonly name: string } }[];
  readonly ports?: readonly { readonly name: string; readonly containerPort: number }[];
  readonly securityContext?: {
    readonly allowPrivilegeEscalation?: boolean;
    readonly readOnlyRootFilesystem?: boolean;
    readonly capabilities?: { readonly drop?: readonly string[]; readonly add?: readonly string[] };
  };
  readonly resources?: {
    readonly requests?: Readonly<Record<string, string>>;
    readonly limits?: Readonly<Record<string, string>>;
  };
  readonly volumeMounts?: readonly { readonly name: string; readonly mountPath: string; readonly readOnly?: boolean }[];
  readonly livenessProbe?: Probe;
  readonly readinessProbe?: Probe;
  readonly startupProbe?: Probe;
  readonly lifecycle?: { readonly preStop?: { readonly sleep?: { readonly seconds: number } } };
}

interface Probe {
  readonly httpGet?: { readonly path: string; readonly port: string; readonly scheme?: string };
  readonly periodSeconds?: number;
  readonly failureThreshold?: number;
}

/** A pod's spec, as far as the rules look at it. */
export interface PodSpec {
  readonly serviceAccountName?: string;
  readonly automountServiceAccountToken?: boolean;
  readonly terminationGracePeriodSeconds?: number;
  readonly securityContext?: {
    readonly runAsNonRoot?: boolean;
    readonly runAsUser?: number;
    readonly seccompProfile?: { readonly type?: string };
  };
  readonly topologySpreadConstraints?: readonly unknown[];
  readonly initContainers?: readonly Container[];
  readonly containers: readonly Container[];
  readonly volumes?: readonly { readonly name: string; readonly [source: string]: unknown }[];
}

/** Kinds that run pods of ours, each with where its pod stands. */
export function podOf({ kind, spec }: K8sObject): PodSpec | undefined {
  const at = spec as {
    readonly template?: { readonly spec: PodSpec };
    readonly jobTargetRef?: { readonly template: { readonly spec: PodSpec } };
  };
  if (kind === 'Deployment' || kind === 'Job') return at.template?.spec;
  return kind === 'ScaledJob' ? at.jobTargetRef?.template.spec : undefined;
}

/** Variables that a container has: by the ConfigMaps that it names, and by itself. */
export function environmentOf(container: Container, documents: readonly K8sObject[]): ReadonlyMap<string, string> {
  const found = new Map<string, string>();
  for (const { configMapRef } of container.envFrom ?? []) {
    const map = documents.find(({ kind, metadata }) => kind === 'ConfigMap' && metadata.name === configMapRef?.name);
    if (map === undefined) throw new Error(`there is no ConfigMap ${configMapRef?.name ?? ''}`);
    for (const [name, value] of Object.entries(map['data'] as Record<string, string>)) found.set(name, value);
  }
  for (const { name, value } of container.env ?? []) found.set(name, value ?? '');
  return found;
}

/** All faults of an overlay. */
export function policyFaults(documents: readonly K8sObject[]): readonly string[] {
  return documents.flatMap((document) => {
    const pod = podOf(document);
    const faults = [
      ...labelFaults(document),
      ...secretFaults(document),
      ...(pod === undefined ? [] : [...podFaults(pod), ...environmentFaults(pod, documents)]),
      ...(pod !== undefined && document.kind !== 'Job' ? serviceFaults(pod, documents) : []),
      ...(document.kind === 'ScaledObject' ? scalingFaults(document, documents) : []),
      ...(pod !== undefined && document.kind === 'ScaledJob' ? jobFaults(document, pod, documents) : []),
    ];
    return faults.map((fault) => `${nameOf(document)}: ${fault}`);
  });
}

function labelFaults(document: K8sObject): readonly string[] {
  if (podOf(document) === undefined && document.kind !== 'Service') return [];
  const wanted = ['app.kubernetes.io/name', 'app.kubernetes.io/component', 'app.kubernetes.io/part-of'];
  return wanted
    .filter((label) => document.metadata.labels?.[label] === undefined)
    .map((label) => `lacks the label ${label}`);
}

/** A secret in a manifest is a secret in a repository. */
function secretFaults(document: K8sObject): readonly string[] {
  const faults = document.kind === 'Secret' ? ['is a Secret: those are made on the cluster'] : [];
  const text = JSON.stringify(document);
  if (/:\/\/[^/"@\s]*:[^/"@\s]*@/.test(text)) faults.push('holds a URL with a password');
  return faults;
}

/** The restricted profile of pod security, and what a cluster needs to place and end a pod. */
function podFaults(pod: PodSpec): readonly string[] {
  const faults: string[] = [];
  const { securityContext } = pod;
  if (securityContext?.runAsNonRoot !== true || (securityContext.runAsUser ?? 0) === 0) faults.push('may run as root');
  if (securityContext?.seccompProfile?.type !== 'RuntimeDefault') faults.push('has no seccomp profile');
  if (pod.automountServiceAccountToken !== false) faults.push('is given a token of the Kubernetes API');
  if (pod.serviceAccountName === undefined) faults.push('has no service account of its own');
  const names = new Set((pod.volumes ?? []).map(({ name }) => name));
  for (const container of [...(pod.initContainers ?? []), ...pod.containers]) {
    const fail = (what: string): number => faults.push(`container ${container.name} ${what}`);
    const context = container.securityContext;
    if (context?.allowPrivilegeEscalation !== false) fail('may gain privileges');
    if (context?.readOnlyRootFilesystem !== true) fail('can write to its image');
    if (context?.capabilities?.drop?.includes('ALL') !== true || context.capabilities.add !== undefined)
      fail('has capabilities');
    if (!/(:(?!latest$)[\w.-]+|@sha256:[0-9a-f]{64})$/.test(container.image))
      fail(`has the image ${container.image}: no fixed version`);
    const { requests, limits } = container.resources ?? {};
    if (requests?.['cpu'] === undefined || requests['memory'] === undefined) fail('requests no cpu or memory');
    if (limits?.['memory'] === undefined) fail('has no limit of memory');
    for (const mount of container.volumeMounts ?? []) {
      if (!names.has(mount.name)) fail(`mounts ${mount.name}, which is no volume`);
      if (mount.mountPath !== '/tmp' && mount.readOnly !== true) fail(`can write to ${mount.mountPath}`);
    }
    if (!(container.volumeMounts ?? []).some(({ mountPath }) => mountPath === '/tmp')) fail('has no /tmp to write to');
  }
  return faults;
}

/** Variables that no setting has are typing errors, and files that nobody mounts are not there. */
function environmentFaults(pod: PodSpec, documents: readonly K8sObject[]): readonly string[] {
  const known = new Set(
    listSettings().flatMap(({ env, setting }) => (setting.sensitive ? [env, `${env}_FILE`] : [env])),
  );
  return pod.containers.flatMap((container) => {
    const mounted = (container.volumeMounts ?? []).map(({ mountPath }) => `${mountPath}/`);
    return [...environmentOf(container, documents)].flatMap(([name, value]) => {
      if (!known.has(name)) return [`${name} is no setting`];
      const isOfApis = /^WARREN_(HTTP_TLS_|TOKENS)/.test(name) && (container.ports ?? []).length === 0;
      const isPath = name.endsWith('_FILE') && !isOfApis;
      return isPath && !mounted.some((path) => value.startsWith(path))
        ? [`${name} names ${value}, which is not mounted`]
        : [];
    });
  });
}

/** Seconds past the drain that stopping may take: see `process-main.ts`, 4 s of margin and 2 s of overrun. */
const STOP_SECONDS = 6;
/** Seconds that a service with an API may take to stop. */
const API_STOP_SECONDS = 12;
/** Seconds that a service waits for Postgres before anything listens. */
const START_SECONDS = 60;

/** Probes, and time to end. */
function serviceFaults(pod: PodSpec, documents: readonly K8sObject[]): readonly string[] {
  const faults: string[] = [];
  const [container] = pod.containers;
  if (container === undefined) return ['has no container'];
  const environment = environmentOf(container, documents);
  const scheme = environment.has('WARREN_HTTP_TLS_CERT_FILE') ? 'HTTPS' : undefined;
  const probes = { livenessProbe: '/livez', readinessProbe: '/readyz', startupProbe: '/livez' } as const;
  for (const [name, path] of Object.entries(probes) as [keyof typeof probes, string][]) {
    const get = container[name]?.httpGet;
    if (get?.path !== path || get.port !== 'http') faults.push(`${name} does not ask ${path}`);
    if (get?.scheme !== scheme) faults.push(`${name} asks by ${get?.scheme ?? 'HTTP'}`);
  }
  const { periodSeconds = 10, failureThreshold = 3 } = container.startupProbe ?? {};
  if (periodSeconds * failureThreshold <= START_SECONDS)
    faults.push('startupProbe gives up while Postgres is still waited for');
  const isWorker = container.name === 'worker';
  const drainMs = Number(
    environment.get('WARREN_WORKER_DRAIN_MS') ??
      listSettings().find(({ path }) => path === 'worker.drainMs')?.setting.default,
  );
  const needed =
    (isWorker ? drainMs / 1_000 + STOP_SECONDS : API_STOP_SECONDS) +
    (container.lifecycle?.preStop?.sleep?.seconds ?? 0);
  if ((pod.terminationGracePeriodSeconds ?? 30) <= needed)
    faults.push(`its grace period must be more than ${needed} s`);
  if ((pod.topologySpreadConstraints ?? []).length === 0) faults.push('is not spread over nodes');
  if (pod.initContainers?.[0]?.args?.slice(0, 2).join(' ') !== 'migrate --wait')
    faults.push('does not wait for migrations');
  return faults;
}

interface Scaled {
  readonly scaleTargetRef: { readonly name: string };
  readonly minReplicaCount?: number;
  readonly maxReplicaCount?: number;
  readonly fallback?: { readonly replicas: number };
  readonly triggers: readonly { readonly type: string; readonly metadata: Readonly<Record<string, string>> }[];
}

interface ScaledJobSpec {
  readonly jobTargetRef: { readonly backoffLimit?: number };
  readonly rollout?: { readonly strategy?: string };
  readonly triggers: Scaled['triggers'];
}

/** A job runs one task to its end, however long it takes, and is started for what waits alone. */
function jobFaults({ spec }: K8sObject, pod: PodSpec, documents: readonly K8sObject[]): readonly string[] {
  const { jobTargetRef, rollout, triggers } = spec as ScaledJobSpec;
  const [container] = pod.containers;
  if (container === undefined) return [];
  const environment = environmentOf(container, documents);
  const faults: string[] = [];
  if (environment.get('WARREN_WORKER_MAX_TASKS') !== '1') faults.push('does not end after its task');
  if (Number(environment.get('WARREN_WORKER_IDLE_EXIT_MS') ?? 0) === 0) faults.push('waits for ever for a task');
  if (jobTargetRef.backoffLimit !== 0) faults.push('repeats what Warren repeats');
  if (rollout?.strategy !== 'gradual') faults.push('ends running jobs when it is changed');
  for (const { metadata } of triggers) {
    if (metadata['protocol'] !== 'http') faults.push('looks by amqp');
    if (metadata['excludeUnacknowledged'] !== 'true') faults.push('starts jobs for what runs');
    if (metadata['useRegex'] !== undefined) faults.push('names its queue by a pattern');
  }
  const declared = environment.get('WARREN_PRODUCER_DECLARED_QUEUES')?.split(',') ?? [];
  const queues = (environment.get('WARREN_QUEUES') ?? '').split(',').map((each) => each.split(':')[0] ?? '');
  for (const queue of queues) {
    if (!declared.includes(queue)) faults.push(`nobody declares the queue ${queue}`);
    const isWatched = triggers.some(({ metadata }) => metadata['queueName'] === `warren.q.${queue}`);
    if (!isWatched) faults.push('does not look at each of its queues');
  }
  return faults;
}

/** What has cost others tasks: cases of KEDA's own tracker. */
function scalingFaults({ spec }: K8sObject, documents: readonly K8sObject[]): readonly string[] {
  const { scaleTargetRef, minReplicaCount = 0, maxReplicaCount = 100, fallback, triggers } = spec as Scaled;
  const faults: string[] = [];
  const target = documents.find(({ kind, metadata }) => kind === 'Deployment' && metadata.name === scaleTargetRef.name);
  const container = target === undefined ? undefined : podOf(target)?.containers[0];
  if (container === undefined) return [`scales ${scaleTargetRef.name}, which is no Deployment here`];
  if ((fallback?.replicas ?? 0) < Math.max(1, minReplicaCount)) faults.push('has no fallback that keeps workers');
  if ((fallback?.replicas ?? 0) > maxReplicaCount) faults.push('falls back to more than its most');
  const environment = environmentOf(container, documents);
  const queues = new Map(
    (environment.get('WARREN_QUEUES') ?? '').split(',').map((each) => each.split(':') as [string, string]),
  );
  const watched = triggers.filter(({ type }) => type === 'rabbitmq');
  for (const { metadata } of watched) {
    if (metadata['protocol'] !== 'http') faults.push('looks by amqp, which cannot see work that is under way');
    if (metadata['excludeUnacknowledged'] === 'true') faults.push('does not count work that is under way');
    if (metadata['useRegex'] !== undefined) faults.push('names its queue by a pattern');
    const queue = metadata['queueName']?.replace(/^warren\.q\./, '') ?? '';
    if (queues.get(queue) !== metadata['value']) faults.push(`its trigger for ${queue} and the worker's slots differ`);
  }
  if (watched.length !== queues.size) faults.push('does not look at each of its queues');
  const declared = environment.get('WARREN_PRODUCER_DECLARED_QUEUES')?.split(',') ?? [];
  for (const queue of queues.keys()) if (!declared.includes(queue)) faults.push(`nobody declares the queue ${queue}`);
  return faults;
}
