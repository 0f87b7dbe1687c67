/** A rendered overlay as documents: what kustomize makes of it, parsed. */
import { execFile } from 'node:child_process';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { parseAllDocuments } from 'yaml';

const run = promisify(execFile);

/** A document of Kubernetes, as far as everything here looks at it. */
export interface K8sObject {
  readonly apiVersion: string;
  readonly kind: string;
  readonly metadata: { readonly name: string; readonly labels?: Readonly<Record<string, string>> };
  readonly [member: string]: unknown;
}

/** Renders a folder under `k8s/`. `kustomize` is the command that `findKustomize` gave. Throws with kustomize's words. */
export async function renderFolder(kustomize: readonly string[], root: string, folder: string): Promise<K8sObject[]> {
  const [program = '', ...args] = kustomize;
  const { stdout } = await run(program, [...args, join(root, 'k8s', folder)], { maxBuffer: 64 * 1024 * 1024 });
  return readDocuments(stdout);
}

/** Reads YAML of one document or more. Throws for what is no YAML, or gives a key twice. */
export function readDocuments(text: string): K8sObject[] {
  return parseAllDocuments(text, { uniqueKeys: true }).map((document) => {
    const [error] = document.errors;
    if (error !== undefined) throw error;
    return document.toJS() as K8sObject;
  });
}

/** `Deployment warren-producer`. */
export function nameOf({ kind, metadata }: K8sObject): string {
  return `${kind} ${metadata.name}`;
}
