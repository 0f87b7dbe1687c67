/**
 * Debian's and Ubuntu's packages without installing them and without root: apt-get downloads them, with lists and a cache
 * of its own and its signatures checked, and dpkg-deb unpacks them into a folder. Nothing of the machine is changed.
 */
import { execFile } from 'node:child_process';
import { access, mkdir, readFile, readdir, rename, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { codeOf, toError } from '../../shared/errors/to-error.ts';
import { StackFailure } from './failure.ts';

const run = promisify(execFile);
const MAX_OUTPUT_BYTES = 64 * 1024 * 1024;
/** Milliseconds for one run of apt-get: a slow line takes minutes, a dead one must not hang for ever. */
const APT_WITHIN_MS = 15 * 60_000;

/** What to fetch. */
export interface Wanted {
  readonly package: 'rabbitmq-server' | 'postgresql';
  /** For people: what it is and how much it loads. */
  readonly what: string;
}

/** Fetches and unpacks `wanted` under `folder`, once. Returns the root directory. Throws a StackFailure with apt's words. */
export async function fetchPackages(folder: string, wanted: Wanted, tell: (line: string) => void): Promise<string> {
  const root = join(folder, wanted.package);
  if ((await readdir(root).catch(() => [])).length > 0) return root;
  tell(`downloading ${wanted.what} from the package archive, without installing it`);
  const apt = await openApt(folder);
  const simulated = await apt(['-s', '--no-install-recommends', 'install', wanted.package]);
  const status = await readFile('/var/lib/dpkg/status', 'utf8').catch(() => '');
  const names = choosePackages(parseSimulation(simulated), parseInstalled(status));
  const work = `${root}.new`; // renamed at the end: a kill leaves nothing that looks whole
  await rm(work, { recursive: true, force: true });
  await mkdir(join(work, 'debs'), { recursive: true });
  await apt(['download', ...names], join(work, 'debs'));
  await unpack(work);
  await rewriteErlangRoot(work, root);
  await rename(work, root);
  return root;
}

/** A package of another release of Debian than the machine's. It must stand alone: what it depends on is not fetched. */
export interface WantedFromSuite {
  readonly package: string;
  /** Code name of the release. */
  readonly suite: string;
  /** For people: how much it loads, with the lists of the release. */
  readonly megabytes: number;
}

const KEYRING = '/usr/share/keyrings/debian-archive-keyring.gpg';

/** Fetches and unpacks one package of Debian, once, its signature checked. Returns the root directory. Throws a StackFailure. */
export async function fetchFromSuite(
  folder: string,
  wanted: WantedFromSuite,
  tell: (line: string) => void,
): Promise<string> {
  const root = join(folder, wanted.package);
  if ((await readdir(root).catch(() => [])).length > 0) return root;
  tell(`downloading ${wanted.package} from Debian ${wanted.suite} (${wanted.megabytes} MB), without installing it`);
  const archive = process.env['WARREN_DEBIAN_MIRROR'] ?? (await findArchive());
  await access(KEYRING).catch(() => {
    throw new StackFailure(
      `${wanted.package} needs the keys of Debian: install debian-archive-keyring, or ${wanted.package}`,
    );
  });
  const state = join(folder, 'apt', wanted.suite);
  await mkdir(state, { recursive: true });
  await writeFile(join(state, 'sources.list'), `deb [signed-by=${KEYRING}] ${archive} ${wanted.suite} main\n`);
  const apt = await openApt(state, [`Dir::Etc::SourceList=${state}/sources.list`, 'Dir::Etc::SourceParts=-']);
  const work = `${root}.new`;
  await rm(work, { recursive: true, force: true });
  await mkdir(join(work, 'debs'), { recursive: true });
  await apt(['download', wanted.package], join(work, 'debs'));
  await unpack(work);
  await rename(work, root);
  return root;
}

/** Where this machine has Debian's packages from. */
async function findArchive(): Promise<string> {
  const indexes = await run('apt-get', ['indextargets', '--format', '$(REPO_URI)']).catch(() => ({ stdout: '' }));
  const debian = indexes.stdout.split('\n').find((line) => /\/debian\/?$/.test(line));
  if (debian === undefined) throw new StackFailure('no Debian archive is known here: name one in WARREN_DEBIAN_MIRROR');
  return debian;
}

/** Unpacks what was downloaded into `work`, and removes the packages themselves. */
async function unpack(work: string): Promise<void> {
  for (const deb of await readdir(join(work, 'debs'))) {
    await run('dpkg-deb', ['-x', join(work, 'debs', deb), work], { maxBuffer: MAX_OUTPUT_BYTES });
  }
  await rm(join(work, 'debs'), { recursive: true });
}

/** The packages in the order of `apt-get -s install` ("Inst name (version …)"). */
export function parseSimulation(text: string): string[] {
  return [...text.matchAll(/^Inst (\S+)/gm)].map((match) => match[1] ?? '');
}

/** Names of the installed packages in the text of dpkg's status file. */
export function parseInstalled(status: string): Set<string> {
  const installed = status.split('\n\n').filter((entry) => /^Status: \S+ \S+ installed$/m.test(entry));
  return new Set(installed.map((entry) => /^Package: (\S+)$/m.exec(entry)?.[1] ?? ''));
}

/**
 * Of everything that an empty machine would install: the servers themselves always, and those shared libraries that this
 * machine lacks. Not LLVM (40 MB for Postgres's jit, which stays off), nor perl's libraries.
 */
export function choosePackages(all: readonly string[], installed: ReadonlySet<string>): string[] {
  return all.filter((name) => {
    if (/^(rabbitmq-server|erlang-.+|postgresql-\d+|postgresql-client-\d+)$/.test(name)) return true;
    return name.startsWith('lib') && !/^libllvm|-perl$|^libperl|^libpython/.test(name) && !installed.has(name);
  });
}

type Apt = (args: readonly string[], cwd?: string) => Promise<string>;

async function openApt(folder: string, more: readonly string[] = []): Promise<Apt> {
  const state = join(folder, 'apt');
  await mkdir(join(state, 'lists/partial'), { recursive: true });
  await mkdir(join(state, 'cache/archives/partial'), { recursive: true });
  await writeFile(join(state, 'status'), ''); // as if nothing were installed: a broken machine cannot spoil the answer
  const options = [
    `Dir::State::Lists=${state}/lists`,
    `Dir::Cache=${state}/cache`,
    `Dir::State::Status=${state}/status`,
    'Debug::NoLocking=1',
    `APT::Sandbox::User=${process.getuid?.() === 0 ? 'root' : ''}`,
    'Acquire::Retries=2',
    ...more,
  ].flatMap((option) => ['-o', option]);
  const apt: Apt = async (args, cwd) => {
    try {
      const { stdout } = await run('apt-get', ['-q', ...options, ...args], {
        ...(cwd === undefined ? {} : { cwd }),
        env: { ...process.env, LC_ALL: 'C' },
        maxBuffer: MAX_OUTPUT_BYTES,
        timeout: APT_WITHIN_MS,
      });
      return stdout;
    } catch (thrown) {
      throw new StackFailure(
        `apt-get ${args[0] === '-s' ? 'install -s' : args[0]} failed: ${wordsOf(thrown)}`,
        undefined,
        thrown,
      );
    }
  };
  // A source of somebody else's that does not answer is only a warning: what matters is whether ours can be had after it.
  await apt(['update']).catch(() => undefined);
  return apt;
}

/** apt's own errors, one line. */
function wordsOf(thrown: unknown): string {
  if (codeOf(thrown) === 'ENOENT') return 'there is no apt-get here';
  const stderr = typeof thrown === 'object' && thrown !== null && 'stderr' in thrown ? String(thrown.stderr) : '';
  const errors = stderr.split('\n').filter((line) => line.startsWith('E: '));
  return errors.length === 0 ? (toError(thrown).message.split('\n')[0] ?? '') : errors.slice(0, 3).join('; ');
}

/** Erlang's start script holds the folder that it was built for. */
async function rewriteErlangRoot(work: string, root: string): Promise<void> {
  const script = join(work, 'usr/lib/erlang/bin/erl');
  const text = await readFile(script, 'utf8').catch(() => undefined);
  if (text === undefined) return;
  await writeFile(
    script,
    text.replaceAll(/\bROOTDIR=("?)\/usr\/lib\/erlang\1/g, `ROOTDIR="${join(root, 'usr/lib/erlang')}"`),
  );
}
