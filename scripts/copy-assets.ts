/**
 * Copies what the compiler leaves out (SQL, pictures, scripts, data) to the same place under `dist/`, and removes there what has
 * left the sources: a migration that was renamed would be applied twice.
 */
import { cp, readdir, rm } from 'node:fs/promises';
import { join, relative } from 'node:path';

const SOURCES = ['services', 'shared', 'cli', 'examples', 'deploy'];

/** True for files that a built program reads: all but what was compiled. */
function isAsset(path: string): boolean {
  return !path.endsWith('.ts');
}

/** Where the compiler puts a source. */
const compiledOf = (path: string): string => path.replace(/\.ts$/, '.js');

async function filesBelow(folder: string): Promise<string[]> {
  const entries = await readdir(folder, { recursive: true, withFileTypes: true }).catch(() => []);
  return entries.filter((entry) => entry.isFile()).map((entry) => join(entry.parentPath, entry.name));
}

for (const source of SOURCES) {
  const paths = await filesBelow(source);
  for (const path of paths.filter((each) => isAsset(each))) {
    await cp(path, join('dist', path), { preserveTimestamps: true });
  }
  const wanted = new Set(paths.map((path) => compiledOf(path)));
  for (const built of await filesBelow(join('dist', source))) {
    const path = relative('dist', built);
    if (!wanted.has(path.replace(/\.js\.map$/, '.js'))) await rm(built);
  }
}
