/** What a worker tells Kubernetes of its pod, against a server that plays the API server's part over TLS. */
import { afterAll, beforeAll, beforeEach, expect, test } from '@jest/globals';
import { once } from 'node:events';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { createServer } from 'node:https';
import type { Server } from 'node:https';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createPodDeletionCost, deletionCost } from '../../services/worker/pod-deletion-cost.ts';
import { systemClock } from '../../shared/time/clock.ts';
import { createAuthority } from '../support/certificates.ts';
import { partDeps } from '../support/core.ts';
import { eventually } from '../support/eventually.ts';
import { listLogger } from '../support/runner.ts';
import type { LoggedLine } from '../support/runner.ts';

interface Asked {
  readonly line: string;
  readonly authorization: string | undefined;
  readonly type: string | undefined;
  readonly body: string;
}

let dir = '';
let server: Server;
let asked: Asked[] = [];
let status = 200;
beforeAll(async () => {
  dir = await mkdtemp(join(tmpdir(), 'warren-account-'));
  const authority = await createAuthority(dir, 'cluster');
  const { cert, key } = await authority.issue('api', { name: 'kubernetes', hosts: ['127.0.0.1'] });
  await writeFile(join(dir, 'ca.crt'), authority.ca);
  await writeFile(join(dir, 'namespace'), 'jobs');
  server = createServer({ cert, key }, (request, response) => {
    let body = '';
    request.setEncoding('utf8').on('data', (chunk: string) => (body += chunk));
    request.on('end', () => {
      const { method, url, headers } = request;
      asked.push({
        line: `${method} ${url}`,
        authorization: headers.authorization,
        type: headers['content-type'],
        body,
      });
      response.writeHead(status, { 'content-type': 'application/json' }).end('{}');
    });
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
});
afterAll(async () => {
  server.close();
  await rm(dir, { recursive: true });
});
beforeEach(async () => {
  asked = [];
  status = 200;
  await writeFile(join(dir, 'token'), 'first-token\n');
});

const costs = (): unknown[] =>
  asked.map(({ body }) => (JSON.parse(body) as { metadata: { annotations: unknown } }).metadata.annotations);
const cost = (value: string): unknown => ({ 'controller.kubernetes.io/pod-deletion-cost': value });

async function running(work: (set: (load: number) => void, lines: LoggedLine[]) => Promise<void>): Promise<void> {
  let load = 0;
  const lines: LoggedLine[] = [];
  const { port } = server.address() as AddressInfo;
  const loop = createPodDeletionCost(
    { ...partDeps, log: listLogger(lines), load: () => ({ running: load, slots: 8 }) },
    { pod: 'worker-7f9c', apiUrl: `https://127.0.0.1:${port}`, accountDir: dir, intervalMs: 20 },
  );
  await loop.start();
  try {
    await work((next) => (load = next), lines);
  } finally {
    await loop.stop(systemClock.monotonicMs() + 5_000);
  }
}

test('an idle worker costs nothing, a full one 100, in quarters', () => {
  const of = (count: number): number => deletionCost({ running: count, slots: 8 });
  expect([0, 1, 2, 3, 8, 12].map((count) => of(count))).toEqual([0, 25, 25, 50, 100, 100]);
  expect(deletionCost({ running: 0, slots: 0 })).toBe(0);
});

test('the pod is annotated when its cost changes, with the token as it is then, and not in between', async () => {
  await running(async (set) => {
    await eventually(() => expect(costs()).toEqual([cost('0')]));
    expect(asked[0]).toMatchObject({
      line: 'PATCH /api/v1/namespaces/jobs/pods/worker-7f9c',
      authorization: 'Bearer first-token',
      type: 'application/merge-patch+json',
    });
    await writeFile(join(dir, 'token'), 'second-token');
    set(8);
    await eventually(() => expect(costs()).toEqual([cost('0'), cost('100')]));
    set(7);
    await systemClock.sleep(200); // ten rounds: 7 of 8 cost as much
    expect(asked.map(({ authorization }) => authorization)).toEqual(['Bearer first-token', 'Bearer second-token']);
  });
});

test('a service account without the right is told what it lacks, and asked for again; its token is in no line', async () => {
  status = 403;
  await running(async (_set, lines) => {
    const told = (): string => lines.map(({ message, fields }) => `${message} ${String(fields['err'])}`).join('\n');
    await eventually(() => expect(told()).toContain('needs the verb patch on pods'));
    status = 200;
    await eventually(() => expect(asked.length).toBeGreaterThan(1));
    expect(told()).not.toContain('first-token');
  });
});
