/** A whole fleet of real processes for one test, with a database and names on the broker of its own. */
import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { randomUUID } from 'node:crypto';
import { call } from '../../scripts/call.ts';
import type { ServiceName } from '../../scripts/fleet.ts';
import { namesOf } from '../../shared/amqp/topology.ts';
import { run } from '../../shared/postgres/statement.ts';
import type { RowOf } from '../../shared/postgres/statement.ts';
import { systemClock } from '../../shared/time/clock.ts';
import { AMQP_URL, removeTopology } from './broker.ts';
import { openDatabase } from './database.ts';
import type { TestDatabase } from './database.ts';
import { eventually } from './eventually.ts';
import { FaultyProxy } from './faulty-proxy.ts';
import { listAttempts, listLetters, listQueues, listTasks, makeDue, readBooks, readTask } from './fleet.sql.ts';
import { ANY_PORT, quickSettings } from './quick-settings.ts';
import { ServiceProcess } from './service-process.ts';
import './suppressed-error.ts';
import { readJournal } from './tasks/journal.ts';
import type { JournalEntry } from './tasks/journal.ts';

/** What a fleet is made of. */
export interface FleetOptions {
  /** Default 1. */
  readonly workers?: number;
  /** Default 1. */
  readonly producers?: number;
  /** Default 0. */
  readonly deadLetterHandlers?: number;
  /** Default `default:8`. */
  readonly queues?: string;
  /** Modules of test/support/tasks, without ending. Default `well-behaved`. */
  readonly tasks?: readonly string[];
  /** Milliseconds until a lease lapses. Default 2 000. */
  readonly leaseMs?: number;
  /** Added to the environment of every process. */
  readonly env?: Readonly<Record<string, string>>;
  /** What the services reach through a proxy that can be cut. */
  readonly through?: readonly ('broker' | 'postgres')[];
}

/** A task as it is submitted; `input` gets the journal. */
export interface NewTask {
  readonly type?: string;
  readonly input?: Readonly<Record<string, unknown>>;
  readonly [option: string]: unknown;
}

/** The books. */
export type Books = Readonly<
  Record<
    'accepted' | 'succeeded' | 'dead' | 'dropped' | 'running' | 'waiting' | 'letters' | 'claims' | 'outbox',
    number
  >
>;

/** Starts a fleet and waits until it is ready. */
export async function openFleet(options: FleetOptions = {}): Promise<Fleet> {
  const database = await openDatabase();
  const journalDir = await mkdtemp(join(tmpdir(), 'warren-faults-'));
  const { through = [] } = options;
  const fleet = new Fleet(database, journalDir, options, {
    broker: through.includes('broker') ? await FaultyProxy.open(AMQP_URL) : undefined,
    postgres: through.includes('postgres') ? await FaultyProxy.open(database.url) : undefined,
  });
  try {
    const { workers = 1, producers = 1, deadLetterHandlers = 0 } = options;
    await Promise.all([
      ...Array.from({ length: producers }, async () => await fleet.start('producer').ready()),
      ...Array.from({ length: workers }, async () => await fleet.start('worker').ready()),
      ...Array.from({ length: deadLetterHandlers }, async () => await fleet.start('dead-letter-handler').ready()),
    ]);
    return fleet;
  } catch (thrown) {
    await fleet.abandon();
    throw thrown;
  }
}

/** Name of the database's and broker's proxies. */
interface Proxies {
  readonly broker: FaultyProxy | undefined;
  readonly postgres: FaultyProxy | undefined;
}

const BATCH = 500;

/** A fleet. Disposing of it stops all, and fails where a process did not end well or logged what nobody expected. */
export class Fleet implements AsyncDisposable {
  /** Start of all its names on the broker. */
  readonly prefix = `t${randomUUID().replaceAll('-', '').slice(0, 12)}`;
  readonly database: TestDatabase;
  readonly journal: string;
  readonly #journalDir: string;
  readonly #options: FleetOptions;
  readonly #proxies: Proxies;
  readonly #processes: ServiceProcess[] = [];
  readonly #expectedErrors = new Set<string>();

  constructor(database: TestDatabase, journalDir: string, options: FleetOptions, proxies: Proxies) {
    this.database = database;
    this.#journalDir = journalDir;
    this.journal = join(journalDir, 'journal');
    this.#options = options;
    this.#proxies = proxies;
  }

  /** Names on the broker. */
  get names(): ReturnType<typeof namesOf> {
    return namesOf(this.prefix);
  }

  /** The proxy between the services and the broker. */
  get brokerProxy(): FaultyProxy {
    if (this.#proxies.broker === undefined) throw new Error('open the fleet with through: broker');
    return this.#proxies.broker;
  }

  /** The proxy between the services and Postgres. */
  get postgresProxy(): FaultyProxy {
    if (this.#proxies.postgres === undefined) throw new Error('open the fleet with through: postgres');
    return this.#proxies.postgres;
  }

  /** Starts one more process; it may not be ready yet. */
  start(
    service: ServiceName,
    env: Readonly<Record<string, string>> = {},
    tasks: readonly string[] = this.#options.tasks ?? ['well-behaved'],
  ): ServiceProcess {
    const count = this.all(service).length;
    const name = `${service}-${count}`;
    const process = new ServiceProcess(service, name, { ...this.environment(tasks), ...env });
    this.#processes.push(process);
    return process;
  }

  /** What a process of this fleet is configured with. */
  environment(tasks: readonly string[] = []): Readonly<Record<string, string>> {
    const { queues = 'default:8', leaseMs = 2_000, env = {} } = this.#options;
    const { broker, postgres } = this.#proxies;
    const modules = tasks.map((name) => `./dist/test/support/tasks/${name}.js`);
    const tempDir = join(this.#journalDir, 'temp');
    return {
      ...quickSettings({ prefix: this.prefix, queues, tasks: modules, leaseMs, tempDir }),
      ...ANY_PORT,
      AMQP_URL: broker?.urlOf(AMQP_URL) ?? AMQP_URL,
      DATABASE_URL: postgres?.urlOf(this.database.url) ?? this.database.url,
      ...env,
    };
  }

  /** Processes of a service in the order of their start. */
  all(service: ServiceName): readonly ServiceProcess[] {
    return this.#processes.filter((process) => process.service === service);
  }

  /** The `index`-th worker, from 0. */
  worker(index: number): ServiceProcess {
    return this.#get('worker', index);
  }

  producer(index = 0): ServiceProcess {
    return this.#get('producer', index);
  }

  deadLetterHandler(index = 0): ServiceProcess {
    return this.#get('dead-letter-handler', index);
  }

  /** Error lines with this message are part of the test. */
  expectErrors(...messages: readonly string[]): void {
    for (const message of messages) this.#expectedErrors.add(message);
  }

  /** Submits over HTTP and gives the ids. Throws where one was not accepted. */
  async submit(...tasks: readonly NewTask[]): Promise<readonly string[]> {
    const ids: string[] = [];
    for (let from = 0; from < tasks.length; from += BATCH) {
      const items = tasks.slice(from, from + BATCH).map((task) => this.body(task));
      const { status, body } = await call(this.#living('producer').url, 'POST', '/v1/tasks/batch', { tasks: items });
      const results = (body['results'] ?? []) as readonly { readonly task?: { readonly id: string } }[];
      ids.push(...results.flatMap(({ task }) => (task === undefined ? [] : [task.id])));
      if (status !== 200) throw new Error(`not accepted: ${status} ${JSON.stringify(body).slice(0, 500)}`);
    }
    return ids;
  }

  /** The body of a submission. */
  body({ type = 'fault.step', input = {}, ...options }: NewTask): Readonly<Record<string, unknown>> {
    return { type, input: { journal: this.journal, ...input }, ...options };
  }

  /** What the handlers wrote down. */
  entries(taskId?: string): readonly JournalEntry[] {
    const entries = readJournal(this.journal);
    return taskId === undefined ? entries : entries.filter((entry) => entry.taskId === taskId);
  }

  /** One task's row. */
  async task(id: string): Promise<RowOf<typeof readTask.columns>> {
    const [row] = await run(this.database.database, readTask, id);
    if (row === undefined) throw new Error(`no task ${id}`);
    return row;
  }

  /** All tasks' rows. */
  async tasks(): Promise<readonly RowOf<typeof listTasks.columns>[]> {
    return await run(this.database.database, listTasks);
  }

  /** The history of one task, or of all. */
  async attempts(id?: string): Promise<readonly RowOf<typeof listAttempts.columns>[]> {
    return await run(this.database.database, listAttempts, id ?? null);
  }

  async deadLetters(): Promise<readonly RowOf<typeof listLetters.columns>[]> {
    return await run(this.database.database, listLetters);
  }

  async books(): Promise<Books> {
    const [row] = await run(this.database.database, readBooks);
    return Object.fromEntries(Object.entries(row ?? {}).map(([name, count]) => [name, Number(count)])) as Books;
  }

  /** Waits until every task has ended and nothing of it is left anywhere; gives the books. */
  async ended(withinMs = 30_000): Promise<Books> {
    return await eventually(
      async () => {
        const books = await this.books();
        const { accepted, succeeded, dead, dropped, claims, outbox } = books;
        const isEnded = accepted === succeeded + dead + dropped && claims === 0 && outbox === 0;
        if (!isEnded) throw new Error(`not all ended: ${JSON.stringify(books)}\n${this.tails()}`);
        return books;
      },
      { withinMs },
    );
  }

  /** Makes what waits for an instant due now: time is moved by moving instants. */
  async makeDue(): Promise<void> {
    await run(this.database.database, makeDue);
  }

  /** Submits one task, again where the fleet has just got over something, and waits until it has ended; gives its state. */
  async run(input: NewTask['input'] = {}, withinMs = 15_000): Promise<string> {
    const [id = ''] = await eventually(async () => await this.submit({ input }));
    return await eventually(
      async () => {
        const { state, finished_at: finishedAt } = await this.task(id);
        if (finishedAt === null) throw new Error(`task ${id} is ${state}\n${this.tails()}`);
        return state;
      },
      { withinMs },
    );
  }

  /** Lets time pass, where the passing of time itself is what the test is about. */
  async pass(ms: number): Promise<void> {
    await systemClock.sleep(ms);
  }

  /** The first line with this message, in the log of any process. */
  async next(message: string, fields: Readonly<Record<string, unknown>> = {}, withinMs = 30_000): Promise<void> {
    await eventually(
      () => {
        if (!this.#processes.some((process) => process.logged(message, fields).length > 0)) {
          throw new Error(`nobody has logged "${message}" ${JSON.stringify(fields)}\n${this.tails()}`);
        }
      },
      { withinMs },
    );
  }

  /** The ends of all logs. */
  tails(): string {
    return this.#processes.map((process) => `--- ${process.name}\n${process.tail(6)}`).join('\n');
  }

  async [Symbol.asyncDispose](): Promise<void> {
    const faults = await this.#stopAll();
    await this.#keepLogs(faults);
    await this.#removeAll();
    if (faults.length > 0) throw new Error(`the fleet did not end well:\n${faults.join('\n')}`);
  }

  /** Kills and removes all, without a look at how it was. */
  async abandon(): Promise<void> {
    await Promise.all(this.#processes.map(async (process) => await process.kill()));
    await this.#removeAll();
  }

  async #stopAll(): Promise<string[]> {
    const faults: string[] = [];
    await Promise.all(
      this.#processes.map(async (process) => {
        const hadEnded = process.exitCode !== undefined;
        process.thaw(); // a frozen one hears no SIGTERM
        const cancel = systemClock.after(60_000, () => process.signal('SIGKILL'));
        const { code } = await process.terminate();
        cancel();
        // An end that the test brought about is the test's to judge.
        if (!hadEnded && code !== 0) faults.push(`${process.name} ended with ${code}:\n${process.tail()}`);
        for (const line of process.lines.filter(({ level }) => level === 'error')) {
          if (!this.#expectedErrors.has(line.message)) faults.push(`${process.name}: ${JSON.stringify(line)}`);
        }
      }),
    );
    return faults;
  }

  /** For a developer who sets WARREN_TEST_LOGS: every log, in a folder per fleet. */
  async #keepLogs(faults: readonly string[]): Promise<void> {
    const root = process.env['WARREN_TEST_LOGS'];
    if (root === undefined) return;
    const dir = join(root, this.prefix);
    await mkdir(dir, { recursive: true });
    await writeFile(join(dir, 'faults'), faults.join('\n'));
    for (const { name, lines, stray } of this.#processes) {
      await writeFile(join(dir, `${name}.log`), `${lines.map((line) => JSON.stringify(line)).join('\n')}\n${stray}`);
    }
  }

  async #removeAll(): Promise<void> {
    const queues = await run(this.database.database, listQueues);
    await this.#proxies.broker?.[Symbol.asyncDispose]();
    await this.#proxies.postgres?.[Symbol.asyncDispose]();
    await removeTopology(
      this.prefix,
      queues.map(({ name }) => name),
    );
    await this.database[Symbol.asyncDispose]();
    await rm(this.#journalDir, { recursive: true, force: true });
  }

  #get(service: ServiceName, index: number): ServiceProcess {
    const process = this.all(service)[index];
    if (process === undefined) throw new Error(`no ${service} ${index}`);
    return process;
  }

  #living(service: ServiceName): ServiceProcess {
    const process = this.all(service).findLast(({ exitCode }) => exitCode === undefined);
    if (process === undefined) throw new Error(`no ${service} runs`);
    return process;
  }
}
