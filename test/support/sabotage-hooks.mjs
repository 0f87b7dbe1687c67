/** Loader hook: changes the text of built modules as they are loaded. A text that is not there is an error. */
/* oxlint-disable typescript/no-unsafe-call, typescript/no-unsafe-member-access, typescript/no-unsafe-argument, typescript/no-unsafe-return, typescript/no-unsafe-assignment -- plain JavaScript without types: node loads it before anything else */
import { readFile } from 'node:fs/promises';
import { transform } from '@swc/core';

const MARK = '/* sabotaged */\n';
let edits = [];

export function initialize(data) {
  edits = data;
}

export async function load(url, context, nextLoad) {
  const [, folder, program] = /^(.*\/)dist\/(services\/[\w-]+\/main)\.js$/.exec(url) ?? [];
  if (program !== undefined) return await inPieces(new URL(`${program}.ts`, folder));
  const loaded = await nextLoad(url, context);
  const own = edits.filter(({ module }) => url.endsWith(`/dist/${module}`));
  if (own.length === 0) return loaded;
  let source = String(loaded.source);
  if (source.startsWith(MARK)) return loaded; // a thread registers the hook once more
  for (const { module, from, to } of own) {
    if (!source.includes(from)) throw new Error(`sabotage: ${module} does not hold ${from}`);
    source = source.replaceAll(from, to);
  }
  return { ...loaded, source: MARK + source };
}

/** What a program was before the build put it into one file with all its modules. */
async function inPieces(source) {
  const { code } = await transform(await readFile(source, 'utf8'), { filename: source.pathname });
  return { format: 'module', source: code.replaceAll(/\.ts(?=['"])/g, '.js'), shortCircuit: true };
}
