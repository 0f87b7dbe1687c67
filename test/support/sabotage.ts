/** Faults built into a running program, without a trace of them in its sources. */
import { pathToFileURL } from 'node:url';
import { join } from 'node:path';
import { findRoot } from '../../deploy/local-stack/stack.ts';

/** One change of a built module, wherever the text stands in it. */
export interface Sabotage {
  /** Path under `dist/`. */
  readonly module: string;
  readonly from: string;
  readonly to: string;
}

/** The environment of a process that shall have these faults. It ends at once where a text is not found. */
export function sabotaged(...edits: readonly Sabotage[]): Readonly<Record<string, string>> {
  const hook = pathToFileURL(join(findRoot(), 'test/support/sabotage.mjs')).href;
  return { NODE_OPTIONS: `--import ${hook}`, CHAOS_SABOTAGE: JSON.stringify(edits) };
}
