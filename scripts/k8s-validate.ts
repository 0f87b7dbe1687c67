/**
 * `make k8s-validate`: renders every overlay, and holds each document against the schema of its kind and the overlay against
 * rules of our own. Exit 1: something is wrong. Exit 2: kustomize cannot be had here.
 */
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { isStackFailure } from '../deploy/local-stack/failure.ts';
import { findRoot } from '../deploy/local-stack/stack.ts';
import { toError } from '../shared/errors/to-error.ts';
import { nameOf, renderFolder } from './k8s/documents.ts';
import { findKustomize } from './k8s/kustomize.ts';
import { policyFaults } from './k8s/policies.ts';
import { listOverlays, printManifests } from './k8s/printed-manifests.ts';
import { faultsOf, readSchemas } from './k8s/schemas.ts';

const CANNOT_RUN = 2;

async function validate(root: string, kustomize: readonly string[]): Promise<readonly string[]> {
  const faults: string[] = [];
  for (const [path, text] of await printManifests(root)) {
    const written = await readFile(join(root, path), 'utf8').catch(() => undefined);
    if (written !== text) faults.push(`${path} is not what it is printed from: run \`make k8s-pools\``);
  }
  const schemas = readSchemas(root);
  for (const overlay of await listOverlays(root)) {
    const documents = await renderFolder(kustomize, root, `overlays/${overlay}`);
    const found = [
      ...documents.flatMap((document) => faultsOf(document, schemas).map((fault) => `${nameOf(document)}: ${fault}`)),
      ...policyFaults(documents),
    ];
    console.log(`${overlay}: ${documents.length} documents, ${found.length} faults`);
    faults.push(...found.map((fault) => `${overlay}: ${fault}`));
  }
  return faults;
}

try {
  const root = findRoot();
  const kustomize = await findKustomize(root, (line) => console.log(line));
  const faults = await validate(root, kustomize);
  for (const fault of faults) console.error(fault);
  process.exitCode = faults.length === 0 ? 0 : 1;
} catch (thrown) {
  console.error(toError(thrown).message);
  process.exitCode = isStackFailure(thrown) ? CANNOT_RUN : 1;
}
