/** Copies what the compiler leaves out (SQL, pictures, scripts, data) to the same place under `dist/`. */
import { cp, readdir } from 'node:fs/promises';
import { join } from 'node:path';

const SOURCES = ['services', 'shared', 'cli', 'examples', 'deploy'];

/** True for files that a built program reads: all but what was compiled. */
function isAsset(path: string): boolean {
  return !path.endsWith('.ts');
}

for (const source of SOURCES) {
  const entries = await readdir(source, { recursive: true, withFileTypes: true });
  for (const entry of entries) {
    const path = join(entry.parentPath, entry.name);
    if (entry.isFile() && isAsset(path)) await cp(path, join('dist', path), { preserveTimestamps: true });
  }
}
