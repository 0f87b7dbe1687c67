/**
 * `make release`: packs the command line and the client, writes what they stand on (CycloneDX) and checksums, then installs the command
 * line in an empty folder and asks it for its version. `release.js [FOLDER]`; the default is dist/release. Publishes nothing.
 */
import { execFileSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { mkdirSync, mkdtempSync, readFileSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { findRoot } from '../deploy/local-stack/stack.ts';

const root = findRoot();
const out = resolve(process.argv[2] ?? join(root, 'dist/release'));

function npm(args: readonly string[], cwd = root): string {
  return execFileSync('npm', args, {
    cwd,
    encoding: 'utf8',
    maxBuffer: 64 * 1024 * 1024,
    stdio: ['ignore', 'pipe', 'inherit'],
  });
}

/** npm names the root after its folder, which is another in each clone. */
function underItsName(sbom: string): string {
  const { component } = (JSON.parse(sbom) as Sbom).metadata;
  const own = `warren@${version}`;
  const named = JSON.parse(sbom.replaceAll(`"${component['bom-ref']}"`, `"${own}"`)) as Sbom;
  return `${JSON.stringify({ ...named, metadata: { ...named.metadata, component: { ...named.metadata.component, name: 'warren', purl: `pkg:npm/${own}` } } }, undefined, 2)}\n`;
}

interface Sbom {
  readonly metadata: { readonly component: Readonly<Record<string, unknown>> & { readonly 'bom-ref': string } };
}

const { version } = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8')) as { readonly version: string };
if (!/^## \[(Unreleased|[\d.]+)\]/m.test(readFileSync(join(root, 'CHANGELOG.md'), 'utf8'))) {
  throw new Error('CHANGELOG.md says nothing of what is released');
}
rmSync(out, { recursive: true, force: true });
mkdirSync(out, { recursive: true });
npm(['pack', '--silent', '--pack-destination', out]);
npm(['pack', '--silent', '--workspace', '@warren/client', '--pack-destination', out]);
const sbom = npm([
  'sbom',
  '--sbom-format',
  'cyclonedx',
  '--sbom-type',
  'application',
  '--omit',
  'dev',
  '--omit',
  'optional',
]);
writeFileSync(join(out, `warren-${version}.cdx.json`), underItsName(sbom));

const empty = mkdtempSync(join(tmpdir(), 'warren-release-'));
try {
  writeFileSync(join(empty, 'package.json'), '{}\n');
  npm(['install', '--silent', '--no-audit', '--no-fund', join(out, `warren-${version}.tgz`)], empty);
  const said = execFileSync(join(empty, 'node_modules/.bin/warren'), ['--version'], { encoding: 'utf8' }).trim();
  if (said !== version) throw new Error(`the command line that was packed says ${said}, not ${version}`);
} finally {
  rmSync(empty, { recursive: true, force: true });
}
const sums = readdirSync(out)
  .toSorted()
  .map((name) => {
    const digest = createHash('sha256')
      .update(readFileSync(join(out, name)))
      .digest('hex');
    return `${digest}  ${name}\n`;
  });
writeFileSync(join(out, 'SHA256SUMS'), sums.join(''));
process.stdout.write(sums.join(''));
