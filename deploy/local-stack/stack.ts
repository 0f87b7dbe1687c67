/**
 * The local stack: a broker and a database for this clone, each from the first place that has one: an URL that the user
 * named, programs on the machine, Debian's packages unpacked, a Docker engine. What the user did not name is never touched.
 */
import { existsSync } from 'node:fs';
import { chmod, mkdir, rm } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { chooseBroker, chooseDatabase, dockerServers } from './choose.ts';
import type { Site } from './choose.ts';
import { StackFailure } from './failure.ts';
import { greetBroker } from './greeting.ts';
import { openHome } from './home.ts';
import { takeLock } from './lock.ts';
import type { Lock } from './lock.ts';
import { databaseVersion, ensureDatabase, greetNamedBroker, notOurs } from './named.ts';
import { databaseUrlOf, stopPrivateDatabase } from './postgres.ts';
import { brokerUrlOf, stopPrivateBroker } from './rabbitmq.ts';
import type { ServerControl } from './server.ts';
import { loadState } from './state.ts';

/** Milliseconds to wait for another make of this clone: a first start with a slow download. */
const LOCK_WITHIN_MS = 10 * 60_000;

/** How to start a stack. */
export interface StackOptions {
  /** The instance: `dev`, `test`, or a test's own. 1 to 20 lower-case letters, digits, hyphens. */
  readonly name: string;
  /** The clone. Default: the one that this file belongs to. */
  readonly root?: string;
  /** True: `AMQP_URL` and `DATABASE_URL` are not looked at. For all that restarts, purges, fills or breaks. Default false. */
  readonly onlyPrivate?: boolean;
  /** One server alone; what `Stack` says of the other is then empty. Default: both. */
  readonly only?: 'broker' | 'database';
  /** Further lines of a private broker's `rabbitmq.conf`, taken at its start. A container has none of them. Default: none. */
  readonly brokerLines?: readonly string[];
  /** Takes one line per step. Default: nothing is said. */
  readonly log?: (line: string) => void;
}

/** What a program that uses the stack has to know. */
export interface StackUrls {
  /** With credentials. A secret. */
  readonly amqpUrl: string;
  /** With credentials, to a database of our own: `warren` on a private server. A secret. */
  readonly databaseUrl: string;
  /** The broker's management API with credentials (`fetch` wants them in a header); `undefined` when unknown. */
  readonly managementUrl: string | undefined;
  /** For names on the broker: `warren`, or one of this clone and instance on a broker that the user named. */
  readonly prefix: string;
  /** Such as `3.10.8`. */
  readonly brokerVersion: string;
  /** Such as `15.13`. */
  readonly databaseVersion: string;
}

/** A stack that runs. */
export interface Stack extends StackUrls {
  readonly broker: ServerControl;
  readonly database: ServerControl;
  /** False when both servers ran before. */
  readonly wasStarted: boolean;
  /** Stops what is ours of it, with the data kept. */
  stop(): Promise<void>;
}

/**
 * Starts what is missing and returns when both answer. Throws a StackFailure, and then leaves nothing running that it
 * started. Servers outlive this process until `stop`.
 */
export async function startStack(options: StackOptions): Promise<Stack> {
  const site = await openSite(options);
  await using _lock = await lockServers(site);
  const isPrivate = options.onlyPrivate === true;
  const named = (variable: string): string => (isPrivate ? '' : (process.env[variable] ?? ''));
  const broker = options.only === 'database' ? NO_BROKER : await startBroker(site, named('AMQP_URL'));
  let database = NO_DATABASE;
  try {
    if (options.only !== 'broker') database = await startDatabase(site, named('DATABASE_URL'));
  } catch (thrown) {
    if (broker.wasStarted) await broker.control.stop(); // half a stack is of no use, and nobody would stop it
    throw thrown;
  }
  return {
    ...broker.facts,
    ...database.facts,
    broker: broker.control,
    database: database.control,
    wasStarted: broker.wasStarted || database.wasStarted,
    stop: async () => {
      for (const { control } of [broker, database]) if (control.source !== 'named') await control.stop();
    },
  };
}

/** Stops the servers of an instance that are ours, whoever started them. */
export async function stopStack(options: Pick<StackOptions, 'name' | 'root' | 'log'>): Promise<void> {
  const site = await openSite(options);
  await using _lock = await lockServers(site);
  await stopServers(site);
}

/** Stops the servers of an instance that are ours, and removes their data. */
export async function resetStack(options: Pick<StackOptions, 'name' | 'root' | 'log'>): Promise<void> {
  const site = await openSite(options);
  await using _lock = await lockServers(site);
  await stopServers(site);
  for (const server of dockerServers(site)) await server.remove();
  await rm(site.dir, { recursive: true, force: true });
}

/** A lock of the clone that fails at once when another process has it: two runs of one make would trip over each other. */
export async function claimClone(root: string, what: string): Promise<Lock> {
  return await takeLock(await openHome(root), what, { waitMs: 0 });
}

/** The clone that this file, or its copy under `dist/`, belongs to. */
export function findRoot(): string {
  let folder = dirname(fileURLToPath(import.meta.url));
  while (!existsSync(join(folder, 'package-lock.json'))) {
    if (folder === dirname(folder)) throw new StackFailure('the local stack works in a clone of the repository only');
    folder = dirname(folder);
  }
  return folder;
}

interface Started<Facts> {
  readonly control: ServerControl;
  readonly wasStarted: boolean;
  readonly facts: Facts;
}
type BrokerFacts = Pick<StackUrls, 'amqpUrl' | 'managementUrl' | 'prefix' | 'brokerVersion'>;
type DatabaseFacts = Pick<StackUrls, 'databaseUrl' | 'databaseVersion'>;

const NO_BROKER: Started<BrokerFacts> = {
  control: notOurs,
  wasStarted: false,
  facts: { amqpUrl: '', managementUrl: undefined, prefix: '', brokerVersion: '' },
};
const NO_DATABASE: Started<DatabaseFacts> = {
  control: notOurs,
  wasStarted: false,
  facts: { databaseUrl: '', databaseVersion: '' },
};

async function startBroker(site: Site, named: string): Promise<Started<BrokerFacts>> {
  // What we start has our own broker's URL in its environment.
  if (named !== '' && !(await isOwn(named, join(site.dir, 'rabbitmq'), brokerUrlOf))) {
    const { version } = await greetNamedBroker(named.split(',')[0]?.trim() ?? ''); // several are one cluster
    const prefix = `warren-${site.name}-${site.home.hash}`;
    site.tell(`using the broker of AMQP_URL (RabbitMQ ${version}); names there start with ${prefix}`);
    const facts = { amqpUrl: named, managementUrl: undefined, prefix, brokerVersion: version };
    return { control: notOurs, wasStarted: false, facts };
  }
  const server = await chooseBroker(site);
  const wasStarted = await server.start();
  const greeting = await greetBroker(server.url, 5_000);
  const brokerVersion = greeting?.version ?? 'unknown';
  site.tell(`RabbitMQ ${brokerVersion} answers at ${hostOf(server.url)}`);
  const facts = { amqpUrl: server.url, managementUrl: server.managementUrl, prefix: 'warren', brokerVersion };
  return { control: server, wasStarted, facts };
}

async function startDatabase(site: Site, named: string): Promise<Started<DatabaseFacts>> {
  if (named !== '' && !(await isOwn(named, join(site.dir, 'postgres'), databaseUrlOf))) {
    const name = `warren_${site.name}_${site.home.hash}`.replaceAll('-', '_');
    const databaseUrl = await ensureDatabase(named, name);
    const version = await databaseVersion(databaseUrl);
    site.tell(`using the database ${name} on the server of DATABASE_URL (Postgres ${version})`);
    return { control: notOurs, wasStarted: false, facts: { databaseUrl, databaseVersion: version } };
  }
  const server = await chooseDatabase(site);
  const wasStarted = await server.start();
  const databaseUrl = await ensureDatabase(server.url, 'warren');
  const version = await databaseVersion(databaseUrl);
  site.tell(`Postgres ${version} answers at ${hostOf(server.url)}`);
  return { control: server, wasStarted, facts: { databaseUrl, databaseVersion: version } };
}

async function isOwn(url: string, dir: string, urlOf: (state: NonNullable<Kept>) => string): Promise<boolean> {
  if (!URL.canParse(url)) return false;
  for (const folder of [dir, join(dirname(dir), `docker-${dir.slice(dirname(dir).length + 1)}`)]) {
    const state = await loadState(folder);
    if (state !== undefined && sameServer(url, urlOf(state))) return true;
  }
  return false;
}
type Kept = Awaited<ReturnType<typeof loadState>>;

function sameServer(one: string, other: string): boolean {
  const [a, b] = [new URL(one), new URL(other)];
  return a.host === b.host && a.username === b.username && a.password === b.password;
}

async function stopServers(site: Site): Promise<void> {
  await stopPrivateBroker(join(site.dir, 'rabbitmq'));
  await stopPrivateDatabase(join(site.dir, 'postgres'));
  for (const server of dockerServers(site)) await server.stop();
}

type SiteOptions = Pick<StackOptions, 'name' | 'root' | 'log' | 'brokerLines'>;

async function openSite({ name, root = findRoot(), log, brokerLines = [] }: SiteOptions): Promise<Site> {
  if (!/^[a-z][a-z0-9-]{0,19}$/.test(name))
    throw new StackFailure(`${name} is not a name for an instance: a-z, 0-9, -`);
  const home = await openHome(root);
  const dir = join(home.servers, 'stacks', name);
  await mkdir(dir, { recursive: true });
  // As root, the servers' user passes through; each folder of a server is its own.
  if (home.user !== undefined) for (const each of [dirname(dir), dir]) await chmod(each, 0o711);
  return { root, home, name, dir, tell: log ?? (() => undefined), brokerLines };
}

async function lockServers(site: Site): Promise<Lock> {
  const onWait = (pid: number): void =>
    site.tell(`another process (pid ${pid}) starts or stops servers of this clone; waiting`);
  return await takeLock(site.home, 'stack', { waitMs: LOCK_WITHIN_MS, onWait });
}

function hostOf(url: string): string {
  return new URL(url).host;
}
