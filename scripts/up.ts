/** `make up`: a fleet that is left running, with the sample types. What runs is kept in `.warren/up.json`; see `down.ts`. */
import { randomBytes } from 'node:crypto';
import { mkdir, readFile, writeFile } from 'node:fs/promises';
import { createServer } from 'node:net';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { claimClone, findRoot } from '../deploy/local-stack/stack.ts';
import { codeOf, toError } from '../shared/errors/to-error.ts';
import { startProcess } from './fleet.ts';
import type { ServiceProcess } from './fleet.ts';
import { prepareDatabase } from './provision.ts';
import { findRunning, stateFile } from './running.ts';
import type { RunningFleet } from './running.ts';

const SERVICES = [
  ['producer', 'producer'],
  ['dead-letter-handler', 'dead-letter-handler'],
  ['worker', 'worker-1'],
  ['worker', 'worker-2'],
] as const;

async function main(): Promise<void> {
  const root = findRoot();
  await using _lock = await claimClone(root, 'up');
  const known = await readState(root);
  const running = known === undefined ? [] : await findRunning(known);
  if (known !== undefined && running.length === known.processes.length) {
    console.log('the fleet is already running');
    tell(known);
    return;
  }
  const databaseUrl = process.env['DATABASE_URL'] ?? '';
  const prefix = process.env['WARREN_PREFIX'] ?? 'warren';
  console.log('migrating the database');
  await prepareDatabase(databaseUrl, prefix);

  const token = known?.token ?? randomBytes(24).toString('base64url');
  const ports = known?.ports ?? { producer: await freePort(), deadLetterHandler: await freePort() };
  const env = {
    WARREN_PREFIX: prefix,
    WARREN_TASKS: join(root, 'dist', 'examples', 'tasks', 'samples.js'),
    WARREN_QUEUES: 'default:8',
    WARREN_HTTP_PRODUCER_PORT: String(ports.producer),
    WARREN_HTTP_DEAD_LETTER_HANDLER_PORT: String(ports.deadLetterHandler),
    WARREN_HTTP_WORKER_PORT: '0',
    WARREN_TOKENS: JSON.stringify([{ name: 'local', role: 'admin', token }]),
  };
  const started: ServiceProcess[] = [];
  try {
    for (const [service, name] of SERVICES) {
      if (running.some((each) => each.name === name)) continue; // one of the fleet died: the others go on
      const logDir = join(root, '.warren', 'up');
      started.push(await startProcess({ root, service, name, logDir, env, isDetached: true }));
      console.log(`  ${name.padEnd(20)} ${started.at(-1)?.url ?? ''}`);
    }
  } catch (thrown) {
    await Promise.all(started.map(async (each) => await each.stop()));
    throw thrown;
  }
  const state: RunningFleet = {
    processes: [...running, ...started.map(({ name, pid, url, logFile }) => ({ name, pid, url, logFile }))],
    ports,
    token,
  };
  await mkdir(join(root, '.warren'), { recursive: true });
  await writeFile(stateFile(root), JSON.stringify(state, null, 2), { mode: 0o600 });
  tell(state);
}

function tell({ processes, token }: RunningFleet): void {
  const url = (name: string): string => processes.find((each) => each.name === name)?.url ?? '';
  console.log(`
Task API          ${url('producer')}   (reference: ${url('producer')}/reference, OpenAPI: /openapi.json)
Dead Letter API   ${url('dead-letter-handler')}
logs              ${processes.map(({ logFile }) => logFile).join(' ')}

Try it:

  curl -s ${url('producer')}/v1/tasks -H 'authorization: Bearer ${token}' -H 'content-type: application/json' \\
    -d '{"type":"text.digest","input":{"source":"github.csv","rounds":5}}'

\`make down\` stops it.`);
}

async function readState(root: string): Promise<RunningFleet | undefined> {
  try {
    return JSON.parse(await readFile(stateFile(root), 'utf8')) as RunningFleet;
  } catch (thrown) {
    if (codeOf(thrown) === 'ENOENT') return undefined;
    throw thrown;
  }
}

/** A port that nobody listens on now. It is kept in the state, so that a fleet has the same URLs the next time. */
async function freePort(): Promise<number> {
  const server = createServer();
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const { port } = server.address() as AddressInfo;
  await new Promise<void>((resolve) => server.close(() => resolve()));
  return port;
}

try {
  await main();
} catch (thrown) {
  console.error(`the fleet was not started: ${toError(thrown).message}`);
  process.exitCode = 1;
}
