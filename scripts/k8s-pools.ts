/** `make k8s-pools`: writes what belongs to the pools of workers that `k8s/overlays/<overlay>/pools.yaml` names, and the alerts. */
import { findRoot } from '../deploy/local-stack/stack.ts';
import { toError } from '../shared/errors/to-error.ts';
import { printManifests } from './k8s/printed-manifests.ts';
import { writePrinted } from './write-printed.ts';

try {
  const root = findRoot();
  await writePrinted(root, await printManifests(root));
} catch (thrown) {
  console.error(toError(thrown).message);
  process.exitCode = 1;
}
