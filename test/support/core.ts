/** Tasks, leases and a worker's statements in a test's own database: the core protocol without a process around it. */
import { randomUUID } from 'node:crypto';
import { ClaimBook } from '../../services/worker/claim-book.ts';
import { Claims } from '../../services/worker/claims.ts';
import type { Claim } from '../../services/worker/claims.ts';
import { Settles } from '../../services/worker/settles.ts';
import type { Verdict } from '../../services/worker/verdict.ts';
import { WarrenError } from '../../shared/errors/warren-error.ts';
import { createMetrics } from '../../shared/observability/metrics.ts';
import { silentLogger } from '../../shared/observability/silent-log.ts';
import { Database } from '../../shared/postgres/pool.ts';
import type { Query, QueryResult } from '../../shared/postgres/statement.ts';
import { newId } from '../../shared/tasks/ids.ts';
import type { OutboxRow } from '../../shared/tasks/invitation.ts';
import type { TaskState } from '../../shared/tasks/state-machine.ts';
import { systemClock } from '../../shared/time/clock.ts';

/** What most parts take. */
export const partDeps = {
  clock: systemClock,
  log: silentLogger,
  random: () => 0.5,
  metrics: createMetrics({ service: 'test', version: '', withProcess: false }),
} as const;

/** What a test sees of a task. */
export interface TaskRow {
  readonly id: string;
  readonly state: TaskState;
  readonly generation: number;
  readonly attempt: number;
  readonly failures: number;
  readonly lost_attempts: number;
  readonly lost_alone: number;
  readonly priority: number;
  readonly claim_id: string | null;
  readonly worker: string | null;
  readonly run_at: Date | null;
  readonly invited_at: Date | null;
  readonly started_at: Date | null;
  readonly finished_at: Date | null;
  readonly deadline: Date | null;
  readonly input: Buffer;
  readonly result: Buffer | null;
}

/** What a test may set of a new task. Times are SQL expressions. */
export interface NewTask {
  readonly id?: string;
  readonly state?: 'pending' | 'scheduled' | 'retrying';
  readonly generation?: number;
  readonly priority?: number;
  readonly type?: string;
  readonly queue?: string;
  readonly maxAttempts?: number;
  readonly lostAttempts?: number;
  readonly lostAlone?: number;
  readonly attempt?: number;
  readonly runAt?: string;
  readonly deadline?: string;
  readonly invitedAt?: string;
}

/** Adds a task, with the row of `due` that stands beside it and its entry in the ledger. Returns its id. */
export async function addTask(db: Database, task: NewTask = {}): Promise<string> {
  const id = task.id ?? newId();
  const runAt = task.runAt ?? 'null';
  const deadline = task.deadline ?? 'null';
  await db.query({
    text: `with made as (
             insert into tasks (id, state, generation, attempt, lost_attempts, lost_alone, max_attempts, priority, type, queue, input,
                                run_at, deadline, invited_at)
             values ($1::uuid, $2::task_state, $3, $4, $5, $10, $6, $7, $8, $9, '{}', ${runAt}, ${deadline},
                     ${task.invitedAt ?? 'clock_timestamp()'})
             returning id, type, run_at, deadline),
           counted as (
             insert into ledger_entries as l (hour, type, entry, backend, tasks)
             select task_hour(id), type, 'accepted', pg_backend_pid(), 1 from made
             on conflict (hour, type, entry, backend) do update set tasks = l.tasks + excluded.tasks)
           insert into due (task_id, at)
           select id, least(run_at, deadline) from made where run_at is not null or deadline is not null`,
    values: [
      id,
      task.state ?? 'pending',
      task.generation ?? 1,
      task.attempt ?? 0,
      task.lostAttempts ?? 0,
      task.maxAttempts ?? 3,
      task.priority ?? 4,
      task.type ?? 'test.noop',
      task.queue ?? 'default',
      task.lostAlone ?? 0,
    ],
  });
  return id;
}

/** Adds as many plain tasks. */
export async function addTasks(db: Database, count: number): Promise<string[]> {
  const ids = Array.from({ length: count }, () => newId() as string);
  await db.query({
    text: `with made as (
             insert into tasks (id, state, max_attempts, priority, type, queue, input, invited_at)
             select id, 'pending', 3, 4, 'test.noop', 'default', '{}', clock_timestamp() from unnest($1::uuid[]) id
             returning id, type)
           insert into ledger_entries as l (hour, type, entry, backend, tasks)
           select task_hour(id), type, 'accepted', pg_backend_pid(), count(*) from made group by 1, 2 order by 1, 2
           on conflict (hour, type, entry, backend) do update set tasks = l.tasks + excluded.tasks`,
    values: [`{${ids.join(',')}}`],
  });
  return ids;
}

/** The row of a task. */
export async function readTask(db: Database, id: string): Promise<TaskRow> {
  const [row] = await rows<TaskRow>(db, 'select * from tasks where id = $1', id);
  if (row === undefined) throw new WarrenError('task-not-found', { taskId: id });
  return row;
}

/** Rows of any query. */
export async function rows<Row>(db: Database, text: string, ...values: readonly unknown[]): Promise<Row[]> {
  return (await db.query({ text, values })).rows as Row[];
}

/** How many rows a table has, of those that `where` (SQL) names. */
export async function count(db: Database, table: string, where = 'true'): Promise<number> {
  const [row] = await rows<{ n: number }>(db, `select count(*)::int4 as n from ${table} where ${where}`);
  return row?.n ?? 0;
}

/** A lease as a living worker has it; `renewedAt` is an SQL expression. Returns the worker's id. */
export async function addLease(
  db: Database,
  { worker = randomUUID(), slots = 4, renewedAt = 'clock_timestamp()' } = {},
): Promise<string> {
  await db.query({
    text: `insert into leases (worker, host, pid, code_version, queues, task_types, slots, renewed_at)
           values ($1, 'test', 1, 'test', jsonb_build_object('default', $2::int4), '{}', $2::int4, ${renewedAt})`,
    values: [worker, slots],
  });
  return worker;
}

/** Deadlocks that Postgres has counted in this database. */
export async function deadlocks(db: Database): Promise<number> {
  await db.query({ text: 'select pg_stat_force_next_flush()' });
  const [row] = await rows<{ n: number }>(
    db,
    'select deadlocks::int4 as n from pg_stat_database where datname = current_database()',
  );
  return row?.n ?? 0;
}

/** What happens to one statement: its answer gets lost after it was done, or it never arrives. */
export type Fault = 'lose' | 'refuse' | undefined;

/** A real database whose statements, by name, can lose their answers. */
export class FaultyDatabase extends Database {
  /** Asked for each statement. */
  fault: (statement: string) => Fault = () => undefined;
  /** Called with each statement before anything happens to it. */
  before: (query: Query) => Promise<void> | void = () => undefined;
  /** Names of all statements sent so far. */
  readonly sent: string[] = [];

  override async query(query: Query): Promise<QueryResult> {
    const name = query.name ?? '';
    await this.before(query);
    const fault = this.fault(name);
    if (fault === 'refuse') throw new WarrenError('database-unavailable', { reason: 'the test cut the way there' });
    this.sent.push(name);
    const result = await super.query(query);
    if (fault === 'lose') throw new WarrenError('database-unavailable', { reason: 'the test cut the way back' });
    return result;
  }
}

/** A second, faulty way into the same database. Stop it. */
export async function openFaulty(db: Database): Promise<FaultyDatabase & AsyncDisposable> {
  const faulty = new FaultyDatabase(db.deps, db.options);
  await faulty.connectOrThrow();
  return Object.assign(faulty, {
    [Symbol.asyncDispose]: async () => await faulty.stop(systemClock.monotonicMs() + 2_000),
  });
}

/** A fault for the first statement of that name alone. */
export function once(name: string, fault: Fault): (statement: string) => Fault {
  let isOver = false;
  return (statement) => {
    if (isOver || statement !== name) return undefined;
    isOver = true;
    return fault;
  };
}

/** Claims and settles of one worker, with a lease. */
export interface TestWorker {
  workerId: string;
  readonly book: ClaimBook;
  readonly claims: Claims;
  readonly settles: Settles;
  /** Outbox rows that it would have published. */
  readonly invited: OutboxRow[];
  /** Claims and expects to win. */
  win(taskId: string, generation?: number): Promise<Claim>;
}

/** Makes a worker over `db`. Without a `worker` it gets a lease. */
export async function openWorker(
  db: Database,
  { worker, maxBatch = 500 }: { worker?: string; maxBatch?: number } = {},
): Promise<TestWorker> {
  const book = new ClaimBook();
  const invited: OutboxRow[] = [];
  const workerId = worker ?? (await addLease(db));
  const invite = async (row: OutboxRow): Promise<boolean> => {
    invited.push(row);
    return await Promise.resolve(true);
  };
  const claims: Claims = new Claims(
    { ...partDeps, db, book, workerId: () => self.workerId, whenLeased: async () => await Promise.resolve() },
    { maxBatch },
  );
  const settles = new Settles({ ...partDeps, db, book, invite }, { maxBatch, codeVersion: 'test' });
  const self: TestWorker = {
    workerId,
    book,
    claims,
    settles,
    invited,
    async win(taskId, generation = 1) {
      const answer = await claims.claim({ taskId, generation });
      if (answer.kind !== 'won') throw new WarrenError('task-not-found', { taskId, reason: 'the claim was lost' });
      return answer.claim;
    },
  };
  return self;
}

/** A verdict; by default a failure that is tried again in a second. */
export function aVerdict(verdict: Partial<Verdict> = {}): Verdict {
  return {
    state: 'retrying',
    failures: 1,
    delayMs: 1_000,
    outcome: 'failed',
    reason: 'attempts_exhausted',
    error: { type: 'Error', message: 'did not work', causes: [] },
    ...verdict,
  };
}

/** A verdict that makes the task dead. */
export function aDeath(verdict: Partial<Verdict> = {}): Verdict {
  return aVerdict({ state: 'dead', delayMs: 0, reason: 'non_retryable', ...verdict });
}

/** A verdict that hands the task back. */
export function aHandBack(): Verdict {
  return aVerdict({ state: 'pending', failures: 0, delayMs: 0, outcome: 'interrupted', error: undefined });
}
