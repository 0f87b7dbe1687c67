/**
 * The client that publishes over AMQP: persistent, mandatory, confirmed, each message under an id, so that it may be sent again. It
 * connects at the first publish and again whenever the connection was lost.
 */
import type { ChannelModel, ConfirmChannel, Options } from 'amqplib';
import { InputRefusedError, UnreachableError, WarrenClientError } from './errors.ts';
import { CALL_TIMEOUT_MS } from './http-transport.ts';
import { renderInput } from './input.ts';
import { membersOf, spreadDelayMs } from './options.ts';
import type { CallOptions, EnqueueOptions, SubmissionMembers, SubmissionOptions } from './options.ts';
import { nameOf } from './task-type.ts';
import type { TypeOrName } from './task-type.ts';
import { startLimit } from './time.ts';
import type { ClientDeps, Limit } from './time.ts';
import { traceOf } from './trace.ts';
import type { TraceOptions } from './trace.ts';

/** How the broker is reached. */
export interface AmqpOptions {
  /** `amqp://user:password@host:port/vhost`. A secret. */
  readonly amqpUrl: string;
  /** For `amqps://`: certificates in PEM to trust, and those to show the broker. Default: the system's, and none. The key is a secret. */
  readonly tls?: { readonly ca?: string; readonly cert?: string; readonly key?: string };
  /** Prefix of the installation's names. Default `warren`. */
  readonly prefix?: string;
  /** Names this program where the broker does not know the user: message ids are counted per publisher. Default `warren-client`. */
  readonly appId?: string;
  /** Messages that may await their confirm at once, 1 to 65 535. Default 1 000. */
  readonly maxUnconfirmed?: number;
}

/** A message that the broker has. Its task is made by Warren, which may refuse it: then it is a dead letter. */
export interface Published {
  /** The `message_id`: the task is found by it as `externalId`. */
  readonly messageId: string;
}

/** One task of `enqueueMany`. */
export interface NewMessage {
  readonly type: TypeOrName;
  readonly input: object;
  readonly options?: SubmissionOptions;
}

interface Open {
  readonly connection: ChannelModel;
  readonly channel: ConfirmChannel;
  /** Message ids that no queue took. */
  readonly returned: Set<string>;
  /** Rejects when the channel or its connection has gone. */
  readonly gone: Promise<never>;
}

const FIRST_BACKOFF_MS = 100;
const LONGEST_BACKOFF_MS = 5_000;
const CLOSE_WITHIN_MS = 5_000;
const MOST_UNCONFIRMED = 1_000;

/** Publishes to the front door of an installation. */
export class AmqpClient {
  readonly #deps: ClientDeps;
  readonly #options: AmqpOptions;
  #opening: Promise<Open> | undefined;
  #unconfirmed = 0;
  #isClosed = false;
  readonly #whenRoom: (() => void)[] = [];

  constructor(deps: ClientDeps, options: AmqpOptions) {
    this.#deps = deps;
    this.#options = options;
  }

  /**
   * Publishes a task; when it resolves, the broker has it on disk. Sent again by itself under the same message id until it is
   * confirmed. Throws `InputRefusedError` before anything is sent, and `UnreachableError`: `broker-unavailable`, `unroutable`.
   */
  async enqueue<Input extends object>(
    type: TypeOrName<Input>,
    input: Input,
    options: EnqueueOptions = {},
  ): Promise<Published> {
    const body = Buffer.from(renderInput(input));
    const messageId = options.idempotencyKey ?? this.#deps.newKey();
    const ids = { messageId, appId: this.#options.appId ?? 'warren-client' };
    const properties = propertiesOf(membersOf(options), ids, await traceOf(options));
    const { signal, timeoutMs = CALL_TIMEOUT_MS } = options;
    signal?.throwIfAborted();
    const limit = startLimit(this.#deps, timeoutMs, signal);
    try {
      await this.#takeRoom(limit);
      try {
        await this.#publishUntilConfirmed({ type: nameOf(type), body, properties }, limit, signal);
      } finally {
        this.#unconfirmed -= 1;
        this.#whenRoom.shift()?.();
      }
    } finally {
      limit.end();
    }
    return { messageId };
  }

  /** Publishes many; all are confirmed when it resolves. `spreadMs`: their starts are spread evenly over so many milliseconds. */
  async enqueueMany(
    tasks: readonly NewMessage[],
    { spreadMs, ...call }: CallOptions & TraceOptions & { readonly spreadMs?: number } = {},
  ): Promise<readonly Published[]> {
    return await Promise.all(
      tasks.map(async ({ type, input, options = {} }, index) => {
        if (spreadMs === undefined) return await this.enqueue(nameOf(type), input, { ...options, ...call });
        if ((options.delayMs ?? options.runAt) !== undefined) {
          throw new InputRefusedError(
            `tasks[${index}].options`,
            'must not say when, together with spreadMs',
            'field-invalid',
          );
        }
        const delayMs = spreadDelayMs(index, tasks.length, spreadMs, this.#deps.random);
        return await this.enqueue(nameOf(type), input, { ...options, delayMs, ...call });
      }),
    );
  }

  /** Waits a few seconds for what is not confirmed, then closes the connection. */
  async close(): Promise<void> {
    this.#isClosed = true;
    const untilMs = this.#deps.monotonicMs() + CLOSE_WITHIN_MS;
    while (this.#unconfirmed > 0 && this.#deps.monotonicMs() < untilMs) await this.#deps.sleep(10);
    const open = await this.#opening?.catch(() => undefined);
    this.#opening = undefined;
    await open?.connection.close().catch(() => undefined); // it has gone by itself
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }

  async #takeRoom(limit: Limit): Promise<void> {
    const most = this.#options.maxUnconfirmed ?? MOST_UNCONFIRMED;
    while (this.#unconfirmed >= most) {
      const room = new Promise<void>((resolve) => this.#whenRoom.push(resolve));
      await within(room, limit);
    }
    this.#unconfirmed += 1;
  }

  async #publishUntilConfirmed(message: Message, limit: Limit, signal: AbortSignal | undefined): Promise<void> {
    let last: unknown;
    for (let tries = 0; ; tries += 1) {
      try {
        if (this.#isClosed) throw new UnreachableError('the client is closed', undefined, 'broker-unavailable');
        await this.#publish(await within(this.#open(), limit), message, limit);
        return;
      } catch (thrown) {
        signal?.throwIfAborted();
        const waitMs = this.#deps.random() * Math.min(LONGEST_BACKOFF_MS, FIRST_BACKOFF_MS * 2 ** tries);
        // Where the time is over in the middle of a try, what the one before met says more.
        last = limit.signal.aborted ? (last ?? thrown) : thrown;
        if (this.#isClosed || isFinal(thrown) || waitMs >= limit.leftMs()) throw asUnreachable(last);
        await this.#deps.sleep(waitMs, limit.signal);
        signal?.throwIfAborted();
      }
    }
  }

  async #publish({ channel, returned, gone }: Open, { type, body, properties }: Message, limit: Limit): Promise<void> {
    const { messageId } = properties;
    const confirmed = new Promise<void>((resolve, reject) => {
      channel.publish(this.#exchange, type, body, properties, (refused: unknown) => {
        if (refused !== null && refused !== undefined) {
          reject(new UnreachableError('RabbitMQ refused the message', refused, 'publish-refused'));
        } else if (returned.delete(messageId)) {
          const reason = `no queue takes messages of ${this.#exchange}: is Warren set up (warren topology apply)?`;
          reject(new UnreachableError(reason, undefined, 'unroutable'));
        } else resolve();
      });
    });
    confirmed.catch(() => undefined); // where the time is over first, nobody hears of it
    await within(Promise.race([confirmed, gone]), limit);
  }

  get #exchange(): string {
    return `${this.#options.prefix ?? 'warren'}.tasks`;
  }

  async #open(): Promise<Open> {
    if (this.#opening === undefined) {
      const opening = this.#connect();
      const forget = (): void => {
        if (this.#opening === opening) this.#opening = undefined;
      };
      this.#opening = opening;
      opening.then(async ({ gone }) => await gone.catch(forget), forget);
    }
    return await this.#opening;
  }

  async #connect(): Promise<Open> {
    const amqplib = await import('amqplib').catch((thrown: unknown) => {
      throw new WarrenClientError(
        'config-invalid',
        'install amqplib beside @warren/client to publish over AMQP',
        thrown,
      );
    });
    const connection = await amqplib.connect(this.#options.amqpUrl, {
      ...this.#options.tls,
      timeout: 10_000,
      clientProperties: { connection_name: this.#options.appId ?? 'warren-client' },
    });
    try {
      let lose: (reason: unknown) => void = () => undefined;
      const gone = new Promise<never>((_resolve, reject) => (lose = reject));
      gone.catch(() => undefined); // heard by whoever publishes
      let reason: unknown;
      const remember = (error: unknown): void => {
        reason ??= error;
      };
      connection.on('error', remember);
      connection.on('close', (error: unknown) => lose(reason ?? error ?? new Error('the connection was closed')));
      const channel = await connection.createConfirmChannel();
      channel.on('error', remember);
      channel.on('close', () => {
        lose(reason ?? new Error('the channel was closed'));
        // One channel a connection: both are opened anew.
        void connection.close().catch(() => undefined);
      });
      await channel.checkExchange(this.#exchange);
      const returned = new Set<string>();
      channel.on('return', ({ properties }) => returned.add(String(properties.messageId)));
      return { connection, channel, returned, gone };
    } catch (thrown) {
      await connection.close().catch(() => undefined); // it may have gone already
      throw thrown;
    }
  }
}

interface Message {
  readonly type: string;
  readonly body: Buffer;
  readonly properties: Options.Publish & { readonly messageId: string };
}

/** Fails as soon as the time is over or the caller aborted. */
async function within<T>(work: Promise<T>, limit: Limit): Promise<T> {
  work.catch(() => undefined); // where the time is over first, nobody hears of it
  const { signal } = limit;
  return await new Promise<T>((resolve, reject) => {
    const late = (): void =>
      reject(new UnreachableError('RabbitMQ did not answer in time', undefined, 'broker-unavailable'));
    if (signal.aborted) {
      late();
      return;
    }
    signal.addEventListener('abort', late, { once: true });
    work.then(resolve, reject).finally(() => signal.removeEventListener('abort', late));
  });
}

/** Trying again cannot help: a wrong password, a refused message, a missing package. */
function isFinal(thrown: unknown): boolean {
  const { code, message } = thrown as { readonly code?: unknown; readonly message?: unknown };
  if (code === 403 || /ACCESS[_-]REFUSED/.test(String(message))) return true;
  return code === 'config-invalid' || code === 'unroutable';
}

function asUnreachable(thrown: unknown): WarrenClientError {
  const { code, message, name } = thrown as Readonly<Record<string, unknown>>;
  if (typeof name === 'string' && (name === 'UnreachableError' || name === 'WarrenClientError')) {
    return thrown as WarrenClientError;
  }
  const said = typeof message === 'string' && message !== '' ? message : String(code ?? thrown);
  const isLogin = code === 403 || /ACCESS[_-]REFUSED/.test(said);
  return new UnreachableError(`RabbitMQ: ${said}`, thrown, isLogin ? 'broker-refused-login' : 'broker-unavailable');
}

/** Names of the headers: docs/reference/messages.md. */
function propertiesOf(
  {
    priority,
    queue,
    delayMs,
    runAt,
    deadline,
    maxAttempts,
    tags,
    businessKey,
    unique,
    throttle,
    webhook,
    debounce,
  }: SubmissionMembers,
  ids: { readonly messageId: string; readonly appId: string },
  trace: TraceOptions,
): Message['properties'] {
  if (unique !== undefined && throttle !== undefined) {
    throw new InputRefusedError('throttle', 'must not be given together with unique', 'field-invalid');
  }
  if (debounce !== undefined) throw new InputRefusedError('debounce', 'cannot be asked for over AMQP', 'field-invalid');
  const key = throttle ?? unique;
  const headers = {
    ...trace,
    'warren-queue': queue,
    'warren-delay-ms': delayMs,
    'warren-run-at': runAt,
    'warren-deadline': deadline,
    'warren-max-attempts': maxAttempts,
    'warren-tags': tags === undefined ? undefined : [...tags],
    'warren-business-key': businessKey,
    'warren-unique-key': key?.key,
    'warren-unique-while': unique?.while,
    'warren-unique-within-ms': key?.withinMs,
    'warren-on-conflict': unique?.onConflict,
    'warren-webhook-url': webhook?.url,
    'warren-webhook-states': webhook?.states === undefined ? undefined : [...webhook.states],
  };
  return {
    ...ids,
    ...(priority === undefined ? {} : { priority }),
    contentType: 'application/json',
    persistent: true,
    mandatory: true,
    headers: Object.fromEntries(Object.entries(headers).filter(([, value]) => value !== undefined)),
  };
}
