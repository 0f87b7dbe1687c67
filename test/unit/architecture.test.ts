/** Who may import whom, read from every import line. The tables below are the architecture; the exceptions have a reason. */
import { expect, test } from '@jest/globals';
import { importsIn, importsOf, listFiles, listSources } from '../support/source-files.ts';
import type { Import } from '../support/source-files.ts';

/** Subjects of `shared/`, each with those that it may import beside itself. `errors`, `time` and `text` may be imported by all. */
const SUBJECTS: Readonly<Record<string, readonly string[]>> = {
  errors: [],
  time: [],
  text: [],
  filter: ['postgres'],
  lifecycle: [],
  config: [],
  observability: ['lifecycle', 'config'],
  resilience: ['lifecycle', 'config', 'observability'],
  tls: ['observability'],
  files: ['lifecycle', 'config'],
  postgres: ['lifecycle', 'config', 'observability', 'resilience', 'tls'],
  amqp: ['lifecycle', 'config', 'observability', 'resilience', 'tls'],
  tasks: ['lifecycle', 'config', 'observability', 'resilience', 'tls', 'postgres', 'amqp', 'filter', 'files'],
  'dead-letters': ['lifecycle', 'config', 'observability', 'resilience', 'postgres', 'amqp', 'tasks', 'filter'],
  flows: ['tasks'],
  schedules: ['postgres', 'amqp', 'tasks', 'flows'],
  http: ['lifecycle', 'config', 'observability', 'resilience', 'tls', 'tasks'],
};
const BELOW_ALL = ['errors', 'time', 'text'];

/** Files of a subject that reach higher, with the reason. */
const REACHES_HIGHER: Readonly<Record<string, { readonly to: readonly string[]; readonly reason: string }>> = {
  'shared/lifecycle/process-main.ts': {
    to: ['config', 'observability'],
    reason: 'the frame of a process: it loads the configuration and makes the logger before anything else is there',
  },
  'shared/lifecycle/loop.ts': {
    to: ['observability'],
    reason: 'a round that fails is logged; types of the logger only',
  },
  'shared/lifecycle/in-order.ts': {
    to: ['observability'],
    reason: 'a part that fails to stop is logged; types of the logger only',
  },
};

/** Packages that are known to one place each. */
const PACKAGES: readonly { readonly name: string; readonly within: readonly string[] }[] = [
  { name: 'pg', within: ['shared/postgres/pool.ts', 'test/support/'] },
  { name: 'amqplib', within: ['shared/amqp/', 'client/src/amqp-client.ts', 'test/'] },
  { name: 'amqp-connection-manager', within: ['shared/amqp/connection.ts'] },
  { name: 'winston', within: ['shared/observability/log.ts'] },
  { name: 'prom-client', within: ['shared/observability/metrics.ts'] },
  { name: 'opossum', within: ['shared/resilience/breaker.ts'] },
  { name: 'convict', within: ['shared/config/load.ts'] },
  { name: 'piscina', within: ['services/worker/thread-pool.ts'] },
  { name: 'commander', within: ['cli/'] },
  { name: 'fastify', within: ['shared/http/'] },
  { name: 'uuid', within: ['shared/tasks/ids.ts'] },
  { name: 'undici', within: ['cli/fetch.ts', 'test/'] },
  { name: 'croner', within: ['shared/schedules/calendar.ts'] },
  { name: 'temporal-polyfill', within: ['shared/schedules/calendar.ts'] },
  {
    name: '@opentelemetry/api',
    within: ['shared/observability/tracing.ts', 'shared/observability/trace-export.ts', 'client/', 'test/'],
  },
  { name: '@opentelemetry/sdk-trace-node', within: ['shared/observability/trace-export.ts', 'test/'] },
  { name: '@opentelemetry/exporter-trace-otlp-proto', within: ['shared/observability/trace-export.ts'] },
  { name: '@opentelemetry/resources', within: ['shared/observability/trace-export.ts'] },
  { name: '@aws-sdk/client-s3', within: ['shared/files/s3-store.ts'] },
  { name: '@aws-sdk/lib-storage', within: ['shared/files/s3-store.ts'] },
  { name: 'nodemailer', within: ['services/worker/builtin/alert-mail.ts'] },
  { name: 'standardwebhooks', within: ['services/worker/builtin/webhook-answer.ts', 'test/'] },
];

/** The command line talks to services over HTTP; these look at what the services stand on. */
const CLI_BELOW_HTTP: Readonly<Record<string, string>> = {
  'cli/dev-fleet.ts': 'runs every service in one process',
  'cli/installation.ts': 'migrate and types: opens the database, loads task modules',
  'cli/installation.sql.ts': 'the statements of doctor',
  'cli/topology.ts': 'topology: declares on the broker',
  'cli/types.ts': 'types: announces in the database',
  'cli/migrate.ts': 'migrate: applies migrations',
  'cli/doctor.ts': 'doctor: looks at everything',
  'cli/examine.ts': 'doctor',
  'cli/examine-broker.ts': 'doctor',
  'cli/examine-database.ts': 'doctor',
  'cli/examine-management.ts': 'doctor',
  'cli/examine-server.ts': 'doctor',
  'cli/examine-server.sql.ts': 'doctor',
  'cli/examine-services.ts': 'doctor',
  'cli/drift.ts': 'topology and doctor: shows differences',
};

const product = listSources('shared', 'services', 'cli').flatMap((file) => importsOf(file));
const client = listSources('client/src').flatMap((file) => importsOf(file));
const all = [
  ...product,
  ...client,
  ...listSources('examples', 'deploy', 'scripts', 'test').flatMap((file) => importsOf(file)),
];
const shown = ({ file, target }: Import): string => `${file} imports ${target}`;
const within = (path: string, places: readonly string[]): boolean =>
  places.some((place) => (place.endsWith('/') ? path.startsWith(place) : path === place));

test('every form of an import is seen, and no comment is taken for one', () => {
  const planted = [
    "import { a } from '../b/c.ts';",
    "import {\n  f,\n  g,\n} from 'pg';",
    "import type { H } from './h.ts';",
    "import './side-effect.ts';",
    "export { k } from '../../k.ts';",
    "const later = await import('./later.ts');",
    "// import { no } from './no.ts';",
    "/* import { no } from './no.ts'; */",
  ].join('\n');
  const seen = importsIn('services/worker/x.ts', planted);
  expect(seen.map(({ target, isTypeOnly, isDynamic }) => [target, isTypeOnly, isDynamic])).toEqual([
    ['services/b/c.ts', false, false],
    ['pg', false, false],
    ['services/worker/h.ts', true, false],
    ['services/worker/side-effect.ts', false, false],
    ['k.ts', false, false],
    ['services/worker/later.ts', false, true],
  ]);
});

test('services import shared and their own files, never another service', () => {
  const faults = product.filter(({ file, target }) => {
    if (!file.startsWith('services/')) return false;
    if (target.startsWith('services/')) return target.split('/')[1] !== file.split('/')[1];
    return /^(cli|client|scripts|examples|deploy|test)\//.test(target);
  });
  expect(faults.map(shown)).toEqual([]);
});

test('shared imports nothing that is built on it', () => {
  const faults = product.filter(
    ({ file, target }) =>
      file.startsWith('shared/') && /^(services|cli|client|scripts|examples|deploy|test)\//.test(target),
  );
  expect(faults.map(shown)).toEqual([]);
});

test('the published client stands on its own files, on node, and where they are installed on amqplib and the API of OpenTelemetry', () => {
  const faults = client.filter(
    ({ target }) =>
      !target.startsWith('client/src/') &&
      !target.startsWith('node:') &&
      !['amqplib', '@opentelemetry/api'].includes(target),
  );
  expect(faults.map(shown)).toEqual([]);
  const loaded = client.filter(
    ({ target, isTypeOnly, isDynamic }) => target === 'amqplib' && !isTypeOnly && !isDynamic,
  );
  expect(loaded.map(shown)).toEqual([]); // who speaks HTTP alone need not install it
});

test('subjects of shared depend downwards only', () => {
  const faults = product.filter(({ file, target }) => {
    if (!file.startsWith('shared/') || !target.startsWith('shared/')) return false;
    const own = file.split('/')[1] ?? '';
    const other = target.split('/')[1] ?? '';
    const allowed = [own, ...BELOW_ALL, ...(SUBJECTS[own] ?? []), ...(REACHES_HIGHER[file]?.to ?? [])];
    return !allowed.includes(other);
  });
  expect(faults.map(shown)).toEqual([]);
});

test('every subject of shared is in the table, and every exception is needed', () => {
  const subjects = new Set(listSources('shared').map((file) => file.split('/')[1]));
  expect(subjects).toEqual(new Set(Object.keys(SUBJECTS)));
  for (const [file, { to }] of Object.entries(REACHES_HIGHER)) {
    const reached = new Set(importsOf(file).map(({ target }) => target.split('/')[1]));
    expect({ file, unused: to.filter((subject) => !reached.has(subject)) }).toEqual({ file, unused: [] });
  }
});

test.each(PACKAGES)('$name is known to one place', ({ name, within: places }) => {
  const users = all.filter(({ target }) => target === name || target.startsWith(`${name}/`));
  expect(users.filter(({ file }) => !within(file, places)).map(shown)).toEqual([]);
  expect(users.length).toBeGreaterThan(0);
});

test('postgres and amqp know nothing of each other; only tasks and services bring them together', () => {
  const faults = product.filter(
    ({ file, target }) =>
      (file.startsWith('shared/postgres/') && target.startsWith('shared/amqp/')) ||
      (file.startsWith('shared/amqp/') && target.startsWith('shared/postgres/')),
  );
  expect(faults.map(shown)).toEqual([]);
});

test('http needs the schemas of tasks, never statements', () => {
  const faults = product.filter(
    ({ file, target }) =>
      file.startsWith('shared/http/') && (target.endsWith('.sql.ts') || target.startsWith('shared/postgres/')),
  );
  expect(faults.map(shown)).toEqual([]);
});

test('the command line speaks HTTP, but for migrate, topology, types, doctor and dev', () => {
  const below = product.filter(
    ({ file, target, isTypeOnly }) =>
      file.startsWith('cli/') &&
      !isTypeOnly &&
      /^(services|shared\/postgres|shared\/amqp)\//.test(target) &&
      target !== 'shared/amqp/message.ts', // the limits and the forms of instants: no connection
  );
  expect(below.filter(({ file }) => CLI_BELOW_HTTP[file] === undefined).map(shown)).toEqual([]);
  expect(
    below.filter(({ file, target }) => target.startsWith('services/') && !within(file, SERVICE_USERS)).map(shown),
  ).toEqual([]);
});

/** `dev` runs services; `types apply` loads task modules exactly as a worker does. */
const SERVICE_USERS = ['cli/dev-fleet.ts', 'cli/installation.ts'];

test('a statement is imported only by what lies beside it', () => {
  const faults = product.filter(({ file, target }) => {
    if (!target.endsWith('.sql.ts') || SHARED_STATEMENTS.includes(target)) return false;
    return target.slice(0, target.lastIndexOf('/')) !== file.slice(0, file.lastIndexOf('/'));
  });
  expect(faults.map(shown)).toEqual([]);
});

/** The outbox is swept by one service and measured by doctor; what is written beside a task is a part of many statements. */
const SHARED_STATEMENTS = ['shared/tasks/outbox.sql.ts', 'shared/tasks/beside.sql.ts'];

test('no file is named after nothing', () => {
  const vague = listFiles('.').filter((path) =>
    /(^|\/)(index|utils?|helpers?|common|misc|types)(\.[a-z.]+)?\.(ts|mjs|js)$/.test(path),
  );
  // `warren types`: a command group, named after what it is about.
  expect(vague.filter((path) => path !== 'cli/types.ts')).toEqual([]);
});

test('there are no cycles between the files of the product', () => {
  const edges = new Map<string, string[]>();
  for (const { file, target, isTypeOnly, isDynamic } of [...product, ...client]) {
    if (!isTypeOnly && !isDynamic && target.endsWith('.ts')) edges.set(file, [...(edges.get(file) ?? []), target]);
  }
  const done = new Set<string>();
  const cycles: string[] = [];
  const walk = (file: string, above: readonly string[]): void => {
    if (above.includes(file)) cycles.push([...above.slice(above.indexOf(file)), file].join(' → '));
    if (done.has(file) || above.includes(file)) return;
    for (const next of edges.get(file) ?? []) walk(next, [...above, file]);
    done.add(file);
  };
  for (const file of edges.keys()) walk(file, []);
  expect(cycles).toEqual([]);
});
