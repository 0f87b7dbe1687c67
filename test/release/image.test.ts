/**
 * What the image holds, made by the very steps of its file in folders that were empty, and started by its own ENTRYPOINT. No Docker
 * engine is asked: the base image is the machine and the node that run the test, and layers are folders.
 */
import { execFile, spawn } from 'node:child_process';
import type { ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { chmod, cp, mkdir, mkdtemp, readFile, readdir, rm } from 'node:fs/promises';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { promisify } from 'node:util';
import { afterAll, afterEach, beforeAll, expect, test } from '@jest/globals';
import { AMQP_URL, removeTopology } from '../support/broker.ts';
import { openEmptyDatabase } from '../support/database.ts';
import type { TestDatabase } from '../support/database.ts';
import { readDockerfile, readDockerignore, stepsOf } from '../support/dockerfile.ts';
import { eventually } from '../support/eventually.ts';
import { freePort } from '../support/free-port.ts';
import { ROOT, listFiles } from '../support/source-files.ts';
import { testWithNamespaces } from '../support/tools.ts';

const run = promisify(execFile);
const MAKE_MS = 900_000;
const PREFIX = `image-${process.pid}`;
const TOKEN = 'a-token-of-the-test-alone';

let dir: string;
let app: string;
let db: TestDatabase;
let env: Readonly<Record<string, string>>;

beforeAll(async () => {
  dir = await mkdtemp(join(tmpdir(), 'warren-image-'));
  await chmod(dir, 0o755);
  const [context, build] = [join(dir, 'context'), join(dir, 'build')];
  app = join(dir, 'app');
  for (const folder of [build, app]) await mkdir(folder);
  const rules = readDockerignore();
  for (const path of listFiles('.').filter((each) => !rules.ignores(each))) {
    await cp(join(ROOT, path), join(context, path));
  }
  for (const { keyword, words, exec = [] } of readDockerfile()[0]?.steps ?? []) {
    if (keyword === 'COPY') await copy(context, build, words);
    if (keyword === 'RUN') await run(exec[0] ?? '', exec.slice(1), { cwd: build, maxBuffer: 64 * 1024 * 1024 });
  }
  for (const { words } of stepsOf('runtime', 'COPY')) {
    await copy(
      build,
      app,
      words.map((word) => word.replace(/^\/build\//, '')),
    );
  }
  db = await openEmptyDatabase();
  env = {
    ...Object.fromEntries(stepsOf('runtime', 'ENV').flatMap(({ properties }) => Object.entries(properties))),
    PATH: `${dirname(process.execPath)}:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin`,
    AMQP_URL,
    DATABASE_URL: db.url,
    WARREN_PREFIX: PREFIX,
    WARREN_TOKENS: JSON.stringify([{ name: 'tester', role: 'admin', token: TOKEN }]),
    WARREN_TOKEN: TOKEN,
  };
}, MAKE_MS);
afterAll(async () => {
  await db[Symbol.asyncDispose]();
  await removeTopology(PREFIX, ['default']);
  await rm(dir, { recursive: true, force: true });
}, MAKE_MS);

/** COPY: what is a folder gives what is in it; a destination with a slash at its end takes each under its name. */
async function copy(from: string, into: string, words: readonly string[]): Promise<void> {
  const destination = words.at(-1) ?? '';
  for (const source of words.slice(0, -1)) {
    const target = destination.endsWith('/')
      ? join(into, destination, source.split('/').at(-1) ?? '')
      : join(into, destination);
    await cp(join(from, source), target, { recursive: true, verbatimSymlinks: true });
  }
}

/** What is started in a container: ENTRYPOINT and these words, or CMD. */
function commandOf(...given: readonly string[]): readonly string[] {
  const [entry, standard] = [stepsOf('runtime', 'ENTRYPOINT')[0]?.exec, stepsOf('runtime', 'CMD')[0]?.exec];
  return [...(entry ?? []), ...(given.length > 0 ? given : (standard ?? []))];
}

const children = new Set<ChildProcess>();
afterEach(() => {
  for (const child of children) child.kill('SIGKILL'); // what a test that failed has left
});

interface Container {
  readonly child: ChildProcess;
  readonly out: () => string;
  readonly exitCode: Promise<number | null>;
}

function start(command: readonly string[], more: Readonly<Record<string, string>> = {}): Container {
  const [file = '', ...args] = command;
  const child = spawn(file, args, { cwd: app, env: { ...env, ...more } });
  children.add(child);
  let out = '';
  for (const stream of [child.stdout, child.stderr]) stream.on('data', (chunk: Buffer) => (out += chunk.toString()));
  return {
    child,
    out: () => out,
    exitCode: once(child, 'close').then(([code]) => (children.delete(child), code as number | null)),
  };
}

async function runRole(...words: readonly string[]): Promise<{ readonly code: number | null; readonly out: string }> {
  const { exitCode, out } = start(commandOf(...words));
  return { code: await exitCode, out: out() };
}

async function freePorts(): Promise<Readonly<Record<string, string>>> {
  const ports: Record<string, string> = {};
  for (const name of ['PRODUCER', 'DEAD_LETTER_HANDLER', 'WORKER']) {
    ports[`WARREN_HTTP_${name}_PORT`] = String(await freePort());
  }
  return ports;
}

/**
 * The same as a container has it: process 1 of its own namespace, as the user of the image, on a file system that is read-only but for
 * /tmp. The app lies under /srv there.
 */
function startContained(words: readonly string[], more: Readonly<Record<string, string>>): Container {
  const user = stepsOf('runtime', 'USER')[0]?.words[0]?.split(':') ?? [];
  const enter = `mount --bind ${app} /srv && mount -t tmpfs tmpfs /tmp && mount -o remount,bind,ro /srv && mount -o remount,bind,ro / &&
    cd /srv && exec setpriv --reuid=${user[0]} --regid=${user[1]} --clear-groups --no-new-privs "$@"`;
  const inside = ['sh', '-c', enter, 'sh', ...commandOf(...words)];
  return start(['unshare', '--pid', '--fork', '--mount-proc', '--kill-child', ...inside], more);
}

/** The process 1 inside, by its number outside. */
async function firstProcess({ child }: Container): Promise<number> {
  const children = await readFile(`/proc/${child.pid}/task/${child.pid}/children`, 'utf8');
  return Number(children.trim());
}

test('the image holds what runs and nothing that builds or tests', async () => {
  const packages = await readdir(join(app, 'node_modules'));
  for (const kept of ['pg', 'amqplib', 'piscina', '@aws-sdk']) expect(packages).toContain(kept);
  for (const left of ['typescript', 'jest', 'esbuild', 'oxlint', 'sharp']) expect(packages).not.toContain(left);
  expect((await readdir(join(app, 'dist'))).toSorted()).toEqual(['cli', 'deploy', 'examples', 'services', 'shared']);
  expect(await readdir(join(app, 'dist/deploy'))).toEqual(['image']);
});

test('without a role the roles are listed; a wrong one is exit 64, and says which there are', async () => {
  expect(await runRole()).toEqual({ code: 0, out: expect.stringContaining('dead-letter-handler') });
  expect(await runRole('consumer')).toEqual({
    code: 64,
    out: expect.stringMatching(/"consumer" is no role[\s\S]*worker/),
  });
});

test('migrations and topology are roles that end by themselves, and a second time has nothing to do', async () => {
  expect(await runRole('migrate')).toEqual({ code: 0, out: expect.stringContaining('applied 0001_tasks') });
  expect(await runRole('migrate')).toEqual({ code: 0, out: expect.stringContaining('Nothing to do') });
  expect(await runRole('topology')).toEqual({ code: 0, out: expect.stringContaining(`created`) });
  expect(await runRole('topology', '--queues', 'high')).toEqual({ code: 0, out: expect.stringContaining('high') });
  const { version } = JSON.parse(await readFile(join(ROOT, 'package.json'), 'utf8')) as { readonly version: string };
  expect(await runRole('warren', '--version')).toEqual({ code: 0, out: `${version}\n` });
});

test('an API does not start without tokens, for the image listens beyond loopback', async () => {
  const { exitCode, out } = start(commandOf('producer'), { WARREN_TOKENS: '' });
  expect(await exitCode).toBe(78);
  expect(out()).toContain('http.tokens must hold a token');
});

test.each(['producer', 'worker', 'dead-letter-handler'])(
  'the start command of a %s becomes healthy, and ends with 0 at SIGTERM',
  async (role) => {
    const container = start(commandOf(role), await freePorts());
    const health = [...(stepsOf('runtime', 'HEALTHCHECK')[0]?.exec ?? [])];
    const ports = await freePorts();
    const unhealthy = start([...health, 'readyz', String(container.child.pid)], ports);
    expect(await unhealthy.exitCode).toBe(1);
    expect(unhealthy.out()).toContain('does not answer');
    container.child.kill('SIGTERM');
    await container.exitCode;

    const again = start(commandOf(role), ports);
    await eventually(async () => {
      const check = start([...health, 'readyz', String(again.child.pid)], ports);
      expect([await check.exitCode, check.out()]).toEqual([
        0,
        expect.stringMatching(/^\/readyz answers 200 \{"status":"ok"/),
      ]);
    });
    again.child.kill('SIGTERM');
    expect(await again.exitCode).toBe(0);
    expect(again.out()).toContain('"service stopped"');
  },
);

// oxlint-disable jest/no-standalone-expect -- because testWithNamespaces declares the test
testWithNamespaces(
  'as process 1 of a read-only container, as a user without rights, a worker finishes at SIGTERM what it runs',
  async () => {
    // The task is a call that this test answers when it wants to.
    let answer: (() => void) | undefined;
    const called = createServer((_request, response) => (answer = () => void response.end('{}'))).listen(
      0,
      '127.0.0.1',
    );
    await once(called, 'listening');
    const host = `127.0.0.1:${(called.address() as AddressInfo).port}`;
    const ports: Readonly<Record<string, string>> = { ...(await freePorts()), WARREN_HTTP_REQUEST_ALLOW_HOSTS: host };
    const url = `http://127.0.0.1:${ports['WARREN_HTTP_PRODUCER_PORT']}`;
    const producer = startContained(['producer'], ports);
    const worker = startContained(['worker'], ports);
    await eventually(() => expect(producer.out() + worker.out()).toMatch(/service started[\s\S]*service started/));
    const status = await readFile(`/proc/${await firstProcess(worker)}/status`, 'utf8');
    expect(status).toMatch(/^Uid:\t1000\t1000\t1000\t1000$/m);
    expect(status).toMatch(/^NSpid:\t\d+\t1$/m);

    const inside = ['nsenter', '--target', String(await firstProcess(worker)), '--pid', '--mount', '--wd=/srv'];
    await eventually(async () => {
      const check = start([...inside, ...(stepsOf('runtime', 'HEALTHCHECK')[0]?.exec ?? [])], ports);
      expect([await check.exitCode, check.out()]).toEqual([0, '/livez answers 200 {"status":"ok"}\n']);
    });
    const write = start([...inside, 'touch', '/srv/dist/x']);
    expect(await write.exitCode).not.toBe(0);
    expect(write.out()).toContain('Read-only file system');

    const input = JSON.stringify({ url: `http://${host}/` });
    const submit = ['warren', 'task', 'submit', 'http.request', '--input', input, '--json', '--url', url];
    const id = await eventually(async () => {
      const { code, out } = await runRole(...submit);
      if (code !== 0) throw new Error(out);
      return (JSON.parse(out) as { readonly id: string }).id;
    });
    const stateOf = async (): Promise<unknown> =>
      JSON.parse((await runRole('warren', 'task', 'get', id, '--json', '--url', url)).out);
    await eventually(() => expect(answer).toBeDefined());
    process.kill(await firstProcess(worker), 'SIGTERM');
    await eventually(() => expect(worker.out()).toContain('"worker draining"'));
    answer?.();
    called.close();
    expect(await worker.exitCode).toBe(0);
    expect(await stateOf()).toMatchObject({ state: 'succeeded', attempt: 1 });
    process.kill(await firstProcess(producer), 'SIGTERM');
    expect(await producer.exitCode).toBe(0);
  },
  240_000,
);
// oxlint-enable jest/no-standalone-expect
