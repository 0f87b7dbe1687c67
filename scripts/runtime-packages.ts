/**
 * Leaves in `node_modules` what a program needs while it runs, for an image: the dependencies, and those optional peers that a
 * setting can ask for, all of the versions of `package-lock.json`. Changes the package.json of the folder that it runs in.
 */
import { execFileSync } from 'node:child_process';
import { readFileSync } from 'node:fs';

interface Package {
  readonly devDependencies: Readonly<Record<string, string>>;
  readonly peerDependencies: Readonly<Record<string, string>>;
}

const { devDependencies, peerDependencies } = JSON.parse(readFileSync('package.json', 'utf8')) as Package;
const npm = (...args: readonly string[]): Buffer =>
  execFileSync('npm', args, { stdio: ['ignore', 'inherit', 'inherit'] });

// A peer is a development dependency here, and as such would be left out.
for (const name of Object.keys(peerDependencies)) {
  const version = devDependencies[name];
  if (version === undefined)
    throw new Error(`${name} is a peer, and no development dependency says which version was tested`);
  npm('pkg', 'delete', `peerDependencies.${name}`, `peerDependenciesMeta.${name}`, `devDependencies.${name}`);
  npm('pkg', 'set', `dependencies.${name}=${version}`);
}
npm('install', '--omit=dev', '--ignore-scripts', '--no-audit', '--no-fund');
