/** Finds kustomize: the machine's own, that in a kubectl which knows components, or Debian's package without installing it. */
import { execFile } from 'node:child_process';
import { access } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { fetchFromSuite } from '../../deploy/local-stack/debian-packages.ts';
import { openHome } from '../../deploy/local-stack/home.ts';

const run = promisify(execFile);

/** The suite of Debian whose kustomize is fetched: the first that has one; its program needs nothing but a C library. */
const SUITE = 'trixie';

/**
 * The command that renders a folder, without the folder. Components came with kustomize 3.7; Debian 12's kubectl carries 2.0.
 * Throws a StackFailure that says what is missing.
 */
export async function findKustomize(root: string, tell: (line: string) => void): Promise<readonly string[]> {
  if (await answers('kustomize', ['version'], /^\{?v?(?:[4-9]|Version:v?[4-9]|\(devel\))/))
    return ['kustomize', 'build'];
  if (await answers('kubectl', ['version', '--client'], /^Kustomize Version: v[4-9]/m)) return ['kubectl', 'kustomize'];
  const { servers } = await openHome(root);
  const folder = await fetchFromSuite(servers, { package: 'kustomize', suite: SUITE, megabytes: 16 }, tell);
  const program = join(folder, 'usr/bin/kustomize');
  await access(program);
  return [program, 'build'];
}

async function answers(program: string, args: readonly string[], expected: RegExp): Promise<boolean> {
  try {
    return expected.test((await run(program, [...args])).stdout);
  } catch {
    return false; // it is not here: the next one may be
  }
}
