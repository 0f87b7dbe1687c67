/**
 * Manifests that are printed from something else: what belongs to each `pools.yaml` under `k8s/overlays`, and the alerts of
 * `deploy/prometheus` for the Prometheus Operator. `k8s-pools.ts` writes them, a test compares.
 */
import { existsSync } from 'node:fs';
import { readFile, readdir } from 'node:fs/promises';
import { join } from 'node:path';
import { parse, stringify } from 'yaml';
import { z } from 'zod';
import { readPools, renderPools } from './pools.ts';
import type { Manifest } from './pools.ts';

const HEAD = '# Made from pools.yaml by `make k8s-pools`: change that, not this.\n';

const RULES = 'deploy/prometheus/warren.rules.yml';

/** Names of the overlays. */
export async function listOverlays(root: string): Promise<readonly string[]> {
  return (await readdir(join(root, 'k8s/overlays'))).toSorted((a, b) => a.localeCompare(b));
}

/** Path below the root → text, of every overlay. Throws an Error that names the file and what is wrong in it. */
export async function printManifests(root: string): Promise<ReadonlyMap<string, string>> {
  const files = new Map([['k8s/components/monitoring/rules.yaml', await printRules(root)]]);
  for (const overlay of await listOverlays(root)) {
    const path = `k8s/overlays/${overlay}/pools.yaml`;
    if (!existsSync(join(root, path))) continue;
    const contents: Readonly<Record<string, string | readonly Manifest[]>> = { ...(await renderFile(root, path)) };
    for (const [name, content] of Object.entries(contents)) {
      const text = typeof content === 'string' ? content : content.map((each) => stringify(each)).join('---\n');
      files.set(`k8s/overlays/${overlay}/pools/${name}`, HEAD + text);
    }
  }
  return files;
}

async function printRules(root: string): Promise<string> {
  const rule = {
    apiVersion: 'monitoring.coreos.com/v1',
    kind: 'PrometheusRule',
    metadata: { name: 'warren', labels: { 'app.kubernetes.io/name': 'warren' } },
    spec: parse(await readFile(join(root, RULES), 'utf8')) as unknown,
  };
  return `# Made from ${RULES} by \`make k8s-pools\`: change that, not this.\n${stringify(rule)}`;
}

async function renderFile(root: string, path: string): Promise<ReturnType<typeof renderPools>> {
  try {
    return renderPools(readPools(parse(await readFile(join(root, path), 'utf8'))));
  } catch (thrown) {
    if (!isZodError(thrown)) throw thrown;
    throw new Error(`${path}:\n${z.prettifyError(thrown)}`, { cause: thrown });
  }
}

function isZodError(thrown: unknown): thrown is z.ZodError {
  return typeof thrown === 'object' && thrown !== null && 'name' in thrown && 'issues' in thrown;
}
