/** The pool of connections to Postgres: bounded waits, availability, no crash when a server goes. Only this folder knows pg. */
import pg from 'pg';
import { Bug, WarrenError } from '../errors/warren-error.ts';
import { codeOf, toError } from '../errors/to-error.ts';
import type { Part } from '../lifecycle/part.ts';
import { redactText } from '../observability/redact.ts';
import type { Logger } from '../observability/log.ts';
import type { Clock } from '../time/clock.ts';
import { tlsFailure, tlsSettingsOf } from '../tls/tls-failure.ts';
import { TlsFiles } from '../tls/tls-files.ts';
import type { TlsFileNames } from '../tls/tls-files.ts';
import { classifyFailure, isConnectionSpent } from './failure.ts';
import type { Query, QueryResult, Queryable } from './statement.ts';
import { takeTls } from './tls.ts';

/** What a database needs. */
export interface DatabaseDeps {
  readonly clock: Clock;
  readonly log: Logger;
  /** 0 inclusive to 1 exclusive; spreads retries of conflicts. */
  readonly random: () => number;
}

/** How to reach Postgres. Plain values: they are handed to threads. */
export interface DatabaseOptions {
  /** `postgres://user:password@host:port/database`, percent-encoded. A secret. */
  readonly url: string;
  /** Shown in `pg_stat_activity`. At most 63 characters. */
  readonly applicationName: string;
  /** Connections at most. 1 to 1 000. */
  readonly max: number;
  /** Milliseconds to wait for a connection, new or free. */
  readonly connectTimeoutMs: number;
  /** Milliseconds that one statement may take. 0: no limit. */
  readonly statementTimeoutMs: number;
  /** Milliseconds that a statement may wait for a lock. 0: no limit. */
  readonly lockTimeoutMs: number;
  /** Milliseconds after which an idle connection is closed. */
  readonly idleTimeoutMs: number;
  /** The only schema on the search path: lower-case letters, digits, `_`; at most 63. */
  readonly schema: string;
  /** Certificates, read at each new connection. Default: as the URL says. */
  readonly tls?: TlsFileNames;
  /** Settings of every session, such as `{ enable_seqscan: 'off' }`. */
  readonly settings?: Readonly<Record<string, string>>;
}

/** What each session listens for. What is notified while no session stands is lost: whoever listens must also look. */
export interface Listening {
  /** Name of the channel: lower-case letters, digits, `_`; at most 63. */
  readonly channel: string;
  readonly onNotified: () => void;
}

/** Milliseconds that a transaction of ours may stand idle before Postgres ends its session. */
const IDLE_IN_TRANSACTION_MS = 10_000;
/** Milliseconds past the statement timeout after which the network, not the statement, is held guilty. */
const ANSWER_MARGIN_MS = 5_000;
/** SQLSTATE of a write to a server that takes none. */
const READ_ONLY = '25006';
/** SQLSTATE protocol_violation: what PgBouncer answers to settings of a session that it does not know. */
const POOLED = '08P01';
const POOLER_HINT =
  'Name Postgres itself: PgBouncer and its like are not supported, and each process keeps to postgres.poolMax connections.';
const PLAIN_NAME = /^[a-z_][a-z0-9_]{0,62}$/;

/** One checked-out connection. `release(true)` destroys it. */
export interface Connection extends Queryable {
  release(destroy: boolean): void;
}

/** Whether Postgres answers, and why not. */
export interface PingResult {
  readonly isAvailable: boolean;
  readonly reason?: string;
}

/** A pool over pg. Starts whether or not Postgres is there; what asks while it is away gets `database-unavailable`. */
export class Database implements Part, Queryable {
  readonly deps: DatabaseDeps;
  readonly options: DatabaseOptions;
  #pool: pg.Pool | undefined;
  readonly #open = new Set<Connection>();
  /** In which generation each connection was made; those of an older one are not used again. */
  readonly #generations = new WeakMap<pg.PoolClient, number>();
  readonly #listening: Listening | undefined;
  #generation = 0;
  #isAvailable: boolean | undefined;

  /** With `listening`, a session begins to listen when it is made, which is when something is asked: after an outage too. */
  constructor(deps: DatabaseDeps, options: DatabaseOptions, listening?: Listening) {
    if (!PLAIN_NAME.test(options.schema)) throw new WarrenError('config-invalid', { field: 'postgres.schema' });
    if (listening !== undefined && !PLAIN_NAME.test(listening.channel)) {
      throw new Bug(`not the name of a channel: ${listening.channel}`);
    }
    this.deps = deps;
    this.options = options;
    this.#listening = listening;
  }

  /** Opens the pool and tries one connection. Does not fail when Postgres is away: it is logged. Throws `config-invalid`. */
  async start(): Promise<void> {
    if (this.#pool !== undefined) return;
    this.#pool = createPool(this.options, this.deps.log);
    // An idle connection that the server ends is an event, and without a listener the end of the process (pg#2112).
    this.#pool.on('error', (error) => this.deps.log.debug('idle connection lost', { err: toError(error) }));
    this.#pool.on('connect', (client) => client.on('error', () => undefined));
    await this.ping(this.options.connectTimeoutMs);
  }

  /** Starts, and throws `database-unavailable` when Postgres does not answer. */
  async connectOrThrow(): Promise<void> {
    await this.start();
    await this.query({ text: 'select 1' });
  }

  /** Closes every connection; those in use when the deadline has passed are cut. */
  async stop(deadlineMs: number): Promise<void> {
    const pool = this.#pool;
    this.#pool = undefined;
    this.#isAvailable = undefined;
    if (pool === undefined) return;
    const ended = pool.end().then(() => true);
    const { clock, log } = this.deps;
    const race = new AbortController();
    const late = clock.sleep(Math.max(0, deadlineMs - clock.monotonicMs()), race.signal).then(() => false);
    const isEnded = await Promise.race([ended, late]);
    race.abort();
    if (isEnded) return;
    log.warn('connections cut at the deadline', { count: this.#open.size });
    // Those that are still being made end at their own time limit, and nobody waits for them.
    for (const connection of this.#open) connection.release(true);
  }

  /** False from a failure that means Postgres is away until the next success; false before the first. */
  get isAvailable(): boolean {
    return this.#isAvailable === true;
  }

  /** Connections that exist, those of them without work, and callers that wait for one. */
  get stats(): { readonly total: number; readonly idle: number; readonly waiting: number } {
    const pool = this.#pool;
    return { total: pool?.totalCount ?? 0, idle: pool?.idleCount ?? 0, waiting: pool?.waitingCount ?? 0 };
  }

  async query(query: Query): Promise<QueryResult> {
    const connection = await this.checkOut();
    try {
      const result = await connection.query(query);
      connection.release(false);
      return result;
    } catch (thrown) {
      connection.release(isConnectionSpent(causeOf(thrown)));
      throw thrown;
    }
  }

  /** Asks Postgres for a sign of life. Never throws, and never takes much longer than `withinMs` milliseconds. */
  async ping(withinMs: number): Promise<PingResult> {
    const race = new AbortController();
    const late = this.deps.clock
      .sleep(withinMs, race.signal)
      .then((): PingResult => ({ isAvailable: false, reason: `no answer within ${withinMs} ms` }));
    const asked = this.query({ text: 'select 1', withinMs }).then(
      (): PingResult => ({ isAvailable: true }),
      (thrown: unknown): PingResult => ({ isAvailable: false, reason: reasonOf(causeOf(thrown)) }),
    );
    try {
      return await Promise.race([asked, late]);
    } finally {
      race.abort();
    }
  }

  /** When the Postgres server started, by its own clock: leases lapse only over time in which it could be reached. */
  async serverStartedAt(): Promise<Date> {
    const { rows } = await this.query({ text: 'select pg_postmaster_start_time() as at' });
    return (rows as [{ at: Date }])[0].at;
  }

  /** Takes a connection out of the pool; the caller must release it. Throws `database-unavailable`. */
  async checkOut(): Promise<Connection> {
    for (;;) {
      const client = await this.#connect();
      const madeIn = this.#generations.get(client);
      const connection = this.#wrap(client);
      if (madeIn === this.#generation) return connection;
      if (madeIn !== undefined) {
        connection.release(true);
        continue;
      }
      this.#generations.set(client, this.#generation);
      try {
        await this.#refuseUnfit(client, connection);
        await this.#listen(client, connection);
        return connection;
      } catch (thrown) {
        connection.release(true);
        throw thrown;
      }
    }
  }

  async #connect(): Promise<pg.PoolClient> {
    if (this.#pool === undefined) throw new WarrenError('database-unavailable', { reason: 'the pool is closed' });
    try {
      return await this.#pool.connect();
    } catch (thrown) {
      // All connections in use is our own load, not Postgres's absence.
      if (!/timeout exceeded when trying to connect/.test(toError(thrown).message)) this.#sawFailure(thrown);
      throw new WarrenError('database-unavailable', { reason: reasonOf(thrown) }, thrown);
    }
  }

  #wrap(client: pg.PoolClient): Connection {
    let isReleased = false;
    const connection: Connection = {
      query: async (query) => {
        const result = await this.#send(client, connection, query);
        if (this.#generations.get(client) === this.#generation) this.#sawSuccess();
        return result;
      },
      release: (destroy) => {
        if (isReleased) return;
        isReleased = true;
        this.#open.delete(connection);
        client.release(destroy || this.#generations.get(client) !== this.#generation);
      },
    };
    this.#open.add(connection);
    return connection;
  }

  /**
   * A standby, or a primary that a failover made one, answers every question and takes no write: it counts as away. So does a
   * pooler that stands before Postgres: it hands one session to many, and our settings, prepared statements and what we listen
   * for are of a session. It tells another process id at login (postgresql.org, protocol, BackendKeyData) than the server does.
   */
  async #refuseUnfit(client: pg.PoolClient, connection: Connection): Promise<void> {
    const text = `select current_setting('transaction_read_only') as read_only, pg_backend_pid() as pid`;
    const { rows } = await this.#send(client, connection, { text, withinMs: this.options.connectTimeoutMs });
    const [{ read_only: readOnly, pid }] = rows as [{ readonly read_only: string; readonly pid: number }];
    const { processID } = client as pg.PoolClient & { readonly processID: number | null };
    if (processID !== pid) throw this.#refuse(POOLED, `a connection pooler answers. ${POOLER_HINT}`);
    if (readOnly !== 'off') throw this.#refuse(READ_ONLY, 'the server is read-only');
  }

  #refuse(code: string, message: string): WarrenError {
    const cause = Object.assign(new Error(message), { code });
    this.#sawFailure(cause);
    return new WarrenError('database-unavailable', { reason: reasonOf(cause) }, cause);
  }

  async #listen(client: pg.PoolClient, connection: Connection): Promise<void> {
    if (this.#listening === undefined) return;
    const { channel, onNotified } = this.#listening;
    client.on('notification', onNotified);
    await this.#send(client, connection, { text: `listen ${channel}`, withinMs: this.options.connectTimeoutMs });
  }

  async #send(client: pg.PoolClient, connection: Connection, query: Query): Promise<QueryResult> {
    const { statementTimeoutMs } = this.options;
    const withinMs = query.withinMs ?? (statementTimeoutMs === 0 ? 0 : statementTimeoutMs + ANSWER_MARGIN_MS);
    // A server behind a dead network never answers and never resets: cutting the socket makes the query fail.
    const cut = (): void => {
      // Postgres itself would have ended the statement: the link is dead, and those beside it may be.
      if (query.withinMs === undefined) this.#generation += 1;
      connection.release(true);
    };
    const cancel = withinMs === 0 ? undefined : this.deps.clock.after(withinMs, cut);
    try {
      const result = await client.query(toPg(query));
      const last = Array.isArray(result) ? (result as pg.QueryResult[]).at(-1) : result;
      if (last === undefined) throw new Bug('a query gave no result');
      return { rows: last.rows, affected: last.rowCount ?? 0, command: last.command };
    } catch (thrown) {
      const kind = classifyFailure(thrown);
      // What else is connected to this server is of no more use than this connection.
      if (codeOf(thrown) === READ_ONLY) this.#generation += 1;
      if (kind === 'unavailable' && codeOf(thrown) !== '57014') this.#sawFailure(thrown);
      if (kind !== 'unavailable' && kind !== 'lock-timeout') throw thrown;
      throw new WarrenError(
        'database-unavailable',
        { reason: reasonOf(thrown), ...(query.name === undefined ? {} : { statement: query.name }) },
        thrown,
      );
    } finally {
      cancel?.();
    }
  }

  #sawSuccess(): void {
    if (this.#isAvailable === false) this.deps.log.info('postgres answers again');
    this.#isAvailable = true;
  }

  #sawFailure(thrown: unknown): void {
    if (this.#isAvailable !== false && this.#pool !== undefined) {
      this.deps.log.warn('postgres does not answer', { reason: reasonOf(thrown), err: toError(thrown) });
    }
    this.#isAvailable = false;
  }
}

function createPool(options: DatabaseOptions, log: Logger): pg.Pool {
  const url = urlWithSettings(options.url, { ...options.settings, search_path: options.schema });
  const tls = new TlsFiles(log, 'postgres', options.tls ?? { tlsCertFile: '', tlsKeyFile: '' });
  tls.read(); // a file that is wrong from the start ends the start
  const readTls = takeTls(url, tls);
  const pool = new pg.Pool({
    connectionString: url.href,
    application_name: options.applicationName,
    max: options.max,
    connectionTimeoutMillis: options.connectTimeoutMs,
    idleTimeoutMillis: options.idleTimeoutMs,
    statement_timeout: options.statementTimeoutMs,
    lock_timeout: options.lockTimeoutMs,
    idle_in_transaction_session_timeout: IDLE_IN_TRANSACTION_MS,
    keepAlive: true,
    keepAliveInitialDelayMillis: 10_000,
    types: { getTypeParser },
  });
  // The pool hands its options to each new connection: certificates that were renewed are taken then.
  Object.defineProperty(pool.options, 'ssl', { get: readTls, enumerable: true });
  return pool;
}

/** In the URL, because pg lets the URL's `options` win over its own setting. Source: pg/lib/connection-parameters.js. */
function urlWithSettings(url: string, settings: Readonly<Record<string, string>>): URL {
  let parsed: URL;
  try {
    parsed = new URL(url);
  } catch {
    throw new WarrenError('config-invalid', { field: 'postgres.url', reason: 'is not a URL' });
  }
  const others = parsed.searchParams.get('options');
  const ours = Object.entries(settings).map(([name, value]) => `-c ${name}=${value}`);
  parsed.searchParams.set('options', [...(others === null ? [] : [others]), ...ours].join(' '));
  return parsed;
}

const DATE = 1082;
const TIMESTAMP = 1114;
const asText = (text: string): string => text;

/** pg's own parsers, without those that read a date in the zone of the process. `int8` is text with them already. */
function getTypeParser(id: number, format?: 'text' | 'binary'): (text: string) => unknown {
  if (id === DATE || id === TIMESTAMP) return asText;
  return pg.types.getTypeParser(id, format as 'text') as (text: string) => unknown;
}

function toPg({ name, text, values }: Query): pg.QueryConfig {
  return {
    text,
    ...(name === undefined ? {} : { name }),
    ...(values === undefined ? {} : { values: values as unknown[] }),
  };
}

function causeOf(thrown: unknown): unknown {
  return toError(thrown).cause ?? thrown;
}

/** One line for people, without credentials: an SQLSTATE or errno and the message. */
function reasonOf(thrown: unknown): string {
  const { message } = toError(thrown);
  const code = codeOf(thrown);
  const tls = tlsFailure(thrown, tlsSettingsOf('postgres')) ?? TLS_REFUSALS.find(([found]) => found.test(message))?.[1];
  if (tls !== undefined) return tls;
  const hint = code === POOLED && /startup parameter/.test(message) ? `. ${POOLER_HINT}` : '';
  return redactText(code === undefined || message.includes(code) ? message : `${code} ${message}${hint}`.trim());
}

/** What Postgres, or pg, says where one side wants TLS and the other does not. */
const TLS_REFUSALS: readonly (readonly [found: RegExp, said: string])[] = [
  [
    /server does not support SSL/i,
    'the server has no TLS (ssl is off there); turn it on, or say sslmode=disable in postgres.url',
  ],
  [
    /no pg_hba\.conf entry .*(no encryption|SSL off)/i,
    'the server takes no connection of this user without TLS; say sslmode=verify-full in postgres.url',
  ],
  [
    /requires a valid client certificate/i,
    'the server wants a client certificate; name it in postgres.tlsCertFile and postgres.tlsKeyFile',
  ],
];
