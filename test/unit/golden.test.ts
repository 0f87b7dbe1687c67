/** What is printed from code stands in the repository as the code prints it now. `make golden` writes it anew. */
import { expect, test } from '@jest/globals';
import { PRINTED_FOLDERS, SCHEMA_FILE, printGoldenFiles } from '../../scripts/golden-files.ts';
import { listFiles, readSource } from '../support/source-files.ts';

const printed = await printGoldenFiles();

test.each([...printed])('%s is as the code prints it', (path, text) => {
  expect(readSource(path)).toBe(text);
});

test('no printed file is left of something that is gone', () => {
  const there = PRINTED_FOLDERS.flatMap((folder) => listFiles(folder));
  expect(there.filter((path) => path !== SCHEMA_FILE && !printed.has(path))).toEqual([]);
});
