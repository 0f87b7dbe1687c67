/**
 * `make golden`: writes every printed file anew, the golden files of the tests and the reference pages of the docs. What
 * changed is shown by `git diff`, and is reviewed like a change of an API.
 */
import { readdir, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { findRoot } from '../deploy/local-stack/stack.ts';
import { toError } from '../shared/errors/to-error.ts';
import { renderSchema } from './dump-schema.ts';
import { PRINTED_FOLDERS, SCHEMA_FILE, printGoldenFiles } from './golden-files.ts';
import { createDatabaseBeside, dropDatabaseBeside, prepareDatabase, withDatabase } from './provision.ts';
import { writePrinted } from './write-printed.ts';

const DATABASE = 'warren_golden';

async function main(): Promise<void> {
  const root = findRoot();
  const files = new Map(await printGoldenFiles());
  const serverUrl = process.env['DATABASE_URL'] ?? '';
  if (serverUrl === '') throw new Error('DATABASE_URL is not set; run `make golden`');
  files.set(SCHEMA_FILE, await printSchema(serverUrl));
  for (const folder of PRINTED_FOLDERS) {
    for (const entry of await readdir(join(root, folder), { recursive: true, withFileTypes: true })) {
      const path = join(entry.parentPath, entry.name).slice(root.length + 1);
      if (!entry.isFile() || files.has(path)) continue;
      await rm(join(root, path));
      console.log(`removed  ${path}`);
    }
  }
  await writePrinted(root, files);
}

async function printSchema(serverUrl: string): Promise<string> {
  const url = await createDatabaseBeside(serverUrl, DATABASE);
  try {
    await prepareDatabase(url, 'warren');
    return await withDatabase(url, async (db) => await renderSchema(db));
  } finally {
    await dropDatabaseBeside(serverUrl, DATABASE);
  }
}

try {
  await main();
} catch (thrown) {
  console.error(`golden files were not written: ${toError(thrown).message}`);
  process.exitCode = 1;
}
