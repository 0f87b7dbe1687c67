/** Writes printed files where they differ from what is there. */
import { mkdir, readFile, writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';

/** Writes each file, by its path under `root`, and says which. Throws what the file system says. */
export async function writePrinted(root: string, files: ReadonlyMap<string, string>): Promise<void> {
  for (const [path, text] of files) {
    const file = join(root, path);
    if ((await readFile(file, 'utf8').catch(() => undefined)) === text) continue;
    await mkdir(dirname(file), { recursive: true });
    await writeFile(file, text);
    console.log(`written  ${path}`);
  }
  console.log(`${files.size} printed files are up to date`);
}
