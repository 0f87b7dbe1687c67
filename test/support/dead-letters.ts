/** A real dead-letter-handler beside a real front door, with ways to make tasks die as a worker and its broker would. */
import type { GetMessage, Options } from 'amqplib';
import { randomInt } from 'node:crypto';
import { createDeadLetterHandler } from '../../services/dead-letter-handler/service.ts';
import { encodeInvitation } from '../../shared/amqp/message.ts';
import { applyTopology } from '../../shared/amqp/topology-apply.ts';
import { topologyOf } from '../../shared/amqp/topology.ts';
import { loadConfig } from '../../shared/config/load.ts';
import { silentLogger } from '../../shared/observability/silent-log.ts';
import { systemClock } from '../../shared/time/clock.ts';
import { AMQP_URL } from './broker.ts';
import { aDeath, addTask, openWorker, rows } from './core.ts';
import type { NewTask } from './core.ts';
import { eventually } from './eventually.ts';
import { openFrontDoor } from './front-door.ts';
import type { FrontDoorOptions, TestFrontDoor } from './front-door.ts';
import { aType } from './task-api.ts';

/** An answer of the Dead Letter API. */
export interface ApiAnswer {
  readonly status: number;
  readonly type: string;
  /** The bytes as they came. */
  readonly text: string;
  readonly json: Record<string, unknown>;
}

/** A row of `dead_letters` as tests look at it. */
export interface LetterRow {
  readonly id: string;
  readonly kind: string;
  readonly state: string;
  readonly reason: string;
  readonly task_id: string | null;
  readonly type: string | null;
  readonly queue: string | null;
  readonly attempt: number | null;
  readonly recorded_at: Date | null;
  readonly error_code: string | null;
  readonly error_message: string | null;
  readonly exchange: string | null;
  readonly routing_key: string | null;
  readonly body: Buffer | null;
  readonly properties: Record<string, unknown> | null;
  readonly headers: Record<string, unknown> | null;
  readonly x_death: unknown;
  readonly closed_by: string | null;
  readonly group_id: string | null;
}

/** One running handler. */
export interface TestHandler extends AsyncDisposable {
  readonly url: string;
  get(path: string, headers?: Readonly<Record<string, string>>): Promise<ApiAnswer>;
  post(path: string, body: unknown, headers?: Readonly<Record<string, string>>): Promise<ApiAnswer>;
}

/** Settings of a handler. */
export type HandlerEnv = Readonly<Record<string, string>>;

/** The place of a test file. */
export interface DeadLetterDesk extends AsyncDisposable {
  readonly door: TestFrontDoor;
  /** Starts a handler; it is stopped with the desk unless it was before. `url` is another way to the database. */
  handler(env?: HandlerEnv): Promise<TestHandler>;
  /** Rows of `dead_letters` where `where` (SQL) holds, oldest first. */
  letters(where?: string): Promise<LetterRow[]>;
  /** The only letter where `where` holds, waiting for it. */
  letter(where: string): Promise<LetterRow>;
  /** Makes a new task die of its first attempt; its invitation is not rejected yet. */
  deadTask(task?: NewTask): Promise<string>;
  /** Claims the task and lets the attempt fail for good. */
  kill(taskId: string): Promise<void>;
  /** Brings an invitation into the work queue and rejects it there, as a worker does. */
  rejectInvitation(taskId: string, generation?: number): Promise<void>;
  /** The next message of the work queue, taken off it. */
  nextInvitation(): Promise<GetMessage>;
  /** Publishes and waits for the confirm. */
  publish(exchange: string, routingKey: string, body: string | Buffer, options?: Options.Publish): Promise<void>;
  /** Rejects the next message of a queue into its dead-letter exchange. */
  reject(queue: string): Promise<void>;
  /** Resolves when nothing waits in the dead-letter queue; what was delivered may be unanswered. */
  emptied(): Promise<void>;
  /** Stops every handler. Throws where the dead-letter queue is then not empty, unanswered deliveries included. */
  drained(): Promise<void>;
}

/** Opens the desk: a front door that knows `test.noop` (queue `default`) and its database. */
export async function openDesk(options: FrontDoorOptions = {}): Promise<DeadLetterDesk> {
  const door = await openFrontDoor(
    [
      aType('test.noop', { queue: 'default' }),
      aType('test.strict', {
        queue: 'default',
        inputSchema: { type: 'object', properties: { to: { type: 'string' } }, required: ['to'] },
      }),
    ],
    options,
  );
  const { raw, prefix } = door.broker;
  const workQueue = door.names.queue('default');
  const connection = await door.broker.connect();
  const queueType = connection.capabilities?.queueType ?? 'classic';
  await applyTopology(
    { connection, clock: systemClock, log: silentLogger },
    topologyOf({ prefix, queues: ['default'], queueType }),
  );
  const db = door.db.database;
  const open = new Set<TestHandler>();

  const desk: DeadLetterDesk = {
    door,
    async handler(env = {}) {
      return await startHandler({ DATABASE_URL: door.db.url, WARREN_PREFIX: prefix, ...env }, open);
    },
    async letters(where = 'true') {
      return await rows<LetterRow>(db, `select * from dead_letters where ${where} order by id`);
    },
    async letter(where) {
      return await eventually(
        async () => {
          const found = await desk.letters(where);
          if (found.length !== 1) throw new Error(`${found.length} letters where ${where}`);
          return found[0] as LetterRow;
        },
        { withinMs: 50_000 },
      );
    },
    async deadTask(task = {}) {
      const id = await addTask(db, task);
      await desk.kill(id);
      return id;
    },
    async kill(taskId) {
      const worker = await openWorker(db);
      const [row] = await rows<{ generation: number }>(db, 'select generation from tasks where id = $1', taskId);
      const claim = await worker.win(taskId, row?.generation ?? 1);
      await worker.settles.settle(claim, aDeath({ error: { type: 'DiskFull', message: 'no space', causes: [] } }));
    },
    async rejectInvitation(taskId, generation = 1) {
      const body = encodeInvitation({ taskId, type: 'test.noop', generation });
      await desk.publish(door.names.work, 'default', body, { messageId: taskId, priority: 4 });
      await desk.reject(workQueue);
    },
    async nextInvitation() {
      return await door.next(workQueue);
    },
    async publish(exchange, routingKey, body, properties = {}) {
      await new Promise<void>((resolve, reject) => {
        raw.publish(exchange, routingKey, Buffer.from(body), { persistent: true, ...properties }, (refusal: unknown) =>
          refusal === null ? resolve() : reject(new Error('the broker refused')),
        );
      });
    },
    async reject(queue) {
      const message = await eventually(async () => {
        const got = await raw.get(queue);
        if (got === false) throw new Error(`nothing in ${queue}`);
        return got;
      });
      raw.reject(message, false);
    },
    async emptied() {
      await eventually(async () => {
        const { messageCount } = await raw.checkQueue(door.names.dead);
        if (messageCount !== 0) throw new Error(`${messageCount} messages wait`);
      });
    },
    async drained() {
      for (const handler of open) await handler[Symbol.asyncDispose]();
      const { messageCount } = await raw.checkQueue(door.names.dead);
      if (messageCount !== 0) throw new Error(`${messageCount} messages are left`);
    },
    async [Symbol.asyncDispose]() {
      for (const handler of open) await handler[Symbol.asyncDispose]();
      await raw.deleteQueue(workQueue);
      await door[Symbol.asyncDispose]();
    },
  };
  return desk;
}

async function startHandler(env: HandlerEnv, open: Set<TestHandler>): Promise<TestHandler> {
  const { config } = loadConfig({
    user: 'dead-letter-handler',
    env: {
      AMQP_URL,
      WARREN_HTTP_DEAD_LETTER_HANDLER_PORT: '0',
      WARREN_AMQP_RECONNECT_MIN_MS: '50',
      WARREN_AMQP_RECONNECT_MAX_MS: '300',
      WARREN_POSTGRES_CONNECT_TIMEOUT_MS: '1000',
      ...env,
    },
  });
  const service = await createDeadLetterHandler({
    config,
    log: silentLogger,
    clock: systemClock,
    random: () => randomInt(2 ** 32) / 2 ** 32,
    requestStop: () => undefined,
  });
  await service.part.start();
  const url = String(service.describe?.()['address']);

  async function ask(method: string, path: string, init: RequestInit): Promise<ApiAnswer> {
    const answer = await fetch(`${url}${path}`, { method, ...init });
    const text = await answer.text();
    const type = answer.headers.get('content-type') ?? '';
    return {
      status: answer.status,
      type,
      text,
      json: type.includes('json') ? (JSON.parse(text) as Record<string, unknown>) : {},
    };
  }

  const handler: TestHandler = {
    url,
    get: async (path, headers = {}) => await ask('GET', path, { headers }),
    post: async (path, body, headers = {}) =>
      await ask('POST', path, {
        headers: { 'content-type': 'application/json', ...headers },
        body: typeof body === 'string' ? body : JSON.stringify(body),
      }),
    async [Symbol.asyncDispose]() {
      open.delete(handler);
      await service.part.stop(systemClock.monotonicMs() + 3_000);
    },
  };
  open.add(handler);
  await eventually(async () => {
    const { status, text } = await handler.get('/readyz');
    if (status !== 200) throw new Error(`not ready: ${text}`);
  });
  return handler;
}
