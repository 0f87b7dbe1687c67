/** A Postgres of our own with TLS, which asks for client certificates: what connects, and what each fault is told. */
import { chmod, chown, copyFile, mkdtemp, rm, stat, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from '@jest/globals';
import { resetStack, startStack } from '../../../deploy/local-stack/stack.ts';
import type { Stack } from '../../../deploy/local-stack/stack.ts';
import { isWarrenError } from '../../../shared/errors/warren-error.ts';
import { systemClock } from '../../../shared/time/clock.ts';
import type { TlsFileNames } from '../../../shared/tls/tls-files.ts';
import { createAuthority } from '../../support/certificates.ts';
import type { Authority, Certificate } from '../../support/certificates.ts';
import { aDatabase } from '../../support/database.ts';
import { eventually } from '../../support/eventually.ts';

/** An instance that no other test uses. */
const NAME = 'tls-database';
const START_MS = 180_000;

let stack: Stack;
let dir: string;
let dataDir: string;
let ours: Authority;
let foreign: Authority;
let client: Certificate;

beforeAll(async () => {
  await resetStack({ name: NAME });
  dir = await mkdtemp(join(tmpdir(), 'warren-tls-'));
  ours = await createAuthority(dir, 'our-ca');
  foreign = await createAuthority(dir, 'foreign-ca');
  client = await ours.issue('client', { name: 'warren' });
  stack = await startStack({ name: NAME, onlyPrivate: true, only: 'database' });
  await admin(async (ask) => {
    dataDir = await ask('show data_directory');
    await give(ours.caFile, 'ca.pem');
    await serve({ hosts: ['localhost'] }, ask);
    await ask(`alter system set ssl_ca_file = 'ca.pem'`);
    // "secure" comes by TLS alone, "strict" with a certificate of our CA besides.
    for (const user of ['strict', 'secure']) await ask(`create role ${user} login password 'not-to-be-seen'`);
    const superuser = new URL(stack.databaseUrl).username;
    const rules = [
      `host all ${superuser} 127.0.0.1/32 scram-sha-256`,
      'hostssl all strict 127.0.0.1/32 scram-sha-256 clientcert=verify-ca',
      'hostssl all secure 127.0.0.1/32 scram-sha-256',
    ];
    await writeOwned('pg_hba.conf', `${rules.join('\n')}\n`);
    await ask('alter system set ssl = on');
    await ask('select pg_reload_conf()');
  });
}, START_MS);
afterAll(async () => {
  await resetStack({ name: NAME });
  await rm(dir, { recursive: true, force: true });
}, START_MS);

async function admin(work: (ask: (text: string) => Promise<string>) => Promise<void>): Promise<void> {
  const database = aDatabase(stack.databaseUrl, { schema: 'public' });
  try {
    await database.connectOrThrow();
    await work(async (text) => {
      const { rows } = await database.query({ text });
      return String(Object.values((rows as readonly object[])[0] ?? {})[0]);
    });
  } finally {
    await database.stop(systemClock.monotonicMs() + 2_000);
  }
}

/** Puts a file into the data directory, as the server's own. */
async function give(from: string, name: string): Promise<void> {
  const { uid, gid } = await stat(dataDir);
  await copyFile(from, join(dataDir, name));
  await chmod(join(dataDir, name), 0o600);
  if (process.getuid?.() === 0) await chown(join(dataDir, name), uid, gid);
}

async function writeOwned(name: string, content: string): Promise<void> {
  await writeFile(join(dir, name), content);
  await give(join(dir, name), name);
}

/** Gives the server another certificate. */
async function serve(
  wish: { readonly hosts: readonly string[]; readonly endsInSeconds?: number },
  ask: (text: string) => Promise<string>,
): Promise<void> {
  const { certFile, keyFile } = await ours.issue('server', { name: 'postgres', ...wish });
  await give(certFile, 'server.crt');
  await give(keyFile, 'server.key');
  await ask('select pg_reload_conf()');
}

interface How {
  readonly host?: string;
  readonly user?: string;
  readonly sslmode?: string;
}

/** Connects; gives what was said of a failure, or nothing. */
async function connect(
  names: Partial<TlsFileNames>,
  { host = 'localhost', user, sslmode }: How = {},
): Promise<string | undefined> {
  const url = new URL(stack.databaseUrl);
  url.hostname = host;
  if (user !== undefined) [url.username, url.password] = [user, 'not-to-be-seen'];
  if (sslmode !== undefined) url.searchParams.set('sslmode', sslmode);
  const tls = { tlsCertFile: '', tlsKeyFile: '', ...names };
  const database = aDatabase(url.href, { schema: 'public', tls });
  try {
    await database.connectOrThrow();
    const { rows } = await database.query({ text: 'select ssl from pg_stat_ssl where pid = pg_backend_pid()' });
    expect(rows).toEqual([{ ssl: sslmode !== 'disable' }]);
    return undefined;
  } catch (thrown) {
    if (!isWarrenError(thrown)) throw thrown;
    const said = `${thrown.message} ${JSON.stringify(thrown.facts)}`;
    if (said.includes('not-to-be-seen')) throw new Error('a password was said');
    return said;
  } finally {
    await database.stop(systemClock.monotonicMs() + 2_000);
  }
}

test('with its CA the server is connected to by TLS, by name and, where the certificate has it, by address', async () => {
  await eventually(async () => expect(await connect({ tlsCaFile: ours.caFile }, { user: 'secure' })).toBeUndefined());
  expect(await connect({ tlsCaFile: ours.caFile })).toBeUndefined();
  expect(await connect({ tlsCaFile: ours.caFile }, { sslmode: 'verify-full' })).toBeUndefined();
  expect(await connect({ tlsCaFile: ours.caFile }, { sslmode: 'require' })).toBeUndefined();
  await admin(async (ask) => await serve({ hosts: ['127.0.0.1'] }, ask));
  try {
    await eventually(async () =>
      expect(await connect({ tlsCaFile: ours.caFile }, { host: '127.0.0.1' })).toBeUndefined(),
    );
    expect(await connect({ tlsCaFile: ours.caFile })).toContain('made for IP Address:127.0.0.1');
  } finally {
    await admin(async (ask) => await serve({ hosts: ['localhost'] }, ask));
  }
  await eventually(async () => expect(await connect({ tlsCaFile: ours.caFile })).toBeUndefined());
});

test('another name than that of the certificate is refused by verify-full, and taken by verify-ca', async () => {
  const at = { host: '127.0.0.1' };
  expect(await connect({ tlsCaFile: ours.caFile }, at)).toContain(
    'made for DNS:localhost, not for the host of the URL',
  );
  expect(await connect({ tlsCaFile: ours.caFile }, { ...at, sslmode: 'verify-ca' })).toBeUndefined();
});

test('a server that nobody trusted has signed for is refused, but where sslmode says no-verify', async () => {
  const expected = expect.stringContaining('name the file of its CA in postgres.tlsCaFile');
  expect(await connect({ tlsCaFile: foreign.caFile })).toEqual(expected);
  expect(await connect({}, { sslmode: 'require' })).toEqual(expected);
  expect(await connect({}, { sslmode: 'no-verify' })).toBeUndefined();
});

test('a certificate that has expired is said to be that', async () => {
  await admin(async (ask) => await serve({ hosts: ['localhost'], endsInSeconds: -60 }, ask));
  try {
    await eventually(async () =>
      expect(await connect({ tlsCaFile: ours.caFile })).toContain('has expired; renew it there'),
    );
  } finally {
    await admin(async (ask) => await serve({ hosts: ['localhost'] }, ask));
  }
  await eventually(async () => expect(await connect({ tlsCaFile: ours.caFile })).toBeUndefined());
});

test('where the server wants a client certificate, one of its CA is taken, and its absence names the settings', async () => {
  const files = { tlsCaFile: ours.caFile, tlsCertFile: client.certFile, tlsKeyFile: client.keyFile };
  expect(await connect(files, { user: 'strict' })).toBeUndefined();
  expect(await connect({ tlsCaFile: ours.caFile }, { user: 'strict' })).toContain(
    'wants a client certificate; name it in postgres.tlsCertFile and postgres.tlsKeyFile',
  );
  const other = await foreign.issue('foreign-client', { name: 'strict' });
  expect(
    await connect({ ...files, tlsCertFile: other.certFile, tlsKeyFile: other.keyFile }, { user: 'strict' }),
  ).toContain('does not take the client certificate of postgres.tlsCertFile');
});

test('a user who must come by TLS and does not is told which sslmode to say', async () => {
  expect(await connect({}, { user: 'secure', sslmode: 'disable' })).toContain(
    'say sslmode=verify-full in postgres.url',
  );
});

test('what cannot be meant is a fault of the configuration', async () => {
  const files = { tlsCaFile: ours.caFile };
  expect(await connect({}, { sslmode: 'prefer' })).toContain('goes without TLS where a server has none');
  expect(await connect({}, { sslmode: 'on' })).toContain(
    'must be verify-full, verify-ca, require, no-verify or disable',
  );
  expect(await connect(files, { sslmode: 'disable' })).toContain('it says sslmode=disable, and postgres.tlsCaFile');
  expect(await connect({ tlsCaFile: join(dir, 'not-there.pem') })).toContain(
    'not-there.pem\\", which cannot be read (ENOENT)',
  );
  expect(await connect({ tlsCaFile: client.keyFile })).toContain('holds no certificate (PEM)');
  expect(
    await connect({
      ...files,
      tlsCertFile: client.certFile,
      tlsKeyFile: (await ours.issue('other', { name: 'o' })).keyFile,
    }),
  ).toContain('the key is not that of the certificate');
});

test('a server without TLS is said to have none', async () => {
  await admin(async (ask) => {
    await ask('alter system set ssl = off');
    await ask('select pg_reload_conf()');
  });
  try {
    await eventually(async () => expect(await connect({ tlsCaFile: ours.caFile })).toContain('the server has no TLS'));
  } finally {
    await admin(async (ask) => {
      await ask('alter system set ssl = on');
      await ask('select pg_reload_conf()');
    });
  }
});
