/** Server programs that are on the machine. None of them is on PATH where Debian puts them. */
import { access, constants, readdir, realpath } from 'node:fs/promises';
import { dirname, join } from 'node:path';

/** Programs of RabbitMQ. */
export interface BrokerBinaries {
  /** `rabbitmq-server`, the script itself and not a wrapper that wants root. */
  readonly server: string;
  /** The folder that holds `erl`. */
  readonly erlang: string;
  readonly epmd: string;
  readonly hasManagement: boolean;
  /** Folders of shared libraries that the machine's loader does not know. */
  readonly libraries: readonly string[];
}

/** Programs of Postgres. */
export interface DatabaseBinaries {
  /** The folder that holds `initdb` and `postgres`. */
  readonly bin: string;
  /** `15`, `17`: data of one major version cannot be read by another. */
  readonly major: string;
  readonly libraries: readonly string[];
}

const HOMEBREW = ['/opt/homebrew/opt', '/usr/local/opt'];

/** RabbitMQ and Erlang under `root` (`/` for the machine's own), or from Homebrew. */
export async function findBrokerBinaries(root: string): Promise<BrokerBinaries | undefined> {
  const libraries = root === '/' ? [] : await libraryFolders(root);
  const servers = [
    ...(await children(join(root, 'usr/lib/rabbitmq/lib'), /^rabbitmq_server-/)).map((each) => join(each, 'sbin')),
    ...(root === '/' ? HOMEBREW.map((opt) => join(opt, 'rabbitmq/sbin')) : []),
  ];
  const erlangs = [
    join(root, 'usr/lib/erlang/bin'),
    ...(root === '/'
      ? [...HOMEBREW.map((opt) => join(opt, 'erlang/lib/erlang/bin')), '/usr/bin', '/usr/local/bin']
      : []),
  ];
  const server = await firstExecutable(servers.map((folder) => join(folder, 'rabbitmq-server')));
  const erl = await firstExecutable(erlangs.map((folder) => join(folder, 'erl')));
  if (server === undefined || erl === undefined) return undefined;
  const erlang = dirname(erl);
  const runtimes = await children(dirname(erlang), /^erts-/);
  const epmd = await firstExecutable([join(erlang, 'epmd'), ...runtimes.map((folder) => join(folder, 'bin/epmd'))]);
  if (epmd === undefined) return undefined;
  const plugins = join(dirname(dirname(await realpath(server))), 'plugins');
  const hasManagement = (await children(plugins, /^rabbitmq_management-\d/)).length > 0;
  return { server, erlang, epmd, hasManagement, libraries };
}

/** The newest Postgres under `root` (`/` for the machine's own), or from Homebrew. */
export async function findDatabaseBinaries(root: string): Promise<DatabaseBinaries | undefined> {
  const folders = await children(join(root, 'usr/lib/postgresql'), /^\d+$/);
  if (root === '/') for (const opt of HOMEBREW) folders.push(...(await children(opt, /^postgresql@\d+$/)));
  for (const folder of folders.toSorted((a, b) => majorOf(b) - majorOf(a))) {
    const bin = join(folder, 'bin');
    const isWhole = (await firstExecutable([join(bin, 'initdb')])) && (await firstExecutable([join(bin, 'postgres')]));
    if (isWhole === undefined) continue;
    return { bin, major: String(majorOf(folder)), libraries: root === '/' ? [] : await libraryFolders(root) };
  }
  return undefined;
}

/** Folders of a root directory where Debian puts shared libraries. */
async function libraryFolders(root: string): Promise<string[]> {
  return [
    ...(await children(join(root, 'usr/lib'), /-linux-gnu/)),
    ...(await children(join(root, 'lib'), /-linux-gnu/)),
  ];
}

function majorOf(folder: string): number {
  return Number(/(\d+)$/.exec(folder)?.[1] ?? 0);
}

async function children(folder: string, name: RegExp): Promise<string[]> {
  const names = await readdir(folder).catch((): string[] => []);
  return names.filter((each) => name.test(each)).map((each) => join(folder, each));
}

async function firstExecutable(files: readonly string[]): Promise<string | undefined> {
  for (const file of files) {
    const isThere = await access(file, constants.X_OK).then(
      () => true,
      () => false,
    );
    if (isThere) return file;
  }
  return undefined;
}
