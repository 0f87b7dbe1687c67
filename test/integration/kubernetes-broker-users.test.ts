/** The users of the broker that the manifests for Kubernetes make, on a real broker: enough for each service, and no more. */
// oxlint-disable jest/no-standalone-expect -- because testWith declares the tests
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { randomUUID } from 'node:crypto';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import amqp from 'amqplib';
import { readDocuments } from '../../scripts/k8s/documents.ts';
import type { K8sObject } from '../../scripts/k8s/documents.ts';
import { call } from '../../scripts/call.ts';
import { warren } from '../support/cli-io.ts';
import { AMQP_URL, MANAGEMENT_URL } from '../support/broker.ts';
import { eventually } from '../support/eventually.ts';
import { openFleet } from '../support/fleet.ts';
import type { Fleet } from '../support/fleet.ts';
import { ROOT } from '../support/source-files.ts';
import { testWith } from '../support/tools.ts';

const FILES = [
  'k8s/components/rabbitmq-operator/users.yaml',
  'k8s/components/publisher/publisher.yaml',
  'k8s/overlays/production/pools/broker-users.yaml',
];
const id = randomUUID().slice(0, 8);
/** What breaks whoever puts it into a URL unencoded, or encodes it twice. */
const VHOST = `a/b ünï ${id}`;
const PASSWORD = String.raw`p@:/#%?&\_$%2F`;
const management = { name: "RabbitMQ's management API", path: MANAGEMENT_URL };

interface Rights {
  readonly userReference: { readonly name: string };
  readonly permissions: { readonly exchange?: string; readonly write: string; readonly read: string };
}

const userOf = (name: string): string => `${name}-${id}`;
const path = (...parts: readonly string[]): string => parts.map((part) => encodeURIComponent(part)).join('/');

/** Asks the management API as the administrator, or as another. */
async function manage(method: string, where: string, body?: unknown, who?: string): Promise<Response> {
  const { username, password } = new URL(AMQP_URL);
  const credentials = who ?? `${decodeURIComponent(username)}:${decodeURIComponent(password)}`;
  const base = new URL(MANAGEMENT_URL ?? '');
  return await fetch(`${base.origin}/api/${where}`, {
    method,
    headers: {
      authorization: `Basic ${Buffer.from(credentials).toString('base64')}`,
      'content-type': 'application/json',
    },
    ...(body === undefined ? {} : { body: JSON.stringify(body) }),
  });
}

async function must(method: string, where: string, body?: unknown): Promise<void> {
  const answer = await manage(method, where, body);
  if (!answer.ok) throw new Error(`${method} ${where}: ${answer.status} ${await answer.text()}`);
}

/** Does what the operator does with a document. */
async function apply({ kind, metadata, spec }: K8sObject): Promise<void> {
  if (kind === 'User') {
    const { tags = [] } = spec as { readonly tags?: readonly string[] };
    return await must('PUT', path('users', userOf(metadata.name)), { password: PASSWORD, tags: tags.join(',') });
  }
  const { userReference, permissions } = spec as Rights;
  const topic = kind === 'TopicPermission' ? 'topic-permissions' : 'permissions';
  await must('PUT', path(topic, VHOST, userOf(userReference.name)), permissions);
}

let documents: readonly K8sObject[] = [];
let fleet: Fleet;
let folder: string;

const broker = new URL(AMQP_URL);
const vhostUrl = `amqp://${broker.host}/${encodeURIComponent(VHOST)}`;
const urlFor = (user: string): string =>
  `amqp://${encodeURIComponent(userOf(user))}:${encodeURIComponent(PASSWORD)}@${broker.host}/${encodeURIComponent(VHOST)}`;

/** As the manifests configure a service: user and password from files, beside the URL. */
async function environmentOf(
  user: string,
  more: Readonly<Record<string, string>> = {},
): Promise<Record<string, string>> {
  const file = join(folder, user);
  await writeFile(`${file}-username`, userOf(user));
  await writeFile(`${file}-password`, `${PASSWORD}\n`);
  return { WARREN_AMQP_USER_FILE: `${file}-username`, WARREN_AMQP_PASSWORD_FILE: `${file}-password`, ...more };
}

const DECLARES_NOTHING = { WARREN_AMQP_DECLARE_TOPOLOGY: 'false' };

/** Publishes with a confirm; gives the broker's refusal, if any. */
async function publishAs(user: string, exchange: string, routingKey: string): Promise<string | undefined> {
  const connection = await amqp.connect(urlFor(user));
  connection.on('error', () => undefined);
  const channel = await connection.createConfirmChannel();
  const refused = new Promise<string>((resolve) => channel.once('error', (error: Error) => resolve(error.message)));
  const confirmed = new Promise<undefined>((resolve) => {
    channel.publish(
      exchange,
      routingKey,
      Buffer.from('{}'),
      { contentType: 'application/json' },
      (refusal: unknown) => {
        if (refusal === null || refusal === undefined) resolve(undefined);
      },
    );
  });
  const answer = await Promise.race([refused, confirmed]);
  await connection.close();
  return answer;
}

async function consumeAs(user: string, queue: string): Promise<string | undefined> {
  const connection = await amqp.connect(urlFor(user));
  connection.on('error', () => undefined);
  const channel = await connection.createChannel();
  channel.on('error', () => undefined);
  const answer = await channel
    .consume(queue, () => undefined)
    .then(
      () => undefined,
      (error: Error) => error.message,
    );
  await connection.close();
  return answer;
}

beforeAll(async () => {
  if (MANAGEMENT_URL === undefined) return;
  folder = await mkdtemp(join(tmpdir(), 'warren-users-'));
  documents = (
    await Promise.all(FILES.map(async (file) => readDocuments(await readFile(join(ROOT, file), 'utf8'))))
  ).flat();
  await must('PUT', path('vhosts', VHOST));
  const admin = decodeURIComponent(broker.username);
  await must('PUT', path('permissions', VHOST, admin), { configure: '.*', write: '.*', read: '.*' });
  const isOfTopics = ({ kind }: K8sObject): boolean => kind === 'TopicPermission';
  for (const document of documents) if (!isOfTopics(document)) await apply(document);
  fleet = await openFleet({
    producers: 0,
    workers: 0,
    env: {
      WARREN_PREFIX: 'warren',
      AMQP_URL: vhostUrl,
      WARREN_PRODUCER_DECLARED_QUEUES: 'default,high,reports,exports',
    },
  });
  const env = { ...fleet.environment(), ...(await environmentOf('warren-topology')) };
  const applied = await warren(['topology', 'apply', '--json'], { env });
  if (applied.exitCode !== 0) throw new Error(applied.stderr);
  // The broker takes them once the exchange is there; the operator tries until then.
  for (const document of documents) if (isOfTopics(document)) await apply(document);
});

afterAll(async () => {
  if (MANAGEMENT_URL === undefined) return;
  await fleet[Symbol.asyncDispose]();
  await must('DELETE', path('vhosts', VHOST));
  for (const { kind, metadata } of documents) {
    if (kind === 'User') await must('DELETE', path('users', userOf(metadata.name)));
  }
  await rm(folder, { recursive: true });
});

describe('users of the broker', () => {
  testWith(
    management,
    'each service does its work with the rights that the manifests give it, and the topology is the job of its own user',
    async () => {
      const producer = await fleet.start('producer', await environmentOf('warren-producer')).ready(9_000);
      const handler = await fleet
        .start('dead-letter-handler', await environmentOf('warren-dead-letter-handler', DECLARES_NOTHING))
        .ready(9_000);
      const worker = await fleet
        .start('worker', {
          ...(await environmentOf('warren-worker-default', DECLARES_NOTHING)),
          WARREN_QUEUES: 'default:4',
        })
        .ready(9_000);
      expect(await fleet.run()).toBe('succeeded');
      // A retry is invited anew by the producer; a death is rejected by the worker, and its letter gets the broker's evidence.
      expect(await fleet.run({ failures: 1 })).toBe('succeeded');
      expect(await fleet.run({ failures: 9 })).toBe('dead');
      await eventually(async () => {
        expect(await fleet.deadLetters()).toMatchObject([{ kind: 'task', recorded_at: expect.any(Date) }]);
      });

      // What is refused at the front door comes to the dead-letter-handler by the broker.
      expect(await publishAs('orders', 'warren.tasks', 'orders.unheard-of')).toBeUndefined();
      await eventually(async () => {
        const { body } = await call(handler.url, 'GET', '/v1/dead-letters');
        expect(JSON.stringify(body)).toContain('orders.unheard-of');
      });
      for (const process of [producer, handler, worker]) {
        const said = process.lines.map((line) => JSON.stringify(line)).join('\n') + process.stray;
        for (const form of [PASSWORD, encodeURIComponent(PASSWORD), Buffer.from(PASSWORD).toString('base64')]) {
          expect(said.includes(form)).toBe(false);
        }
      }
    },
    120_000,
  );

  testWith(management, 'a publisher publishes tasks of its types alone, and nothing else', async () => {
    expect(await publishAs('orders', 'warren.tasks', 'orders.pay')).toBeUndefined();
    expect(await publishAs('orders', 'warren.tasks', 'billing.charge')).toMatch(/ACCESS_REFUSED/);
    expect(await publishAs('orders', 'warren.work', 'default')).toMatch(/ACCESS_REFUSED/);
    expect(await publishAs('orders', '', 'warren.q.default')).toMatch(/ACCESS_REFUSED/);
    expect(await consumeAs('orders', 'warren.ingress')).toMatch(/ACCESS_REFUSED/);
  });

  testWith(management, 'a worker reads the queues of its pool alone, and submits nothing', async () => {
    expect(await consumeAs('warren-worker-reports', 'warren.q.exports')).toBeUndefined();
    expect(await consumeAs('warren-worker-default', 'warren.q.high')).toMatch(/ACCESS_REFUSED/);
    expect(await consumeAs('warren-worker-default', 'warren.dead')).toMatch(/ACCESS_REFUSED/);
    expect(await publishAs('warren-worker-default', 'warren.tasks', 'any.type')).toMatch(/ACCESS_REFUSED/);
    expect(await publishAs('warren-worker-default', 'warren.dlx', 'any')).toMatch(/ACCESS_REFUSED/);
  });

  testWith(management, 'KEDA sees what waits and what is under way, and can neither read nor write', async () => {
    const raw = await amqp.connect(
      `${broker.protocol}//${broker.username}:${broker.password}@${broker.host}/${encodeURIComponent(VHOST)}`,
    );
    const channel = await raw.createConfirmChannel();
    for (let n = 0; n < 3; n += 1) channel.sendToQueue('warren.q.high', Buffer.from('x'));
    await channel.waitForConfirms();
    await channel.prefetch(2);
    await channel.consume('warren.q.high', () => undefined);
    // As KEDA asks: name and password apart, vhost and queue encoded, ready and unacknowledged added up.
    await eventually(async () => {
      const who = `${userOf('warren-keda')}:${PASSWORD}`;
      const answer = await manage('GET', path('queues', VHOST, 'warren.q.high'), undefined, who);
      expect(answer.status).toBe(200);
      expect(await answer.json()).toMatchObject({ messages: 3, messages_unacknowledged: 2 });
    });
    await raw.close();
    expect(await consumeAs('warren-keda', 'warren.q.high')).toMatch(/ACCESS_REFUSED/);
    expect(await publishAs('warren-keda', 'warren.tasks', 'any.type')).toMatch(/ACCESS_REFUSED/);
    expect((await manage('GET', 'users', undefined, `${userOf('warren-keda')}:${PASSWORD}`)).status).toBe(401);
  });

  test('every user of the manifests has permissions, and every permission a user', async () => {
    const all = (
      await Promise.all(FILES.map(async (file) => readDocuments(await readFile(join(ROOT, file), 'utf8'))))
    ).flat();
    const named = (wanted: string): readonly string[] =>
      all
        .filter(({ kind }) => kind === wanted)
        .map(({ metadata }) => metadata.name)
        .toSorted((a, b) => a.localeCompare(b));
    expect(named('User')).toEqual(named('Permission'));
    expect(named('User').length).toBeGreaterThan(6);
  });
});
