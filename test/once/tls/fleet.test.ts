/** A whole fleet that speaks nothing but TLS: amqps, Postgres with a client certificate, https. */
import { chmod, chown, copyFile, mkdtemp, rm, stat } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from '@jest/globals';
import { Agent, fetch as fetchWith } from 'undici';
import { resetStack, startStack } from '../../../deploy/local-stack/stack.ts';
import type { Stack } from '../../../deploy/local-stack/stack.ts';
import { migrate } from '../../../shared/postgres/migrate.ts';
import { silentLogger } from '../../../shared/observability/silent-log.ts';
import { systemClock } from '../../../shared/time/clock.ts';
import { createAuthority } from '../../support/certificates.ts';
import { MIGRATIONS_DIR, aDatabase } from '../../support/database.ts';
import { eventually } from '../../support/eventually.ts';
import { freePort } from '../../support/free-port.ts';
import { ServiceProcess } from '../../support/service-process.ts';

/** An instance that no other test uses. */
const NAME = 'tls-fleet';
const START_MS = 180_000;
const TOKEN = 'a-token-of-the-test-alone';

let stack: Stack;
let dir: string;
let env: Readonly<Record<string, string>>;
let ca: string;

beforeAll(async () => {
  await resetStack({ name: NAME });
  dir = await mkdtemp(join(tmpdir(), 'warren-tls-'));
  await chmod(dir, 0o755); // the servers run as a user of their own
  const authority = await createAuthority(dir, 'ca');
  ca = authority.ca;
  const server = await authority.issue('server', { name: 'server', hosts: ['localhost'] });
  const client = await authority.issue('client', { name: 'warren' });
  const port = await freePort();
  stack = await startStack({
    name: NAME,
    onlyPrivate: true,
    brokerLines: [
      `listeners.ssl.1 = 127.0.0.1:${port}`,
      `ssl_options.cacertfile = ${authority.caFile}`,
      `ssl_options.certfile = ${server.certFile}`,
      `ssl_options.keyfile = ${server.keyFile}`,
      'ssl_options.verify = verify_peer',
      'ssl_options.fail_if_no_peer_cert = true',
    ],
  });
  const admin = aDatabase(stack.databaseUrl);
  await admin.connectOrThrow();
  await migrate(admin, { dir: MIGRATIONS_DIR, log: silentLogger });
  const { rows } = await admin.query({ text: 'show data_directory' });
  const { data_directory: dataDir } = (rows as [{ data_directory: string }])[0];
  const { uid, gid } = await stat(dataDir);
  for (const [from, name] of [
    [authority.caFile, 'ca.pem'],
    [server.certFile, 'server.crt'],
    [server.keyFile, 'server.key'],
  ] as const) {
    await copyFile(from, join(dataDir, name));
    await chmod(join(dataDir, name), 0o600);
    if (process.getuid?.() === 0) await chown(join(dataDir, name), uid, gid);
  }
  for (const text of [
    `alter system set ssl_ca_file = 'ca.pem'`,
    'alter system set ssl = on',
    'select pg_reload_conf()',
  ]) {
    await admin.query({ text });
  }
  await admin.stop(systemClock.monotonicMs() + 2_000);

  const [amqp, postgres] = [new URL(stack.amqpUrl), new URL(stack.databaseUrl)];
  amqp.protocol = 'amqps:';
  amqp.host = `localhost:${port}`;
  postgres.hostname = 'localhost';
  postgres.searchParams.set('sslmode', 'verify-full');
  const shown = (group: string): Record<string, string> => ({
    [`WARREN_${group}_TLS_CA_FILE`]: authority.caFile,
    [`WARREN_${group}_TLS_CERT_FILE`]: client.certFile,
    [`WARREN_${group}_TLS_KEY_FILE`]: client.keyFile,
  });
  env = {
    AMQP_URL: amqp.href,
    DATABASE_URL: postgres.href,
    ...shown('AMQP'),
    ...shown('POSTGRES'),
    WARREN_HTTP_TLS_CERT_FILE: server.certFile,
    WARREN_HTTP_TLS_KEY_FILE: server.keyFile,
    WARREN_HTTP_PRODUCER_PORT: '0',
    WARREN_HTTP_WORKER_PORT: '0',
    WARREN_TOKENS: JSON.stringify([{ name: 'tester', role: 'admin', token: TOKEN }]),
  };
}, START_MS);
afterAll(async () => {
  await resetStack({ name: NAME });
  await rm(dir, { recursive: true, force: true });
}, START_MS);

test('a task goes its whole way by TLS alone, and every session in Postgres, those of leases too, is encrypted', async () => {
  const producer = new ServiceProcess('producer', 'producer', env);
  const worker = new ServiceProcess('worker', 'worker', env, ['--tasks', './dist/examples/tasks/demo-slow.js']);
  const dispatcher = new Agent({ connect: { ca } });
  const call = async (url: string, path: string, body?: object): Promise<unknown> => {
    const answer = await fetchWith(url.replace('127.0.0.1', 'localhost') + path, {
      dispatcher,
      headers: { authorization: `Bearer ${TOKEN}`, 'content-type': 'application/json' },
      ...(body === undefined ? {} : { method: 'POST', body: JSON.stringify(body) }),
    });
    return await answer.json();
  };
  try {
    await eventually(async () => expect(await call(worker.url, '/readyz')).toMatchObject({ status: 'ok' }));
    await eventually(async () => expect(await call(producer.url, '/readyz')).toMatchObject({ status: 'ok' }));
    const id = await eventually(async () => {
      const accepted = await call(producer.url, '/v1/tasks', { type: 'demo.slow', input: { ms: 100 } });
      expect(accepted).toMatchObject({ id: expect.any(String) });
      return (accepted as { readonly id: string }).id;
    });
    await eventually(async () =>
      expect(await call(producer.url, `/v1/tasks/${id}`)).toMatchObject({ state: 'succeeded', attempt: 1 }),
    );
    const admin = aDatabase(stack.databaseUrl);
    await admin.connectOrThrow();
    const { rows } = await admin.query({
      text: `select application_name as name, bool_and(ssl) as ssl, bool_and(client_dn = '/CN=warren') as shown
             from pg_stat_ssl join pg_stat_activity using (pid)
             where application_name in ('warren-producer', 'warren-worker', 'warren-lease') group by 1 order by 1`,
    });
    await admin.stop(systemClock.monotonicMs() + 2_000);
    expect(rows).toEqual(
      ['warren-lease', 'warren-producer', 'warren-worker'].map((name) => ({ name, ssl: true, shown: true })),
    );
  } finally {
    await dispatcher.close();
    await Promise.all([producer.terminate(), worker.terminate()]);
  }
});
