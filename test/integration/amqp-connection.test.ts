import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import { once } from 'node:events';
import { createServer } from 'node:net';
import type { AddressInfo } from 'node:net';
import { Writable } from 'node:stream';
import { AmqpConnection, DEFAULT_AMQP } from '../../shared/amqp/connection.ts';
import type { AmqpOptions } from '../../shared/amqp/connection.ts';
import { codeOf } from '../../shared/errors/to-error.ts';
import { createLogger } from '../../shared/observability/log.ts';
import { systemClock } from '../../shared/time/clock.ts';
import { AMQP_URL, openBroker } from '../support/broker.ts';
import type { TestBroker } from '../support/broker.ts';
import { eventually } from '../support/eventually.ts';
import { FaultyProxy } from '../support/faulty-proxy.ts';

let broker: TestBroker;

beforeAll(async () => {
  broker = await openBroker();
});

afterAll(async () => {
  await broker[Symbol.asyncDispose]();
});

/** Frames on channel 0, as the broker sends them. Source: amqp.org, AMQP 0-9-1, sections 1.4.2.8, 1.4.2.10; rabbitmq.com/docs/connection-blocked. */
const frame = (payload: readonly number[]): Buffer => Buffer.from([1, 0, 0, 0, 0, 0, payload.length, ...payload, 0xce]);
const OPEN_OK = frame([0, 10, 0, 41, 0]);
const CLOSE = frame([0, 10, 0, 50, 320 >> 8, 320 & 0xff, 3, ...Buffer.from('bye'), 0, 0, 0, 0]);
const BLOCKED = frame([0, 10, 0, 60, 3, ...Buffer.from('low')]);

const inMs = (ms: number): number => systemClock.monotonicMs() + ms;

interface Opened extends AsyncDisposable {
  readonly connection: AmqpConnection;
  readonly lines: string[];
}

/** A started connection, not waited for, with all that it logs. */
async function open(urls: readonly string[], options: Partial<AmqpOptions> = {}): Promise<Opened> {
  const lines: string[] = [];
  const stream = new Writable({
    write(chunk, _encoding, done) {
      lines.push(String(chunk));
      done();
    },
  });
  const deps = { clock: systemClock, log: createLogger({ level: 'debug', base: {}, stream }), random: () => 0.5 };
  const connection = new AmqpConnection(deps, {
    ...DEFAULT_AMQP,
    urls,
    connectionName: broker.prefix,
    reconnectMinMs: 20,
    reconnectMaxMs: 200,
    connectTimeoutMs: 1_000,
    ...options,
  });
  await connection.start();
  return {
    connection,
    lines,
    async [Symbol.asyncDispose]() {
      await connection.stop(inMs(2_000));
    },
  };
}

/** A server that says one thing to everybody. */
async function openForeignServer(greeting: Buffer): Promise<AsyncDisposable & { readonly url: string }> {
  const server = createServer((socket) => {
    socket.on('error', () => undefined);
    socket.resume();
    socket.write(greeting);
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  return {
    url: `amqp://guest:very-secret@127.0.0.1:${(server.address() as AddressInfo).port}`,
    async [Symbol.asyncDispose]() {
      server.close();
      await once(server, 'close');
    },
  };
}

function withPassword(password: string): string {
  const url = new URL(AMQP_URL);
  url.password = password;
  return url.href;
}

describe('connecting', () => {
  test('tells the version of the broker and what it can', async () => {
    await using opened = await open([AMQP_URL]);
    await opened.connection.connected({ withinMs: 20_000 });
    expect(opened.connection.isConnected).toBe(true);
    expect(opened.connection.brokerVersion).toMatch(/^\d+\.\d+\.\d+/);
    expect(['classic', 'quorum']).toContain(opened.connection.capabilities?.queueType);
  });

  test('a refused login is said at once, and no password is shown anywhere', async () => {
    await using opened = await open([withPassword('very-secret')]);
    const refused = opened.connection.connected({ withinMs: 20_000 });
    await expect(refused).rejects.toMatchObject({
      code: 'broker-refused-login',
      facts: { user: new URL(AMQP_URL).username, reason: 'the user or the password is wrong' },
    });
    await expect(opened.connection.connected({ withinMs: 20_000 })).rejects.not.toThrow(/very-secret/);
    expect(opened.lines.join('')).toContain('broker cannot be reached');
    expect(opened.lines.join('')).not.toContain('very-secret');
  });

  test('an unknown virtual host is said to be one', async () => {
    const url = new URL(AMQP_URL);
    url.pathname = '/no%2Fsuch';
    await using opened = await open([url.href]);
    await expect(opened.connection.connected({ withinMs: 20_000 })).rejects.toMatchObject({
      code: 'broker-refused-login',
      facts: { reason: expect.stringContaining('no such virtual host') },
    });
  });

  test('a port that speaks something else is said to be one', async () => {
    await using http = await openForeignServer(Buffer.from('HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n'));
    await using opened = await open([http.url]);
    await expect(opened.connection.connected({ withinMs: 1_000 })).rejects.toMatchObject({
      code: 'broker-unavailable',
      facts: { reason: expect.stringMatching(/does not speak AMQP/) },
    });
    expect(opened.lines.join('')).not.toContain('very-secret');
  });

  test('TLS to a plain port is said to be that', async () => {
    await using opened = await open([AMQP_URL.replace('amqp:', 'amqps:')]);
    await expect(opened.connection.connected({ withinMs: 500 })).rejects.toMatchObject({
      code: 'broker-unavailable',
      facts: { reason: expect.stringContaining('TLS') },
    });
  });

  test.each([{ urls: [] }, { urls: ['http://127.0.0.1'] }, { heartbeatSeconds: 0 }])(
    'is not begun with %j',
    async (wrong) => {
      const { urls = [AMQP_URL], ...options } = wrong as Partial<AmqpOptions>;
      await expect(open(urls, options)).rejects.toMatchObject({ code: 'config-invalid' });
    },
  );

  test('the same failure again is not logged again, also where several servers fail in turn', async () => {
    await using opened = await open(['amqp://127.0.0.1:1', 'amqp://127.0.0.1:2']);
    await expect(opened.connection.connected({ withinMs: 1_000 })).rejects.toMatchObject({
      code: 'broker-unavailable',
    });
    expect(opened.lines.filter((line) => line.includes('broker cannot be reached'))).toHaveLength(2);
  });

  test('goes on to the next server where one does not answer', async () => {
    await using opened = await open(['amqp://127.0.0.1:1', AMQP_URL, 'amqp://127.0.0.1:2']);
    await opened.connection.connected({ withinMs: 20_000 });
    expect(opened.connection.isConnected).toBe(true);
  });

  test('takes several servers in random order, so that a fleet spreads over them', async () => {
    await using first = await FaultyProxy.open(AMQP_URL);
    await using second = await FaultyProxy.open(AMQP_URL);
    const urls = [first.urlOf(AMQP_URL), second.urlOf(AMQP_URL)];
    await Promise.all(Array.from({ length: 20 }, async () => await broker.connect({ urls })));
    // All twenty at one of two comes about once in half a million runs.
    expect(first.accepted).toBeGreaterThan(0);
    expect(second.accepted).toBeGreaterThan(0);
    expect(first.accepted + second.accepted).toBe(20);
  });
});

describe('a lost connection', () => {
  test('comes back by itself, each time', async () => {
    await using proxy = await FaultyProxy.open(AMQP_URL);
    await using opened = await open([proxy.urlOf(AMQP_URL)]);
    const { connection } = opened;
    for (let round = 1; round <= 3; round += 1) {
      await connection.connected({ withinMs: 20_000 });
      proxy.cut();
      await eventually(() => expect(connection.reconnects).toBe(round));
    }
  });

  test('is made again when the broker closes it in the same breath in which it opens it', async () => {
    await using proxy = await FaultyProxy.open(AMQP_URL);
    proxy.append(OPEN_OK, CLOSE);
    await using opened = await open([proxy.urlOf(AMQP_URL)]);
    const { connection } = opened;
    await eventually(async () => {
      await connection.connected({ withinMs: 5_000 });
      const channel = await connection.model?.createChannel();
      expect(channel).toBeDefined();
      await channel?.close();
    });
    expect(proxy.accepted).toBe(2);
    expect(opened.lines.filter((line) => line.includes('"broker connected"'))).toHaveLength(1);
  });

  test('knows of an alarm that the broker tells in the same breath in which it opens the connection', async () => {
    await using proxy = await FaultyProxy.open(AMQP_URL);
    proxy.append(OPEN_OK, BLOCKED);
    await using opened = await open([proxy.urlOf(AMQP_URL)]);
    await opened.connection.connected({ withinMs: 5_000 });
    expect(opened.connection.isBlocked).toBe(true);
  });

  test('waits longer between attempts while the broker is away', async () => {
    await using proxy = await FaultyProxy.open(AMQP_URL);
    await using opened = await open([proxy.urlOf(AMQP_URL)]);
    await opened.connection.connected({ withinMs: 20_000 });
    proxy.refuse();
    proxy.cut();
    const before = proxy.accepted;
    await systemClock.sleep(1_000);
    // Half of 20, 40, 80, 160 and then 100 ms each: about a dozen, where a loop without waits makes hundreds.
    expect(proxy.accepted - before).toBeGreaterThan(3);
    expect(proxy.accepted - before).toBeLessThan(20);
    proxy.accept();
    await opened.connection.connected({ withinMs: 20_000 });
  });

  test('a link that passes nothing on is given up after some heartbeats', async () => {
    await using proxy = await FaultyProxy.open(AMQP_URL);
    await using opened = await open([proxy.urlOf(AMQP_URL)], { heartbeatSeconds: 1 });
    await opened.connection.connected({ withinMs: 20_000 });
    proxy.pause();
    await eventually(() => expect(opened.connection.isConnected).toBe(false));
    proxy.resume();
    await opened.connection.connected({ withinMs: 20_000 });
  });

  test('stopping over a link that passes nothing on ends at its deadline', async () => {
    await using proxy = await FaultyProxy.open(AMQP_URL);
    await using opened = await open([proxy.urlOf(AMQP_URL)]);
    await opened.connection.connected({ withinMs: 20_000 });
    proxy.pause();
    const beganMs = systemClock.monotonicMs();
    await opened.connection.stop(inMs(200));
    expect(systemClock.monotonicMs() - beganMs).toBeLessThan(4_000);
    expect(opened.connection.isConnected).toBe(false);
  });

  test('stopping while it cannot connect ends at once, and twice is harmless', async () => {
    await using opened = await open(['amqp://127.0.0.1:1'], { reconnectMinMs: 60_000, reconnectMaxMs: 60_000 });
    await eventually(() => expect(opened.connection.failure).toBeDefined());
    const waiting = opened.connection.connected({ withinMs: 60_000 }).catch(codeOf);
    const beganMs = systemClock.monotonicMs();
    await opened.connection.stop(inMs(5_000));
    await opened.connection.stop(inMs(5_000));
    expect(await waiting).toBe('broker-unavailable');
    expect(systemClock.monotonicMs() - beganMs).toBeLessThan(4_000);
  });
});

describe('a supervised channel', () => {
  test('is made again when it dies alone, and its connection lives on', async () => {
    const connection = await broker.connect();
    let setups = 0;
    const channel = connection.channel({
      name: 'test',
      setup: async (made) => {
        setups += 1;
        await made.prefetch(7);
      },
    });
    await channel.start();
    await eventually(() => expect(channel.generation).toBe(1));
    const first = channel.current();
    first?.publish(`${broker.prefix}.no-such-exchange`, '', Buffer.from('x'));
    await eventually(() => expect(channel.generation).toBe(2));
    expect(channel.current()).not.toBe(first);
    expect(setups).toBe(2);
    expect(connection.reconnects).toBe(0);
    await channel.stop(inMs(1_000));
    expect(channel.current()).toBeUndefined();
  });

  test('is made again after a failed setup, without spinning', async () => {
    const connection = await broker.connect();
    const missing = broker.queueName();
    let setups = 0;
    const channel = connection.channel({
      name: 'test',
      setup: async (made) => {
        setups += 1;
        await made.checkQueue(missing);
      },
    });
    await channel.start();
    await systemClock.sleep(500);
    expect(channel.current()).toBeUndefined();
    expect(setups).toBeLessThan(50);
    await broker.raw.assertQueue(missing);
    await eventually(() => expect(channel.current()).toBeDefined());
    await channel.stop(inMs(1_000));
  });
});
