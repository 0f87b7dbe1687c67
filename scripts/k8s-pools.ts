/** `make k8s-pools`: writes what belongs to the pools of workers that `k8s/overlays/<overlay>/pools.yaml` names, and the alerts. */
import { mkdir, readFile, writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { findRoot } from '../deploy/local-stack/stack.ts';
import { toError } from '../shared/errors/to-error.ts';
import { printManifests } from './k8s/printed-manifests.ts';

try {
  const root = findRoot();
  const files = await printManifests(root);
  for (const [path, text] of files) {
    const file = join(root, path);
    if ((await readFile(file, 'utf8').catch(() => undefined)) === text) continue;
    await mkdir(dirname(file), { recursive: true });
    await writeFile(file, text);
    console.log(`written  ${path}`);
  }
  console.log(`${files.size} printed manifests are up to date`);
} catch (thrown) {
  console.error(toError(thrown).message);
  process.exitCode = 1;
}
