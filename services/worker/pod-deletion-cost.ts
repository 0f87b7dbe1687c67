/**
 * Tells Kubernetes how much this worker's pod has to lose: of the pods of a Deployment that shrinks, those with the lower
 * `controller.kubernetes.io/pod-deletion-cost` go first. A wish and no more: what goes drains in any case.
 */
import { readFile } from 'node:fs/promises';
import { request } from 'node:https';
import { join } from 'node:path';
import { Loop } from '../../shared/lifecycle/loop.ts';
import type { LoopDeps } from '../../shared/lifecycle/loop.ts';

/** What it needs. */
export interface PodDeletionCostDeps extends Omit<LoopDeps, 'round'> {
  /** Attempts that run, and that can. */
  readonly load: () => { readonly running: number; readonly slots: number };
}

/** Where the pod stands. */
export interface PodDeletionCostOptions {
  /** Name of the pod, which is its host name. */
  readonly pod: string;
  /** Of the API server. */
  readonly apiUrl: string;
  /** Folder of the service account: `token`, `ca.crt`, `namespace`. */
  readonly accountDir: string;
  /** Milliseconds between two looks; the pod is changed only where its cost is another. */
  readonly intervalMs: number;
}

/** As Kubernetes sets it up in every pod. An annotation is a write to the cluster's store: not more often than every ten seconds. */
export const IN_CLUSTER: Omit<PodDeletionCostOptions, 'pod'> = {
  apiUrl: 'https://kubernetes.default.svc',
  accountDir: '/var/run/secrets/kubernetes.io/serviceaccount',
  intervalMs: 10_000,
};

const ANNOTATION = 'controller.kubernetes.io/pod-deletion-cost';
const STEPS = 4;
const MOST = 100;
const WITHIN_MS = 3_000;

/** 0 for an idle worker, up to 100 for a full one, in quarters: few changes, and the idle go first. */
export function deletionCost({ running, slots }: { readonly running: number; readonly slots: number }): number {
  if (running === 0 || slots === 0) return 0;
  return Math.min(MOST, Math.ceil((STEPS * running) / slots) * (MOST / STEPS));
}

/** Makes the loop. A round fails where the API server refuses or does not answer in time; the loop says so less and less often. */
export function createPodDeletionCost(deps: PodDeletionCostDeps, options: PodDeletionCostOptions): Loop {
  let told: number | undefined;
  const round = async (): Promise<void> => {
    const cost = deletionCost(deps.load());
    if (cost === told) return;
    await annotate(options, cost);
    told = cost;
  };
  return new Loop({ ...deps, round }, { name: 'pod deletion cost', intervalMs: options.intervalMs });
}

/** Kubernetes renews the token from time to time, so it is read anew. */
async function annotate({ pod, apiUrl, accountDir }: PodDeletionCostOptions, cost: number): Promise<void> {
  const [token, ca, namespace] = await Promise.all(
    ['token', 'ca.crt', 'namespace'].map(async (file) => (await readFile(join(accountDir, file), 'utf8')).trim()),
  );
  const body = JSON.stringify({ metadata: { annotations: { [ANNOTATION]: String(cost) } } });
  const path = `/api/v1/namespaces/${encodeURIComponent(namespace ?? '')}/pods/${encodeURIComponent(pod)}`;
  const status = await new Promise<number>((resolve, reject) => {
    const headers = {
      authorization: `Bearer ${token}`,
      'content-type': 'application/merge-patch+json',
      'content-length': Buffer.byteLength(body),
    };
    const signal = AbortSignal.timeout(WITHIN_MS);
    const sending = request(new URL(path, apiUrl), { method: 'PATCH', headers, ca, signal }, (answer) => {
      answer.resume();
      answer.once('end', () => resolve(answer.statusCode ?? 0));
      answer.once('error', reject);
    });
    sending.once('error', reject);
    sending.end(body);
  });
  if (status < 300) return;
  const hint = status === 403 ? '; its service account needs the verb patch on pods' : '';
  throw new Error(`the API server answered ${status} to a change of pod ${pod} in ${namespace}${hint}`);
}
