import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, describe, expect, test } from '@jest/globals';
import { parseAddress } from '../../../../shared/amqp/address.ts';
import { isLoopback, loadConfig } from '../../../../shared/config/load.ts';
import type { ConfigInput, LoadedConfig } from '../../../../shared/config/load.ts';
import { describeConfig, renderConfig, renderConfigReference } from '../../../../shared/config/print.ts';
import { listSettings } from '../../../../shared/config/schema.ts';

const dir = mkdtempSync(join(tmpdir(), 'warren config '));
afterAll(() => rmSync(dir, { recursive: true }));

function file(name: string, content: unknown): string {
  const path = join(dir, name);
  writeFileSync(path, typeof content === 'string' ? content : JSON.stringify(content));
  return path;
}

function load(input: Partial<ConfigInput> = {}): LoadedConfig {
  return loadConfig({ user: 'worker', env: {}, ...input });
}

function faultsOf(input: Partial<ConfigInput>): readonly string[] {
  try {
    load(input);
    return [];
  } catch (thrown) {
    return (thrown as { facts: { faults: string[] } }).facts.faults;
  }
}

const TOKENS = [{ name: 'ops', role: 'operator', token: 'geheim-geheim-geheim' }];

test('without anything the defaults hold, frozen to the bottom', () => {
  const { config, sources } = load();
  expect(config.amqp.urls).toEqual(['amqp://guest:guest@127.0.0.1:5672']);
  expect(config.postgres.url).toBe('postgres://127.0.0.1:5432/warren');
  expect(config.worker.queues).toEqual([{ name: 'default', concurrency: 10 }]);
  expect(config.http.host).toBe('127.0.0.1');
  expect(sources.get('prefix')).toBe('default');
  expect(Object.isFrozen(config.worker.queues[0])).toBe(true);
  expect(() => Object.assign(config.limits, { depth: 1 })).toThrow('read only');
});

test('the environment wins over the file, and an empty variable is absent', () => {
  const { config, sources } = load({
    file: file('a.json', {
      prefix: 'filed',
      amqp: { heartbeatSeconds: 20 },
      worker: { queues: 'slow:1' },
      log: { level: 'debug' },
    }),
    env: {
      WARREN_PREFIX: 'env',
      WARREN_LOG_LEVEL: '',
      AMQP_URL: 'amqp://a:b@one.example.com, amqps://two.example.com',
      WARREN_QUEUES: 'high:8,low:2,plain',
      WARREN_TASKS: './a.ts, @example/tasks',
      WARREN_PRODUCER_REQUIRE_MESSAGE_ID: 'true',
    },
  });
  expect(config).toMatchObject({
    prefix: 'env',
    log: { level: 'debug' },
    amqp: { heartbeatSeconds: 20, urls: ['amqp://a:b@one.example.com', 'amqps://two.example.com'] },
    worker: {
      queues: [
        { name: 'high', concurrency: 8 },
        { name: 'low', concurrency: 2 },
        { name: 'plain', concurrency: 10 },
      ],
      tasks: ['./a.ts', '@example/tasks'],
    },
    producer: { requireMessageId: true },
  });
  expect([sources.get('prefix'), sources.get('log.level')]).toEqual(['environment', 'file']);
});

test('WARREN_CONFIG names the file', () => {
  expect(load({ env: { WARREN_CONFIG: file('b.json', { prefix: 'b' }) } }).config.prefix).toBe('b');
});

test('every secret can be read from a file', () => {
  for (const { env } of listSettings().filter(({ setting }) => setting.sensitive)) {
    expect(faultsOf({ env: { [`${env}_FILE`]: join(dir, 'missing') } })).toEqual([
      expect.stringMatching(new RegExp(`cannot be read: ${env}_FILE names .*ENOENT`)),
    ]);
  }
  const { config, sources } = load({ env: { WARREN_TOKENS_FILE: file('tokens', `${JSON.stringify(TOKENS)}\n`) } });
  expect(config.http.tokens).toEqual(TOKENS);
  expect(sources.get('http.tokens')).toBe(`file ${join(dir, 'tokens')}`);
});

test('all faults come at once, one line each, and no secret is in them', () => {
  const faults = faultsOf({
    user: 'producer',
    file: file('bad.json', {
      prefix: 'No Spaces',
      typo: 1,
      amqp: { heartbeatSeconds: '10x', hearbeat: 2 },
      limits: 7,
      postgres: { url: 'mysql://root:geheim@h/x' },
      worker: { queues: [{ name: 'a', concurrency: 0 }] },
    }),
    env: {
      WARREN_HTTP_HOST: '0.0.0.0',
      WARREN_HTTP_PRODUCER_PORT: '70000',
      WARREN_TOKENS: '[{"name":"x","role":"root","token":"geheim"}]',
      AMQP_URL: 'amqp://u:geheim@h',
      AMQP_URL_FILE: '/nowhere',
      WARREN_AMQP_RECONNECT_MIN_MS: '20000',
      WARREN_LEASE_LAPSE_MS: '2000',
    },
  });
  expect(faults).toEqual([
    '"typo" is no setting (from the file)',
    '"amqp.hearbeat" is no setting (from the file)',
    'limits must be a group of settings (from the file)',
    'prefix is "No Spaces" but must be 1 to 40 of a-z, 0-9 and - (from the file)',
    'amqp.urls is given twice: AMQP_URL and AMQP_URL_FILE',
    'amqp.urls cannot be read: AMQP_URL_FILE names "/nowhere" (ENOENT)',
    'amqp.heartbeatSeconds is "10x" but must be a whole number from 1 to 600 (from the file)',
    'postgres.url must be a URL that begins with postgres:// or postgresql:// (from the file)',
    'http.producerPort is "70000" but must be a whole number from 0 to 65535 (from WARREN_HTTP_PRODUCER_PORT)',
    'http.tokens token 1: its role must be one of viewer, operator, editor, admin (from WARREN_TOKENS)',
    expect.stringMatching(/^worker\.queues is .* but must be name:concurrency/),
    'amqp.reconnectMinMs must not be more than amqp.reconnectMaxMs',
    'lease.lapseMs must be at least three times lease.renewMs',
    expect.stringMatching(/^http\.tokens must hold a token when http\.host is not loopback/),
  ]);
  expect(faults.join('\n')).not.toContain('geheim');
});

describe('a file that is none', () => {
  test.each([
    ['{"a": geheim}', /is not valid JSON/],
    ['[]', /is not a JSON object/],
    ['', /is not valid JSON/],
    ['null', /is not a JSON object/],
  ])('%j is one fault', (content, fault) => {
    const faults = faultsOf({ file: file('broken.json', content) });
    expect(faults).toEqual([expect.stringMatching(fault)]);
    expect(faults[0]).not.toContain('geheim');
  });

  test('a missing one is a fault', () => {
    expect(faultsOf({ file: join(dir, 'nothing.json') })).toEqual([expect.stringContaining('ENOENT')]);
  });
});

test('prototype keys are unknown settings and change no object', () => {
  const faults = faultsOf({
    file: file(
      'proto.json',
      '{"__proto__": {"polluted": 1}, "constructor": {"prototype": {"polluted": 1}}, "amqp": {"__proto__": {"polluted": 1}, "toString": 1}}',
    ),
  });
  expect(faults).toEqual([
    '"__proto__" is no setting (from the file)',
    '"constructor" is no setting (from the file)',
    '"amqp.__proto__" is no setting (from the file)',
    '"amqp.toString" is no setting (from the file)',
  ]);
  expect(({} as Record<string, unknown>)['polluted']).toBeUndefined();
});

test.each(['12', ' 12 '])('%j is a number', (value) => {
  expect(load({ env: { WARREN_LIMITS_DEPTH: value } }).config.limits.depth).toBe(12);
});

test.each(['', '12abc', '1.5', '-1', '1e2', '0x10', '9999999999999999999', 'NaN'].slice(1))(
  '%j is no depth',
  (value) => {
    expect(faultsOf({ env: { WARREN_LIMITS_DEPTH: value } })).toHaveLength(1);
  },
);

test('tokens: names and secrets stand once', () => {
  const [token] = TOKENS;
  expect(faultsOf({ env: { WARREN_TOKENS: JSON.stringify([token, token]) } })).toEqual([
    expect.stringContaining('its name stands twice'),
  ]);
  expect(faultsOf({ env: { WARREN_TOKENS: JSON.stringify([token, { ...token, name: 'b' }]) } })).toEqual([
    expect.stringContaining('token 2: it stands twice'),
  ]);
  expect(faultsOf({ env: { WARREN_TOKENS: 'geheim' } })[0]).not.toContain('geheim');
});

test('a worker may listen beyond loopback without tokens, an API with one', () => {
  expect(faultsOf({ user: 'worker', env: { WARREN_HTTP_HOST: '0.0.0.0' } })).toEqual([]);
  expect(
    faultsOf({ user: 'producer', env: { WARREN_HTTP_HOST: '0.0.0.0', WARREN_TOKENS: JSON.stringify(TOKENS) } }),
  ).toEqual([]);
});

test.each([
  ['127.0.0.1', true],
  ['127.1.2.3', true],
  ['::1', true],
  ['[::1]', true],
  ['LOCALHOST', true],
  ['0.0.0.0', false],
  ['::', false],
  ['localhost.example.com', false],
  ['127.0.0.1.example.com', false],
])('%s is loopback: %s', (host, expected) => {
  expect(isLoopback(host)).toBe(expected);
});

test('what is printed holds no secret', () => {
  const loaded = load({
    env: {
      AMQP_URL: 'amqp://user:geheim@broker.example.com:5672/vhost?password=geheim',
      DATABASE_URL: 'postgres://user:geheim@db.example.com/warren',
      WARREN_TOKENS: JSON.stringify(TOKENS),
    },
  });
  const printed = renderConfig(loaded) + JSON.stringify(describeConfig(loaded));
  expect(printed).not.toContain('geheim');
  expect(printed).toContain('amqp.urls = amqp://***@broker.example.com:5672/vhost  (environment)');
  expect(printed).toContain('http.tokens = ops (operator)');
});

test('every setting is documented with its unit and has a variable of its own', () => {
  const settings = listSettings();
  expect(new Set(settings.map(({ env }) => env)).size).toBe(settings.length);
  for (const { path, setting } of settings) {
    expect(setting.doc).toMatch(path.endsWith('Ms') ? /^Milliseconds .*\.$/ : /^[A-Z].*\.$/);
    expect(() => setting.format(setting.default)).not.toThrow();
  }
  expect(renderConfigReference()).toContain('| `amqp.urls` | `AMQP_URL` or `AMQP_URL_FILE` |');
});

test('a certificate comes with its key, and files of the broker with amqps', () => {
  expect(faultsOf({ env: { WARREN_HTTP_TLS_CERT_FILE: 'c.pem', WARREN_POSTGRES_TLS_KEY_FILE: 'k.pem' } })).toEqual([
    'postgres.tlsCertFile and postgres.tlsKeyFile must be given together',
    'http.tlsCertFile and http.tlsKeyFile must be given together',
  ]);
  const env = { WARREN_AMQP_TLS_CA_FILE: 'ca.pem' };
  expect(faultsOf({ env })).toEqual([expect.stringContaining('amqp.urls must begin with amqps://')]);
  expect(faultsOf({ env: { ...env, AMQP_URL: 'amqps://a.b' } })).toEqual([]);
});

test('a store of files is configured whole or not at all, and beyond loopback its links need a secret', () => {
  expect(faultsOf({ env: { WARREN_FILES_STORE: 'fs' } })).toEqual([
    'files.directory must name a folder when files.store is fs',
  ]);
  expect(faultsOf({ env: { WARREN_FILES_STORE: 's3', WARREN_FILES_S3_ACCESS_KEY_ID: 'id' } })).toEqual([
    'files.s3Bucket must name a bucket when files.store is s3',
    'files.s3AccessKeyId and files.s3SecretAccessKey must be given together',
  ]);
  const env = {
    WARREN_FILES_STORE: 'fs',
    WARREN_FILES_DIRECTORY: '/srv/files',
    WARREN_HTTP_HOST: '0.0.0.0',
    WARREN_TOKENS: JSON.stringify(TOKENS),
  };
  expect(faultsOf({ user: 'producer', env })).toEqual([
    'files.linkSecret must be given when http.host is not loopback: it keeps strangers from making links',
  ]);
  expect(faultsOf({ user: 'worker', env })).toEqual([]);
  const secret = 'a-secret-of-a-test-long-enough-to-be-one';
  expect(faultsOf({ user: 'producer', env: { ...env, WARREN_FILES_LINK_SECRET: secret } })).toEqual([]);
  const [short = ''] = faultsOf({ env: { WARREN_FILES_LINK_SECRET: 'short-secret' } });
  expect(short).toContain('files.linkSecret must be 32 to 512');
  expect(short).not.toContain('short-secret');
  expect(faultsOf({ env: { WARREN_FILES_STORE: 'fs', WARREN_FILES_DIRECTORY: 'relative/path' } })[0]).toContain(
    'must be an absolute path',
  );
});

describe('user and password beside the URLs', () => {
  const password = String.raw`p@:/#%?&\_$%2F`;

  test('are taken as they are, from files too, and end in every URL', () => {
    const { config } = load({
      env: {
        AMQP_URL: 'amqps://one.example.com/a%2Fb,amqps://two.example.com/a%2Fb',
        WARREN_AMQP_USER: 'wörker',
        WARREN_AMQP_PASSWORD_FILE: file('broker-password', `${password}\n`),
        DATABASE_URL: 'postgres://db.example.com/warren?sslmode=verify-full',
        WARREN_POSTGRES_USER: 'app',
        WARREN_POSTGRES_PASSWORD_FILE: file('database-password', password),
      },
    });
    for (const url of [...config.amqp.urls, config.postgres.url]) {
      expect(decodeURIComponent(new URL(url).password)).toBe(password);
    }
    expect(config.amqp.urls.map((url) => parseAddress(url))).toMatchObject([
      { username: 'wörker', password, vhost: 'a/b', hostname: 'one.example.com' },
      { username: 'wörker', password, vhost: 'a/b', hostname: 'two.example.com' },
    ]);
    expect(new URL(config.postgres.url)).toMatchObject({ username: 'app', search: '?sslmode=verify-full' });
    expect(renderConfig(load({ env: { WARREN_POSTGRES_PASSWORD: password } }))).not.toContain('p@:');
  });

  test('are refused where the URL names them as well, or one of the two is missing', () => {
    const faults = faultsOf({
      env: {
        WARREN_AMQP_USER: 'a',
        DATABASE_URL: 'postgres://b:secret@db.example.com/warren',
        WARREN_POSTGRES_USER: 'c',
        WARREN_POSTGRES_PASSWORD: 'geheim',
      },
    });
    expect(faults).toEqual([
      'amqp.user and amqp.password must be given together',
      'amqp.user is given, so amqp.urls must not name a user',
      'postgres.user is given, so postgres.url must not name a user',
      'postgres.password is given, so postgres.url must not hold one',
    ]);
  });
});
