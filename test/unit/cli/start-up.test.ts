/** `warren task get` starts quickly: what a command does not need is not loaded. */
import { readFile } from 'node:fs/promises';
import { expect, test } from '@jest/globals';

/** Packages that the files reachable by static imports of values name. */
async function packagesFrom(entry: URL, seen = new Set<string>()): Promise<ReadonlySet<string>> {
  const packages = new Set<string>();
  if (seen.has(entry.href)) return packages;
  seen.add(entry.href);
  const source = await readFile(entry, 'utf8');
  for (const [, kind, specifier = ''] of source.matchAll(/^(import|export) (?!type\b)[^;]*?from '([^']+)';/gms)) {
    if (kind === undefined || specifier.startsWith('node:')) continue;
    if (!specifier.startsWith('.')) packages.add(specifier);
    else for (const name of await packagesFrom(new URL(specifier, entry), seen)) packages.add(name);
  }
  return packages;
}

test('only commander is loaded before a command runs', async () => {
  expect([...(await packagesFrom(new URL('../../../cli/main.ts', import.meta.url)))]).toEqual(['commander']);
});

test('the check sees what administrative commands load', async () => {
  const found = await packagesFrom(new URL('../../../cli/installation.ts', import.meta.url));
  expect([...found]).toEqual(expect.arrayContaining(['pg', 'amqp-connection-manager', 'convict', 'zod']));
});
