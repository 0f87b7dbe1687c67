/** Our own servers over https: a real producer, the command line and the client against it, and certificates that are renewed. */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { connect } from 'node:tls';
import { afterAll, beforeAll, expect, test } from '@jest/globals';
import { findRoot } from '../../../deploy/local-stack/stack.ts';
import { HealthServer } from '../../../shared/http/health.ts';
import { HttpServer } from '../../../shared/http/server.ts';
import { createMetrics } from '../../../shared/observability/metrics.ts';
import { silentLogger } from '../../../shared/observability/silent-log.ts';
import { systemClock } from '../../../shared/time/clock.ts';
import type { Clock } from '../../../shared/time/clock.ts';
import { TlsFiles } from '../../../shared/tls/tls-files.ts';
import { createAuthority } from '../../support/certificates.ts';
import type { Authority, Certificate } from '../../support/certificates.ts';
import { openDatabase } from '../../support/database.ts';
import type { TestDatabase } from '../../support/database.ts';
import { AMQP_URL, removeTopology } from '../../support/broker.ts';
import { ServiceProcess } from '../../support/service-process.ts';

const ROOT = findRoot();
const PREFIX = `tls-${process.pid}`;
const TOKEN = 'token-that-is-not-to-be-seen';

let dir: string;
let ours: Authority;
let foreign: Authority;
let server: Certificate;
let db: TestDatabase;
let producer: ServiceProcess;

beforeAll(async () => {
  dir = await mkdtemp(join(tmpdir(), 'warren-https-'));
  ours = await createAuthority(dir, 'our-ca');
  foreign = await createAuthority(dir, 'foreign-ca');
  server = await ours.issue('server', { name: 'producer', hosts: ['localhost'] });
  db = await openDatabase();
  await runNode(['dist/cli/main.js', 'types', 'apply', '--tasks', './dist/examples/tasks/report-csv.js'], {
    DATABASE_URL: db.url,
    WARREN_PREFIX: PREFIX,
  });
  producer = startProducer({ WARREN_HTTP_TLS_CERT_FILE: server.certFile, WARREN_HTTP_TLS_KEY_FILE: server.keyFile });
  await producer.next('service started');
}, 120_000);
afterAll(async () => {
  await producer.terminate();
  await db[Symbol.asyncDispose]();
  await removeTopology(PREFIX, ['default']);
  await rm(dir, { recursive: true, force: true });
}, 120_000);

function startProducer(env: Readonly<Record<string, string>>): ServiceProcess {
  return new ServiceProcess('producer', 'producer', {
    AMQP_URL,
    DATABASE_URL: db.url,
    WARREN_PREFIX: PREFIX,
    WARREN_HTTP_PRODUCER_PORT: '0',
    WARREN_TOKENS: JSON.stringify([{ name: 'tester', role: 'admin', token: TOKEN }]),
    ...env,
  });
}

/** The producer by the one name that its certificate has. */
const url = (): string => producer.url.replace('127.0.0.1', 'localhost');

interface Ran {
  readonly code: number | null;
  readonly stdout: string;
  readonly stderr: string;
}

async function runNode(args: readonly string[], env: Readonly<Record<string, string>>): Promise<Ran> {
  const child = spawn(process.execPath, args, { cwd: ROOT, env: { PATH: '/usr/bin:/bin', ...env } });
  const said = { stdout: '', stderr: '' };
  child.stdout.on('data', (chunk: Buffer) => (said.stdout += chunk.toString()));
  child.stderr.on('data', (chunk: Buffer) => (said.stderr += chunk.toString()));
  const [code] = (await once(child, 'close')) as [number | null];
  expect(said.stdout + said.stderr).not.toContain(TOKEN);
  return { code, ...said };
}

const warren = async (args: readonly string[], env: Readonly<Record<string, string>> = {}): Promise<Ran> =>
  await runNode(['dist/cli/main.js', ...args], { WARREN_URL: url(), WARREN_TOKEN: TOKEN, ...env });

test('the command line submits and looks over https, with the CA by option, by variable or as node takes it', async () => {
  expect(url()).toMatch(/^https:\/\/localhost:\d+$/);
  const submitted = await warren([
    'task',
    'submit',
    'report.csv',
    '--input',
    '{"output":"o.csv"}',
    '--json',
    '--ca-file',
    ours.caFile,
  ]);
  expect(submitted).toMatchObject({ code: 0, stderr: '' });
  const { id } = JSON.parse(submitted.stdout) as { readonly id: string };
  const got = await warren(['task', 'get', id, '--json'], { WARREN_CA_FILE: ours.caFile });
  expect(JSON.parse(got.stdout)).toMatchObject({ id, type: 'report.csv' });
  expect(await warren(['task', 'get', id], { NODE_EXTRA_CA_CERTS: ours.caFile })).toMatchObject({ code: 0 });
});

test('what is wrong with the certificate, or with the scheme, is said with what to do', async () => {
  const list = ['task', 'list'];
  expect(await warren(list)).toMatchObject({
    code: 69,
    stderr: expect.stringContaining('name the file of its CA in --ca-file or WARREN_CA_FILE'),
  });
  expect((await warren([...list, '--ca-file', foreign.caFile])).stderr).toContain('nobody trusted here has signed');
  const byAddress = await warren([...list, '--ca-file', ours.caFile, '--url', producer.url]);
  expect(byAddress.stderr).toContain('made for DNS:localhost, not for the host of the URL');
  const plain = await warren([...list, '--url', url().replace('https:', 'http:')]);
  expect(plain.stderr).toContain('where it speaks TLS, write https://');
  expect(await warren([...list, '--ca-file', server.keyFile])).toMatchObject({
    code: 78,
    stderr: expect.stringContaining('holds no certificate (PEM)'),
  });
  expect((await warren([...list, '--ca-file', join(dir, 'none.pem')])).stderr).toContain('cannot be read: ENOENT');
});

test('the client enqueues over https with the CA that node was started with', async () => {
  const script = `
    import { createClient } from '@warren/client';
    const warren = createClient({ url: ${JSON.stringify(url())}, token: process.env.TOKEN });
    const { id } = await warren.enqueue('report.csv', { output: 'o.csv' }, { timeoutMs: 5_000 }).catch((error) => ({ id: error.message }));
    console.log(id);`;
  const args = ['--input-type=module', '--eval', script];
  expect((await runNode(args, { TOKEN, NODE_EXTRA_CA_CERTS: ours.caFile })).stdout).toMatch(/^[0-9a-f-]{36}\n$/);
  expect((await runNode(args, { TOKEN })).stdout).toContain('UNABLE_TO_VERIFY_LEAF_SIGNATURE');
});

test('a producer whose certificate cannot be used does not start: exit 78, with the setting and without the key', async () => {
  const other = await ours.issue('other', { name: 'other' });
  for (const [env, said] of [
    [{ WARREN_HTTP_TLS_CERT_FILE: server.certFile }, 'must be given together'],
    [
      { WARREN_HTTP_TLS_CERT_FILE: server.certFile, WARREN_HTTP_TLS_KEY_FILE: join(dir, 'none.key') },
      'which cannot be read (ENOENT)',
    ],
    [
      { WARREN_HTTP_TLS_CERT_FILE: server.certFile, WARREN_HTTP_TLS_KEY_FILE: other.keyFile },
      'the key is not that of the certificate',
    ],
  ] as const) {
    const failed = startProducer(env);
    expect(await failed.exited).toBe(78);
    const all = JSON.stringify(failed.lines) + failed.stray;
    expect(all).toContain(said);
    expect(all).not.toContain('PRIVATE KEY');
  }
});

/** The machine's clock, whose timers the test lets ring. */
function handClock(): Clock & { ring(): void } {
  const waiting = new Set<() => void>();
  return {
    ...systemClock,
    after: (_ms, fn) => {
      waiting.add(fn);
      return () => void waiting.delete(fn);
    },
    ring: () => {
      const due = [...waiting];
      waiting.clear();
      for (const fn of due) fn();
    },
  };
}

/** The common name of the certificate that a server shows. */
async function subjectAt(address: string): Promise<string> {
  const { port } = new URL(address);
  const socket = connect({ host: '127.0.0.1', port: Number(port), servername: 'localhost', ca: ours.ca });
  await once(socket, 'secureConnect');
  const { CN } = socket.getPeerCertificate().subject;
  socket.destroy();
  return String(CN);
}

test.each(['health', 'api'] as const)(
  'the %s server shows a certificate that was renewed without a restart, and the old one while the files do not fit',
  async (kind) => {
    const { certFile, keyFile } = await ours.issue(kind, { name: 'first', hosts: ['localhost'] });
    const tls = new TlsFiles(silentLogger, 'http', { tlsCertFile: certFile, tlsKeyFile: keyFile });
    const clock = handClock();
    const metrics = createMetrics({ service: 'test', version: '0', withProcess: false });
    const deps = { clock, log: silentLogger, checks: [], metrics };
    const at = { host: '127.0.0.1', port: 0, tls };
    const api = { ...at, tokens: [], bodyBytes: 1_000, title: 'Test', version: '1' };
    const served =
      kind === 'health' ? new HealthServer(deps, at) : new HttpServer({ ...deps, addRoutes: () => undefined }, api);
    await served.start();
    try {
      const { url: address = '' } = served;
      expect(address).toMatch(/^https:/);
      expect(await subjectAt(address)).toBe('first');
      const next = await ours.issue('next', { name: 'second', hosts: ['localhost'] });
      await writeFile(certFile, next.cert);
      clock.ring();
      expect(await subjectAt(address)).toBe('first');
      await writeFile(keyFile, next.key);
      clock.ring();
      expect(await subjectAt(address)).toBe('second');
    } finally {
      await served.stop(systemClock.monotonicMs() + 1_000);
    }
  },
);
