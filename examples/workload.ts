/**
 * The sample workload: over 400 tasks of real work on real files, with the faults that real work meets. Used by the demo.
 */
import { createServer } from 'node:http';
import type { Server } from 'node:http';
import type { AddressInfo } from 'node:net';

/** One task of the workload, as it is submitted over HTTP. */
export interface WorkloadTask {
  readonly type: string;
  readonly input: unknown;
  readonly priority?: number;
  readonly queue?: string;
  readonly delayMs?: number;
  readonly deadline?: string;
  readonly maxAttempts?: number;
  readonly tags?: readonly string[];
  readonly businessKey?: string;
}

/** The workload, and what is to come of it. */
export interface Workload {
  readonly tasks: readonly WorkloadTask[];
  /** Submissions that must be refused, with the field that the answer must name. */
  readonly refused: readonly { readonly task: WorkloadTask; readonly field: string }[];
  /** Business key of the task that waits until it is cancelled. */
  readonly cancelledKey: string;
  /** Business key of the picture that cannot be read. */
  readonly poisonKey: string;
}

/** Queue of the workload that nobody works on: what waits there past its deadline expires. */
export const PARKED_QUEUE = 'parked';

const PICTURES = ['gimp.png', 'ffox.png', '7zip.png'] as const;
const TEXTS = ['github.csv', 'airports.csv', 'seattle-weather.csv', 'stocks.csv', 'species.csv'] as const;

/** Makes the workload. `folder` is this run's own below the samples' directory, `poison` a source that is no picture. */
export function createWorkload(options: {
  readonly folder: string;
  readonly poison: string;
  /** `http://127.0.0.1:41234`, see `startReceiver`. */
  readonly receiverUrl: string;
  readonly now: Date;
}): Workload {
  const { folder, poison, receiverUrl, now } = options;
  const cancelledKey = `${folder}/cancelled`;
  const poisonKey = `${folder}/poison`;
  const tasks: WorkloadTask[] = [
    { type: 'report.csv', input: { groupBy: 'hour', output: folder }, priority: 7, tags: ['report'] },
    { type: 'report.csv', input: { groupBy: 'distance', output: folder }, priority: 7, tags: ['report'] },
    ...times(150, (index) => ({
      type: 'image.thumbnail',
      input: { source: pick(PICTURES, index), width: 32 + index, output: `${folder}/thumbnail-${index}.webp` },
    })),
    {
      type: 'image.thumbnail',
      input: { source: poison, width: 64, output: `${folder}/poison.webp` },
      businessKey: poisonKey,
      tags: ['poison'],
    },
    ...times(60, (index) => ({ type: 'text.digest', input: { source: pick(TEXTS, index), rounds: 5 }, priority: 3 })),
    ...times(150, (index) => ({
      type: 'notify.webhook',
      input: { url: `${receiverUrl}/hook`, event: 'export.ready', payload: { user: index } },
      businessKey: `user-${index}`,
    })),
    ...times(40, (index) => ({ type: 'http.request', input: { url: `${receiverUrl}/page/${index}` } })),
    ...times(20, () => ({ type: 'demo.slow', input: { ms: 200 }, priority: 2 })),
    { type: 'demo.slow', input: { ms: 60_000 }, priority: 2, tags: ['meets its timeout'] },
    { type: 'demo.slow', input: { ms: 60_000 }, priority: 2, delayMs: 3_600_000, businessKey: cancelledKey },
    {
      type: 'demo.slow',
      input: { ms: 200 },
      queue: PARKED_QUEUE,
      deadline: new Date(now.getTime() + 4_000).toISOString(),
      tags: ['nobody works on its queue'],
    },
  ];
  const refused = [
    {
      task: { type: 'image.thumbnail', input: { source: 'gimp.png', width: 'wide', output: 'a.png' } },
      field: 'input.width',
    },
    { task: { type: 'image.blur', input: {} }, field: 'type' },
    { task: { type: 'demo.slow', input: { ms: 200 }, priority: 10 }, field: 'priority' },
  ];
  return { tasks, refused, cancelledKey, poisonKey };
}

/** A server that takes webhooks and serves pages. */
export interface Receiver {
  readonly url: string;
  readonly host: string;
  /** From now on `/orders` is there; before, it is answered 404. */
  openOrders(): void;
  close(): Promise<void>;
}

/** Starts one that fails now and then: every seventh call gets a 503, except below `/orders`. */
export async function startReceiver(): Promise<Receiver> {
  let calls = 0;
  let hasOrders = false;
  const server: Server = createServer((request, response) => {
    request.resume();
    if (request.url === '/orders') {
      response.writeHead(hasOrders ? 200 : 404).end();
      return;
    }
    calls += 1;
    if (calls % 7 === 0) response.writeHead(503, { 'retry-after': '1' }).end('busy');
    else response.writeHead(200, { 'content-type': 'text/plain' }).end('ok');
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const { port } = server.address() as AddressInfo;
  return {
    url: `http://127.0.0.1:${port}`,
    host: `127.0.0.1:${port}`,
    openOrders: () => {
      hasOrders = true;
    },
    close: async () => {
      server.closeAllConnections();
      await new Promise<void>((resolve) => server.close(() => resolve()));
    },
  };
}

function times<T>(count: number, make: (index: number) => T): T[] {
  return Array.from({ length: count }, (_none, index) => make(index));
}

function pick<T>(items: readonly [T, ...T[]], index: number): T {
  return items[index % items.length] ?? items[0];
}
