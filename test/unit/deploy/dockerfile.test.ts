/** The file of the image: parsed, linted, and held to what an image of a cluster must be. */
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from '@jest/globals';
import { validate } from 'dockerfile-utils';
import { ROLES } from '../../../deploy/image/roles.ts';
import { listSettings } from '../../../shared/config/schema.ts';
import { DOCKERFILE, readDockerfile, readDockerignore, stepsOf } from '../../support/dockerfile.ts';
import { ROOT, listFiles, readSource } from '../../support/source-files.ts';

const text = readSource(DOCKERFILE);
const stages = readDockerfile();
const all = stages.flatMap(({ steps }) => steps);

test('the linter finds nothing', () => {
  expect(validate(text)).toEqual([]);
  expect(validate('FROM a\nRUNN b').length).toBeGreaterThan(0);
});

test('both stages are of one Node 24 slim image, pinned to a release', () => {
  expect(stages.map(({ name }) => name)).toEqual(['build', 'runtime']);
  expect(text).toMatch(/^ARG NODE_IMAGE=node:24\.\d+\.\d+-bookworm-slim$/m);
  expect(stages.map(({ image }) => image)).toEqual(['${NODE_IMAGE}', '${NODE_IMAGE}']);
});

test('no step goes through a shell, and the first process is node itself, which signals reach', () => {
  const commands = all.filter(({ keyword }) => ['RUN', 'CMD', 'ENTRYPOINT', 'HEALTHCHECK'].includes(keyword));
  expect(commands.filter(({ exec }) => exec === undefined)).toEqual([]);
  expect(commands.filter(({ exec }) => /^(sh|bash|ash|dash)$/.test(exec?.[0] ?? ''))).toEqual([]);
  expect(stepsOf('runtime', 'ENTRYPOINT')).toEqual([
    expect.objectContaining({ exec: ['node', 'dist/deploy/image/start.js'] }),
  ]);
  expect(stepsOf('runtime', 'HEALTHCHECK')).toHaveLength(1);
  expect(stepsOf('runtime', 'STOPSIGNAL').map(({ words }) => words)).toEqual([['SIGTERM']]);
});

test('it runs as a user by number who is not root, and nothing is copied as that user', () => {
  expect(stepsOf('runtime', 'USER').map(({ words }) => words)).toEqual([['1000:1000']]);
  expect(text).not.toMatch(/--chown|--chmod|chmod|sudo/);
});

test('it holds no build tool, no secret and no file that a tag cannot fix', () => {
  const runtime = stages.find(({ name }) => name === 'runtime');
  expect(runtime?.steps.filter(({ keyword }) => keyword === 'RUN')).toEqual([]);
  expect(runtime?.steps.filter(({ keyword, from }) => keyword === 'COPY' && from !== 'build')).toEqual([]);
  expect(all.filter(({ keyword }) => keyword === 'ADD')).toEqual([]);
  const variables = stepsOf('runtime', 'ENV').flatMap(({ properties }) => Object.keys(properties));
  const known = new Set(['NODE_ENV', 'NODE_OPTIONS', ...listSettings().map(({ env }) => env)]);
  expect(variables.length).toBeGreaterThan(2);
  expect(variables.filter((name) => !known.has(name))).toEqual([]);
  const secrets = new Set(listSettings().flatMap(({ env, setting }) => (setting.sensitive ? [env] : [])));
  expect(variables.filter((name) => secrets.has(name))).toEqual([]);
});

test('it says what it is by the labels of the OCI', () => {
  const labels = stepsOf('runtime', 'LABEL').flatMap(({ properties }) => Object.keys(properties));
  const names = ['title', 'description', 'licenses', 'version', 'revision', 'created'];
  expect(labels.toSorted()).toEqual(names.map((name) => `org.opencontainers.image.${name}`).toSorted());
  const { version } = JSON.parse(readSource('package.json')) as { readonly version: string };
  expect(text).toContain(`ARG VERSION=${version}\n`);
});

test('what is copied in exists and is not ignored; of the clone nothing goes to the engine but that', () => {
  const rules = readDockerignore();
  const copied = stepsOf('build', 'COPY').flatMap(({ words }) => words.slice(0, -1));
  expect(copied.filter((path) => !existsSync(join(ROOT, path)))).toEqual([]);
  const isWanted = (path: string): boolean => copied.some((each) => path === each || path.startsWith(`${each}/`));
  const sent = listFiles('.').filter((path) => !rules.ignores(path));
  expect(sent.filter((path) => !isWanted(path))).toEqual([]);
  for (const source of [
    'package-lock.json',
    'services/worker/attempt.ts',
    'shared/postgres/migrations/0001_tasks.sql',
  ]) {
    expect(sent).toContain(source);
  }
  for (const secret of ['.git/config', '.warren/test.log', '.env', 'deploy/.env.local', 'deploy/server.key']) {
    expect({ secret, isIgnored: rules.ignores(secret) }).toEqual({ secret, isIgnored: true });
  }
});

test('every role starts a program that the build makes, and every port of a service is exposed', () => {
  for (const [name, { program }] of Object.entries(ROLES)) {
    expect({ name, isThere: existsSync(join(ROOT, program.replace(/\.js$/, '.ts'))) }).toEqual({ name, isThere: true });
  }
  const ports = listSettings().flatMap(({ path, setting }) =>
    /^http\.\w+Port$/.test(path) ? [String(setting.default)] : [],
  );
  expect(stepsOf('runtime', 'EXPOSE').flatMap(({ words }) => words)).toEqual(ports);
});
