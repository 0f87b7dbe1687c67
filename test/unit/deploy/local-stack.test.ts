import { describe, expect, test } from '@jest/globals';
import { choosePackages, parseInstalled, parseSimulation } from '../../../deploy/local-stack/debian-packages.ts';
import { environmentOf, renderExports } from '../../../deploy/local-stack/environment.ts';
import { parseGreeting } from '../../../deploy/local-stack/greeting.ts';
import { isPlainPath } from '../../../deploy/local-stack/home.ts';
import { parseIdentity } from '../../../deploy/local-stack/lock.ts';
import { missingMessage } from '../../../deploy/local-stack/missing.ts';
import { databaseUrlOf, renderArguments } from '../../../deploy/local-stack/postgres.ts';
import { brokerUrlOf, renderConfiguration } from '../../../deploy/local-stack/rabbitmq.ts';
import { beganFromStat } from '../../../deploy/local-stack/server-process.ts';
import { parsePasswd } from '../../../deploy/local-stack/server-user.ts';
import { newState } from '../../../deploy/local-stack/state.ts';

const state = {
  ports: { amqp: 21_001, management: 21_002, postgres: 21_003 },
  user: 'warren_1',
  password: 'secret-1',
  processes: {},
};

describe('processes', () => {
  const stat = (command: string, letter: string): string =>
    `42 (${command}) ${letter} ${Array.from({ length: 18 }, (_, index) => index).join(' ')} 98765 4 5 6`;

  test('a process is known by boot and start, whatever its name holds', () => {
    expect(beganFromStat(stat('postgres', 'S'), 'boot-1')).toBe('boot-1/98765');
    expect(beganFromStat(stat('a) R (b', 'S'), 'boot-1')).toBe('boot-1/98765');
  });

  test('a process that is gone, or only waits to be reaped, has not begun', () => {
    expect(beganFromStat('', 'boot-1')).toBeUndefined();
    expect(beganFromStat(stat('postgres', 'Z'), 'boot-1')).toBeUndefined();
  });

  test('the content of a lock is an identity or nothing', () => {
    expect(parseIdentity('{"pid":42,"began":"boot-1/98765"}')).toEqual({ pid: 42, began: 'boot-1/98765' });
    for (const text of ['', 'x', '{}', 'null', '{"pid":"42","began":"x"}']) expect(parseIdentity(text)).toBeUndefined();
  });

  test('servers never run as root, however root is called', () => {
    const text = 'root:x:0:0::/root:/bin/sh\ntoor:x:0:0::/root:/bin/sh\nnobody:x:65534:65534::/:/bin/false\nbroken\n';
    expect(parsePasswd(text)).toEqual([{ name: 'nobody', uid: 65_534, gid: 65_534 }]);
  });
});

describe('paths', () => {
  test('a path with a space or a quote is not for scripts', () => {
    expect(isPlainPath('/home/someone/warren-1.0_x')).toBe(true);
    for (const path of ['/home/a b', `/home/o'hara`, '/home/$x', '/home/ü', '/home/a:b'])
      expect(isPlainPath(path)).toBe(false);
  });
});

describe('packages', () => {
  test('what an empty machine would install is read from a simulation', () => {
    const text = 'NOTE: simulation\nInst libc6 (2.36 Debian:12 [amd64])\nInst erlang-base (1:25)\nConf libc6 (2.36)\n';
    expect(parseSimulation(text)).toEqual(['libc6', 'erlang-base']);
  });

  test('a removed package with its configuration left is not installed', () => {
    const status =
      'Package: libpq5\nStatus: install ok installed\nVersion: 15\n\nPackage: libsctp1\nStatus: deinstall ok config-files\n';
    expect(parseInstalled(status)).toEqual(new Set(['libpq5']));
  });

  test('the servers are always taken, libraries where they are missing, and nothing else', () => {
    const all = [
      'libc6',
      'libpq5',
      'perl',
      'libjson-perl',
      'libllvm14',
      'postgresql-common',
      'postgresql-client-15',
      'postgresql-15',
    ];
    expect(choosePackages(all, new Set(['libc6', 'postgresql-15']))).toEqual([
      'libpq5',
      'postgresql-client-15',
      'postgresql-15',
    ]);
  });
});

describe('configuration', () => {
  test('the broker listens on 127.0.0.1 alone and has no guest', () => {
    const text = renderConfiguration(state, true);
    expect(text).toContain('listeners.tcp.1 = 127.0.0.1:21001\n');
    expect(text).toContain('management.tcp.ip = 127.0.0.1\nmanagement.tcp.port = 21002\n');
    expect(text).toContain('default_user = warren_1\ndefault_pass = secret-1\n');
    expect(renderConfiguration(state, false)).not.toContain('management');
  });

  test('Postgres listens on 127.0.0.1 alone, without a socket file', () => {
    const args = renderArguments(state).join(' ');
    expect(args).toContain('-h 127.0.0.1 -p 21003');
    expect(args).toContain('-c unix_socket_directories= ');
  });

  test('URLs name 127.0.0.1, never localhost', () => {
    expect(brokerUrlOf(state)).toBe('amqp://warren_1:secret-1@127.0.0.1:21001');
    expect(databaseUrlOf(state)).toBe('postgres://warren_1:secret-1@127.0.0.1:21003/postgres');
  });

  test('passwords are random and need no escaping in an URL', () => {
    const [one, other] = [newState(), newState()];
    expect(one.password).not.toBe(other.password);
    expect(encodeURIComponent(one.password)).toBe(one.password);
    expect(one.password.length).toBeGreaterThanOrEqual(24);
  });

  test('a shell that reads the exports gets the values, whatever they hold', () => {
    expect(renderExports({ A: `it's $HOME`, B: '' })).toBe(`export A='it'\\''s $HOME'\nexport B=''`);
  });

  test('a broker without a known management API exports none', () => {
    const urls = {
      amqpUrl: 'amqp://x',
      databaseUrl: 'postgres://x',
      prefix: 'p',
      brokerVersion: '4.3.0',
      databaseVersion: '15.1',
    };
    expect(environmentOf({ ...urls, managementUrl: undefined })).toEqual({
      AMQP_URL: 'amqp://x',
      DATABASE_URL: 'postgres://x',
      WARREN_PREFIX: 'p',
    });
  });
});

describe('the greeting of a broker', () => {
  const field = (name: string, value: string): Buffer => {
    const length = Buffer.alloc(4);
    length.writeUInt32BE(value.length);
    return Buffer.concat([Buffer.from([name.length]), Buffer.from(`${name}S`), length, Buffer.from(value)]);
  };
  const payload = Buffer.concat([
    Buffer.from([0, 10, 0, 10, 0, 9]),
    field('product', 'RabbitMQ'),
    field('version', '4.3.6'),
  ]);
  const head = Buffer.alloc(7);
  head.writeUInt8(1, 0);
  head.writeUInt32BE(payload.length, 3);
  const frame = Buffer.concat([head, payload, Buffer.from([0xce])]);

  test('product and version are read from a whole frame', () => {
    expect(parseGreeting(frame)).toEqual({ product: 'RabbitMQ', version: '4.3.6' });
  });

  test('half a frame, a refusal and another protocol are no greeting', () => {
    expect(parseGreeting(frame.subarray(0, -1))).toBeUndefined();
    expect(parseGreeting(Buffer.from('AMQP\x00\x00\x09\x01', 'latin1'))).toBeUndefined();
    expect(parseGreeting(Buffer.from('HTTP/1.1 400 Bad Request\r\n\r\n'))).toBeUndefined();
    expect(parseGreeting(Buffer.alloc(0))).toBeUndefined();
  });
});

test('a machine without servers is told why each way failed and what would help', () => {
  const text = missingMessage('database', ['not installed on this machine', 'no Docker engine answers'], 'linux');
  expect(text).toContain('there is no Postgres');
  expect(text).toContain('no Docker engine answers');
  expect(text).toContain('sudo apt-get install postgresql');
  expect(text).toContain('export DATABASE_URL=');
  expect(missingMessage('broker', [], 'darwin')).toContain('brew install rabbitmq');
});
