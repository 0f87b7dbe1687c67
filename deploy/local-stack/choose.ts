/** Which broker and which database an instance runs on, each resolved on its own, in one order. */
import { join } from 'node:path';
import { toError } from '../../shared/errors/to-error.ts';
import { findBrokerBinaries, findDatabaseBinaries } from './binaries.ts';
import { fetchPackages } from './debian-packages.ts';
import { DockerServer, hasDocker } from './docker.ts';
import type { DockerServerOptions } from './docker.ts';
import { StackFailure } from './failure.ts';
import { mkdirFor } from './home.ts';
import type { Home } from './home.ts';
import { missingMessage } from './missing.ts';
import type { ServerKind } from './missing.ts';
import { PrivateDatabase } from './postgres.ts';
import { PrivateBroker } from './rabbitmq.ts';
import type { PrivateServerOptions } from './server.ts';

/** One instance of one clone. */
export interface Site {
  /** The clone. */
  readonly root: string;
  readonly home: Home;
  /** The instance. */
  readonly name: string;
  /** Folder of the instance. */
  readonly dir: string;
  readonly tell: (line: string) => void;
  readonly brokerLines?: readonly string[];
}

/** A private broker from the first place that has one. Throws a StackFailure that names every way. */
export async function chooseBroker(site: Site): Promise<PrivateBroker | DockerServer> {
  const options = await optionsOf(site, 'rabbitmq');
  return await chooseFirst(site, 'broker', {
    installed: async () => build(await findBrokerBinaries('/'), (found) => new PrivateBroker(found, options)),
    fetched: async (packages) => {
      const wanted = {
        package: 'rabbitmq-server',
        what: 'RabbitMQ with Erlang (34 MB, and 10 MB of lists; half a minute)',
      } as const;
      const root = await fetchPackages(packages, wanted, site.tell);
      return build(await findBrokerBinaries(root), (found) => new PrivateBroker(found, options));
    },
  });
}

/** A private database from the first place that has one. Throws a StackFailure that names every way. */
export async function chooseDatabase(site: Site): Promise<PrivateDatabase | DockerServer> {
  const options = await optionsOf(site, 'postgres');
  return await chooseFirst(site, 'database', {
    installed: async () => build(await findDatabaseBinaries('/'), (found) => new PrivateDatabase(found, options)),
    fetched: async (packages) => {
      const wanted = { package: 'postgresql', what: 'Postgres (19 MB, and 10 MB of lists; half a minute)' } as const;
      const root = await fetchPackages(packages, wanted, site.tell);
      return build(await findDatabaseBinaries(root), (found) => new PrivateDatabase(found, options));
    },
  });
}

/** The containers of an instance, which may or may not exist. */
export function dockerServers(site: Site): DockerServer[] {
  return (['rabbitmq', 'postgres'] as const).map((service) => new DockerServer(dockerOptions(site, service)));
}

interface Ways<Server> {
  installed(): Promise<Server | undefined>;
  fetched(packages: string): Promise<Server | undefined>;
}

async function chooseFirst<Server>(site: Site, kind: ServerKind, ways: Ways<Server>): Promise<Server | DockerServer> {
  const reasons: string[] = [];
  // For trials of the ways that come after.
  const ignored = (process.env['WARREN_STACK_IGNORE'] ?? '').split(',');
  if (!ignored.includes('installed')) {
    const server = await ways.installed();
    if (server !== undefined) return server;
    reasons.push('not installed on this machine');
  }
  if (!ignored.includes('packages')) {
    try {
      const server = await ways.fetched(join(site.home.servers, 'packages'));
      if (server !== undefined) return server;
      reasons.push('the downloaded packages do not hold the programs');
    } catch (thrown) {
      reasons.push(toError(thrown).message);
    }
  }
  if (!ignored.includes('docker') && (await hasDocker())) {
    const options = dockerOptions(site, kind === 'broker' ? 'rabbitmq' : 'postgres');
    await mkdirFor(options.dir, undefined);
    return new DockerServer(options);
  }
  reasons.push('no Docker engine answers');
  throw new StackFailure(missingMessage(kind, reasons, process.platform));
}

function build<Binaries, Server>(found: Binaries | undefined, make: (found: Binaries) => Server): Server | undefined {
  return found === undefined ? undefined : make(found);
}

async function optionsOf(site: Site, folder: string): Promise<PrivateServerOptions> {
  const { user } = site.home;
  const dir = join(site.dir, folder);
  await mkdirFor(dir, user);
  return { dir, name: site.name, user, tell: site.tell, brokerLines: site.brokerLines ?? [] };
}

function dockerOptions(site: Site, service: 'rabbitmq' | 'postgres'): DockerServerOptions {
  return {
    dir: join(site.dir, `docker-${service}`),
    name: site.name,
    user: undefined,
    tell: site.tell,
    root: site.root,
    project: `warren-${site.name}-${site.home.hash}`,
    service,
  };
}
