/** A RabbitMQ of our own that speaks TLS and asks for a client certificate: what connects, and what each fault is told. */
import { chmod, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from '@jest/globals';
import { createClient } from '../../../client/src/client.ts';
import { PrivateBroker } from '../../../deploy/local-stack/rabbitmq.ts';
import { resetStack, startStack } from '../../../deploy/local-stack/stack.ts';
import type { Stack } from '../../../deploy/local-stack/stack.ts';
import { AmqpConnection, DEFAULT_AMQP } from '../../../shared/amqp/connection.ts';
import { toError } from '../../../shared/errors/to-error.ts';
import { silentLogger } from '../../../shared/observability/silent-log.ts';
import { systemClock } from '../../../shared/time/clock.ts';
import { TlsFiles } from '../../../shared/tls/tls-files.ts';
import { createAuthority } from '../../support/certificates.ts';
import type { Authority, Certificate } from '../../support/certificates.ts';
import { eventually } from '../../support/eventually.ts';
import { freePort } from '../../support/free-port.ts';

/** An instance that no other test uses. */
const NAME = 'tls-broker';
const START_MS = 180_000;

let stack: Stack;
let dir: string;
let ours: Authority;
let foreign: Authority;
let client: Certificate;
let foreignClient: Certificate;
let tlsPort: number;

beforeAll(async () => {
  await resetStack({ name: NAME });
  dir = await mkdtemp(join(tmpdir(), 'warren-tls-'));
  await chmod(dir, 0o755); // the broker runs as a user of its own
  ours = await createAuthority(dir, 'our-ca');
  foreign = await createAuthority(dir, 'foreign-ca');
  await ours.issue('server', { name: 'broker', hosts: ['localhost'] });
  client = await ours.issue('client', { name: 'worker' });
  foreignClient = await foreign.issue('foreign-client', { name: 'worker' });
  tlsPort = await freePort();
  stack = await startStack({
    name: NAME,
    onlyPrivate: true,
    only: 'broker',
    brokerLines: [
      `listeners.ssl.1 = 127.0.0.1:${tlsPort}`,
      `ssl_options.cacertfile = ${ours.caFile}`,
      `ssl_options.certfile = ${join(dir, 'server.pem')}`,
      `ssl_options.keyfile = ${join(dir, 'server.key')}`,
      'ssl_options.verify = verify_peer',
      'ssl_options.fail_if_no_peer_cert = true',
    ],
  });
}, START_MS);
afterAll(async () => {
  await resetStack({ name: NAME });
  await rm(dir, { recursive: true, force: true });
}, START_MS);

function urlAt(host: string): string {
  const url = new URL(stack.amqpUrl);
  url.protocol = 'amqps:';
  url.host = `${host}:${tlsPort}`;
  return url.href;
}

interface Names {
  readonly tlsCaFile: string;
  readonly tlsCertFile: string;
  readonly tlsKeyFile: string;
}
const GOOD = (): Names => ({ tlsCaFile: ours.caFile, tlsCertFile: client.certFile, tlsKeyFile: client.keyFile });
const NO_CLIENT = { tlsCertFile: '', tlsKeyFile: '' };

/** Connects; gives what was said of a failure, or nothing. */
async function connect(names: Names, host = 'localhost'): Promise<string | undefined> {
  const connection = new AmqpConnection(
    { clock: systemClock, log: silentLogger, random: () => 0.5 },
    {
      ...DEFAULT_AMQP,
      urls: [urlAt(host)],
      connectionName: 'tls test',
      tls: new TlsFiles(silentLogger, 'amqp', names),
    },
  );
  await connection.start();
  try {
    await eventually(() => expect(connection.isConnected || connection.failure !== undefined).toBe(true));
    if (connection.isConnected) return undefined;
    const said = `${connection.failure?.message} ${JSON.stringify(connection.failure?.facts)}`;
    expect(said).not.toContain(new URL(stack.amqpUrl).password);
    expect(said).not.toContain('PRIVATE KEY');
    return said;
  } finally {
    await connection.stop(systemClock.monotonicMs() + 2_000);
  }
}

test('with its CA and a certificate of it, the broker is connected to', async () => {
  expect(await connect(GOOD())).toBeUndefined();
});

test('a broker that nobody trusted has signed for is refused, and the setting for its CA is named', async () => {
  const expected = expect.stringContaining('name the file of its CA in amqp.tlsCaFile');
  expect(await connect({ ...GOOD(), tlsCaFile: foreign.caFile })).toEqual(expected);
  expect(await connect({ ...GOOD(), tlsCaFile: '' })).toEqual(expected);
});

test('a broker by another name than that of its certificate is refused, and the right names are said', async () => {
  expect(await connect(GOOD(), '127.0.0.1')).toContain('made for DNS:localhost, not for the host of the URL');
});

test('where a client certificate is missing or of another CA, the settings for it are named', async () => {
  expect(await connect({ ...GOOD(), ...NO_CLIENT })).toContain(
    'wants a client certificate; name it in amqp.tlsCertFile and amqp.tlsKeyFile',
  );
  const { certFile: tlsCertFile, keyFile: tlsKeyFile } = foreignClient;
  expect(await connect({ ...GOOD(), tlsCertFile, tlsKeyFile })).toContain(
    'does not take the client certificate of amqp.tlsCertFile',
  );
});

test('a certificate of the broker that has expired is said to be that, and one that was renewed is taken at once', async () => {
  if (!(stack.broker instanceof PrivateBroker)) throw new Error('this is done by rabbitmqctl, which a container hides');
  await ours.issue('server', { name: 'broker', hosts: ['localhost'], endsInSeconds: -60 });
  await stack.broker.ctl('eval', 'ssl:clear_pem_cache().');
  expect(await connect(GOOD())).toContain('has expired; renew it there');
  await ours.issue('server', { name: 'broker', hosts: ['localhost'] });
  await stack.broker.ctl('eval', 'ssl:clear_pem_cache().');
  expect(await connect(GOOD())).toBeUndefined();
});

test('a connection that was lost comes back with the client certificate that has been renewed meanwhile', async () => {
  const renewed = await ours.issue('renewed', { name: 'worker' });
  const names = { ...GOOD(), tlsCertFile: renewed.certFile, tlsKeyFile: renewed.keyFile };
  const connection = new AmqpConnection(
    { clock: systemClock, log: silentLogger, random: () => 0.5 },
    {
      ...DEFAULT_AMQP,
      urls: [urlAt('localhost')],
      connectionName: 'renewal',
      tls: new TlsFiles(silentLogger, 'amqp', names),
    },
  );
  await connection.start();
  try {
    await connection.connected({ withinMs: 10_000 });
    await writeFile(renewed.certFile, foreignClient.cert);
    await writeFile(renewed.keyFile, foreignClient.key);
    await (stack.broker as PrivateBroker).ctl('close_all_connections', 'test');
    await eventually(() =>
      expect(JSON.stringify(connection.failure?.facts)).toContain('does not take the client certificate'),
    );
    await ours.issue('renewed', { name: 'worker' });
    await eventually(() => expect(connection.isConnected).toBe(true));
  } finally {
    await connection.stop(systemClock.monotonicMs() + 2_000);
  }
});

test('the client publishes over amqps with a CA and a certificate in its options', async () => {
  const { amqpUrl } = stack;
  expect(amqpUrl).toContain('amqp://');
  await using good = createClient({
    amqpUrl: urlAt('localhost'),
    tls: { ca: ours.ca, cert: client.cert, key: client.key },
  });
  // There is no exchange on this broker: that this is what fails shows that the connection stands.
  const said = await good.enqueue('a', {}, { timeoutMs: 3_000 }).catch((thrown: unknown) => toError(thrown).message);
  expect(said).toContain("no exchange 'warren.tasks'");
  await using bad = createClient({ amqpUrl: urlAt('localhost'), tls: { ca: foreign.ca } });
  const refused = await bad.enqueue('a', {}, { timeoutMs: 3_000 }).catch((thrown: unknown) => toError(thrown).message);
  expect(refused).toMatch(/certificate/);
});
