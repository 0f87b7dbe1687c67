/** The manifests for Kubernetes agree with themselves, with the schemas of their kinds, and with the code that they run. */
// oxlint-disable jest/no-standalone-expect, typescript/no-explicit-any, typescript/no-unsafe-assignment, typescript/no-unsafe-member-access, typescript/no-unsafe-call, typescript/no-unsafe-argument, typescript/no-unsafe-return -- because testWith declares tests, and faults are planted that no type allows
import { mkdir, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import { readDocuments, renderFolder } from '../../scripts/k8s/documents.ts';
import type { K8sObject } from '../../scripts/k8s/documents.ts';
import { findKustomize } from '../../scripts/k8s/kustomize.ts';
import { environmentOf, podOf, policyFaults } from '../../scripts/k8s/policies.ts';
import { listOverlays, printManifests } from '../../scripts/k8s/printed-manifests.ts';
import { readPools, renderPools } from '../../scripts/k8s/pools.ts';
import { faultsOf, readSchemas } from '../../scripts/k8s/schemas.ts';
import { topologyOf } from '../../shared/amqp/topology.ts';
import { loadConfig } from '../../shared/config/load.ts';
import type { ConfigUser } from '../../shared/config/load.ts';
import { HEALTH_PATHS } from '../../shared/http/health.ts';
import { ROOT } from '../support/source-files.ts';
import { testWith } from '../support/tools.ts';

const command = await findKustomize(ROOT, () => undefined).catch(() => undefined);
const kustomize = { name: 'kustomize', path: command?.join(' ') };
const overlays = await listOverlays(ROOT);
const schemas = readSchemas(ROOT);
const rendered = new Map<string, readonly K8sObject[]>();
const folder = await mkdtemp(join(tmpdir(), 'warren-manifests-'));

beforeAll(async () => {
  if (command === undefined) return;
  for (const overlay of overlays) rendered.set(overlay, await renderFolder(command, ROOT, `overlays/${overlay}`));
});
afterAll(async () => await rm(folder, { recursive: true }));

const documentsOf = (overlay: string): readonly K8sObject[] => rendered.get(overlay) ?? [];
const allFaults = (documents: readonly K8sObject[]): readonly string[] => [
  ...documents.flatMap((document) => faultsOf(document, schemas)),
  ...policyFaults(documents),
];

/** A copy of the production overlay with one thing changed in the document of this name. */
function changed(name: string, change: (document: Record<string, any>) => void): readonly K8sObject[] {
  const copy = structuredClone(documentsOf('production')) as unknown as Record<string, any>[];
  const document = copy.find(({ kind, metadata }) => `${String(kind)} ${String(metadata.name)}` === name);
  if (document === undefined) throw new Error(`there is no ${name}`);
  change(document);
  return copy as unknown as K8sObject[];
}

describe('every overlay', () => {
  testWith(kustomize, 'is right by the schemas of its kinds and by our own rules', async () => {
    expect(overlays).toEqual(['local', 'production', 'staging']);
    for (const overlay of overlays) {
      expect({ overlay, faults: allFaults(documentsOf(overlay)) }).toEqual({ overlay, faults: [] });
      expect(documentsOf(overlay).length).toBeGreaterThan(20);
    }
    await Promise.resolve();
  });

  testWith(
    kustomize,
    'gives each process a configuration that it starts with, and ports and paths that it serves',
    async () => {
      for (const overlay of overlays) {
        for (const document of documentsOf(overlay)) {
          const pod = podOf(document);
          if (pod === undefined) continue;
          for (const container of [...(pod.initContainers ?? []), ...pod.containers]) {
            const [role = ''] = container.args ?? [];
            expect(['producer', 'worker', 'dead-letter-handler', 'migrate', 'topology']).toContain(role);
            const user = (role === 'migrate' || role === 'topology' ? 'cli' : role) as ConfigUser;
            const { config } = loadConfig({
              user,
              env: await withFiles(environmentOf(container, documentsOf(overlay))),
            });
            expect(config.amqp.urls.map((url) => new URL(url).password)).toEqual(['p%40%3A%2F']);
            if (user === 'cli') continue;
            const ports = {
              producer: config.http.producerPort,
              worker: config.http.workerPort,
              'dead-letter-handler': config.http.deadLetterHandlerPort,
            };
            expect(container.ports).toMatchObject([{ name: 'http', containerPort: ports[user] }]);
            const probes = [container.livenessProbe, container.readinessProbe, container.startupProbe];
            for (const probe of probes) expect(HEALTH_PATHS).toContain(probe?.httpGet?.path);
          }
        }
      }
    },
  );

  testWith(kustomize, 'names queues and exchanges that the topology has, and gives rights to no others', async () => {
    for (const overlay of overlays) {
      const documents = documentsOf(overlay);
      const config = documents.find(({ kind }) => kind === 'ConfigMap')?.['data'] as Record<string, string>;
      const queues = config['WARREN_PRODUCER_DECLARED_QUEUES']?.split(',') ?? [];
      const topology = topologyOf({ prefix: 'warren', queues, queueType: 'quorum' });
      const names = [...topology.exchanges, ...topology.queues].map(({ name }) => name);
      for (const { kind, spec } of documents) {
        if (kind !== 'ScaledObject') continue;
        const { triggers } = spec as { readonly triggers: readonly { readonly metadata: Record<string, string> }[] };
        for (const { metadata } of triggers) {
          if (metadata['queueName'] !== undefined) expect(names).toContain(metadata['queueName']);
          else expect(queues).toContain(/\/v1\/scaling\/([^?]+)\?slo=\d+s$/.exec(metadata['url'] ?? '')?.[1]);
        }
      }
      const rights = new Map(
        documents.flatMap(({ kind, metadata, spec }) =>
          kind === 'Permission'
            ? [[metadata.name, (spec as { permissions: Record<'configure' | 'write' | 'read', string> }).permissions]]
            : [],
        ),
      );
      const reached = (user: string, right: 'configure' | 'write' | 'read'): readonly string[] =>
        [...names, 'amq.default', 'somebody.elses'].filter((name) =>
          new RegExp(rights.get(user)?.[right] ?? '^$').test(name),
        );
      expect(reached('warren-topology', 'configure')).toEqual(names);
      expect(reached('warren-producer', 'write')).toEqual([
        ...names.filter((name) => name !== 'warren.tasks'),
        'amq.default',
      ]);
      expect(reached('warren-dead-letter-handler', 'read')).toEqual(['warren.dead']);
      expect(reached('warren-keda', 'read')).toEqual([]);
      const workers = [...rights.keys()].filter((user) => user.startsWith('warren-worker-'));
      expect(workers.flatMap((user) => reached(user, 'read')).toSorted((a, b) => a.localeCompare(b))).toEqual(
        queues.map((queue) => `warren.q.${queue}`).toSorted((a, b) => a.localeCompare(b)),
      );
      for (const user of workers) expect(reached(user, 'write')).toEqual(['warren.work']);
    }
    await Promise.resolve();
  });
});

/** The environment with each file that it names made in a folder of the test. */
async function withFiles(environment: ReadonlyMap<string, string>): Promise<Record<string, string>> {
  const found: Record<string, string> = {};
  for (const [name, value] of environment) {
    found[name] = value;
    if (!value.startsWith('/etc/warren/')) continue;
    const file = join(folder, value);
    await mkdir(dirname(file), { recursive: true });
    const tokens = JSON.stringify([{ name: 'ops', role: 'admin', token: 'x'.repeat(20) }]);
    await writeFile(file, name.includes('TOKENS') ? tokens : 'p@:/');
    found[name] = file;
  }
  return found;
}

describe('a fault in a manifest is found', () => {
  const pod = (document: Record<string, any>): Record<string, any> => document['spec'].template.spec;
  const worker = 'Deployment warren-worker-high';
  const scaled = 'ScaledObject warren-worker-high';
  const job = 'ScaledJob warren-worker-video';
  const jobContainer = (document: Record<string, any>): Record<string, any> =>
    document['spec'].jobTargetRef.template.spec.containers[0];
  const planted: readonly (readonly [fault: RegExp, name: string, change: (document: Record<string, any>) => void])[] =
    [
      [/strategi is not in the schema/, worker, (d) => (d['spec'].strategi = {})],
      [/livenesProbe is not in the schema/, worker, (d) => (pod(d)['containers'][0].livenesProbe = {})],
      [/must be integer/, 'Deployment warren-producer', (d) => (d['spec'].replicas = 'two')],
      [/minReplicas is not in the schema/, scaled, (d) => (d['spec'].minReplicas = 1)],
      [/must NOT have additional properties "vhosts"/, 'Permission orders', (d) => (d['spec'].vhosts = 'x')],
      [/there is no schema for apps\/v9 Deployment/, worker, (d) => (d['apiVersion'] = 'apps/v9')],
      [/grace period must be more than 66 s/, worker, (d) => (pod(d)['terminationGracePeriodSeconds'] = 66)],
      [/may run as root/, worker, (d) => (pod(d)['securityContext'].runAsNonRoot = false)],
      [/no fixed version/, worker, (d) => (pod(d)['containers'][0].image = 'warren:latest')],
      [/no fixed version/, worker, (d) => (pod(d)['containers'][0].image = 'registry.example.com/warren')],
      [/has capabilities/, worker, (d) => (pod(d)['containers'][0].securityContext.capabilities.add = ['NET_ADMIN'])],
      [/can write to its image/, worker, (d) => delete pod(d)['containers'][0].securityContext.readOnlyRootFilesystem],
      [/has no limit of memory/, worker, (d) => delete pod(d)['containers'][0].resources.limits],
      [/readinessProbe does not ask \/readyz/, worker, (d) => delete pod(d)['containers'][0].readinessProbe],
      [/livenessProbe asks by HTTP$/, worker, (d) => delete pod(d)['containers'][0].livenessProbe.httpGet.scheme],
      [
        /WARREN_QUEUE is no setting/,
        worker,
        (d) => pod(d)['containers'][0].env.push({ name: 'WARREN_QUEUE', value: 'x' }),
      ],
      [
        /which is not mounted/,
        worker,
        (d) => (pod(d)['containers'][0].volumeMounts = [{ name: 'temp', mountPath: '/tmp' }]),
      ],
      [/does not wait for migrations/, worker, (d) => delete pod(d)['initContainers']],
      [/holds a URL with a password/, worker, (d) => (pod(d)['containers'][0].env[0].value = 'amqp://a:b@broker')],
      [/is a Secret/, 'Service warren-producer', (d) => (d['kind'] = 'Secret')],
      [/cannot see work that is under way/, scaled, (d) => (d['spec'].triggers[0].metadata.protocol = 'amqp')],
      [/does not count work/, scaled, (d) => (d['spec'].triggers[0].metadata.excludeUnacknowledged = 'true')],
      [/by a pattern/, scaled, (d) => (d['spec'].triggers[0].metadata.useRegex = 'true')],
      [/no fallback that keeps workers/, scaled, (d) => (d['spec'].fallback.replicas = 0)],
      [/slots differ/, scaled, (d) => (d['spec'].triggers[0].metadata.value = '7')],
      [/does not look at each/, 'ScaledObject warren-worker-reports', (d) => d['spec'].triggers.shift()],
      [/does not look at each/, job, (d) => d['spec'].triggers.shift()],
      [/repeats what Warren repeats/, job, (d) => delete d['spec'].jobTargetRef.backoffLimit],
      [/ends running jobs when it is changed/, job, (d) => delete d['spec'].rollout],
      [/starts jobs for what runs/, job, (d) => delete d['spec'].triggers[0].metadata.excludeUnacknowledged],
      [/waits for ever for a task/, job, (d) => jobContainer(d)['env'].pop()],
      [/does not end after its task/, job, (d) => jobContainer(d)['env'].splice(-2, 1)],
      [/which is not mounted/, job, (d) => (jobContainer(d)['volumeMounts'] = [{ name: 'temp', mountPath: '/tmp' }])],
    ];
  for (const [fault, name, change] of planted) {
    testWith(kustomize, `${name}: ${fault.source}`, async () => {
      expect(allFaults(changed(name, change))).toContainEqual(expect.stringMatching(fault));
      await Promise.resolve();
    });
  }

  test('a key that stands twice', () => {
    expect(() => readDocuments('a: 1\na: 2\n')).toThrow(/unique/);
  });
});

describe('pools', () => {
  test('and alerts are written as what they are printed from says', async () => {
    const files = await printManifests(ROOT);
    expect(files.size).toBe(5 * overlays.length + 1);
    for (const [path, text] of files) {
      expect({ path, text: await readFile(join(ROOT, path), 'utf8') }).toEqual({ path, text });
    }
  });

  test('a pool of jobs has one slot a queue, no Deployment, and a job for each task that waits', () => {
    const pool = { kind: 'job', name: 'video', queues: 'video:1', maxReplicas: 7 };
    const { 'scaling.yaml': scaling, 'workers.yaml': workers } = renderPools(readPools({ pools: [pool] }));
    expect(workers).toEqual([]);
    expect(scaling).toEqual([expect.objectContaining({ kind: 'ScaledJob' })]);
    expect(() => readPools({ pools: [{ ...pool, queues: 'video:2' }] })).toThrow(/one slot a queue/);
  });

  test('a pool is three lines; without a word about it one worker stays', () => {
    const { 'scaling.yaml': scaling, 'queues.env': queues } = renderPools(
      readPools({ pools: [{ name: 'mail', queues: 'mail:4,mail.bulk:1', maxReplicas: 7 }] }),
    );
    expect(scaling[0]).toMatchObject({ spec: { minReplicaCount: 1, maxReplicaCount: 7, fallback: { replicas: 4 } } });
    expect(queues).toBe('WARREN_PRODUCER_DECLARED_QUEUES=mail,mail.bulk\n');
  });

  test.each([
    [{ name: 'Mail', queues: 'mail:4', maxReplicas: 7 }, /must be a letter/],
    [{ name: 'mail', queues: 'mail:0', maxReplicas: 7 }, /name:concurrency/],
    [{ name: 'mail', queues: 'mail:4', maxReplica: 7 }, /maxReplica/],
  ])('%j is refused', (pool, reason) => {
    expect(() => readPools({ pools: [pool] })).toThrow(reason);
  });
});
