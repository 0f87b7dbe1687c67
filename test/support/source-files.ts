/** The sources of the repository as text, for tests that read them. */
import { readFileSync, readdirSync } from 'node:fs';
import { dirname, join, posix, relative, sep } from 'node:path';
import { fileURLToPath } from 'node:url';

/** The folder of the repository. */
export const ROOT = fileURLToPath(new URL('../..', import.meta.url)).replace(/[/\\]$/, '');

const NEVER = new Set(['node_modules', 'dist', 'coverage']);

/** One import of one file. */
export interface Import {
  /** Path of the importing file from the root, with `/`. */
  readonly file: string;
  /** Path from the root for a file of ours, else the name as written: `pg`, `node:fs`. */
  readonly target: string;
  /** True where only types are imported, so that nothing of it is there at run time. */
  readonly isTypeOnly: boolean;
  /** True for `import('…')`, which loads when it is reached. */
  readonly isDynamic: boolean;
}

/** Paths below `folder` (from the root, with `/`), sorted. Hidden and made folders are left out. */
export function listFiles(folder = '.'): string[] {
  const found: string[] = [];
  const walk = (at: string): void => {
    for (const entry of readdirSync(join(ROOT, at), { withFileTypes: true })) {
      const path = posix.join(at, entry.name);
      if (entry.isDirectory()) {
        const isKept =
          !NEVER.has(entry.name) && (!entry.name.startsWith('.') || ['.ci', '.github'].includes(entry.name));
        if (isKept) walk(path);
      } else if (entry.isFile()) found.push(path);
    }
  };
  walk(folder);
  return found.toSorted();
}

/** The text of a file. */
export function readSource(path: string): string {
  return readFileSync(join(ROOT, path), 'utf8');
}

/** The TypeScript files below some folders. */
export function listSources(...folders: readonly string[]): string[] {
  return folders.flatMap((folder) => listFiles(folder)).filter((path) => path.endsWith('.ts'));
}

/** Every static and dynamic import of a TypeScript file. */
export function importsOf(file: string): Import[] {
  return importsIn(file, readSource(file));
}

/** The same, of a text that stands for a file. */
export function importsIn(file: string, source: string): Import[] {
  const text = withoutComments(source);
  const statics = [...text.matchAll(/^(?:import|export)\s+(type\s)?(?:[^'";]*?\sfrom\s+)?'([^']+)'/gm)].map(
    ([, type, target = '']) => ({ isTypeOnly: type !== undefined, isDynamic: false, target }),
  );
  const dynamics = [...text.matchAll(/\bimport\('([^']+)'\)/g)].map(([, target = '']) => ({
    isTypeOnly: false,
    isDynamic: true,
    target,
  }));
  return [...statics, ...dynamics].map((found) => ({ ...found, file, target: resolve(file, found.target) }));
}

function resolve(file: string, target: string): string {
  if (!target.startsWith('.')) return target;
  return relative(ROOT, join(ROOT, dirname(file), target))
    .split(sep)
    .join('/');
}

/** Source without block comments and whole-line comments: what is left of a line is code or text. */
export function withoutComments(text: string): string {
  return text.replaceAll(/\/\*[\s\S]*?\*\//g, '').replaceAll(/^\s*\/\/.*$/gm, '');
}
