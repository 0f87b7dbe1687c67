/**
 * The whole protocol at once, without processes: workers that die and come back too late, answers and invitations that get
 * lost, cancels, edits and deadlines, over one database. Afterwards every invariant must hold.
 */
import { afterAll, beforeAll, expect, test } from '@jest/globals';
import { cancelEach, cancelTask } from '../../services/producer/cancel.ts';
import { createDispatcher } from '../../services/producer/dispatcher.ts';
import { editEach, editTask } from '../../services/producer/edit.ts';
import type { TaskChanges } from '../../services/producer/edit.ts';
import { createOutboxSweeper } from '../../services/producer/outbox-sweeper.ts';
import { followCancelRequests, lapseLeases, reapOrphans } from '../../services/producer/reaper.sql.ts';
import type { Claim } from '../../services/worker/claims.ts';
import { judge } from '../../services/worker/verdict.ts';
import { isWarrenError } from '../../shared/errors/warren-error.ts';
import { Loop } from '../../shared/lifecycle/loop.ts';
import { run } from '../../shared/postgres/statement.ts';
import { retryConflicts } from '../../shared/postgres/transaction.ts';
import type { Invitation, OutboxRow } from '../../shared/tasks/invitation.ts';
import { outboxRowsOf } from '../../shared/tasks/outbox.ts';
import type { Outcome } from '../../shared/tasks/outcome.ts';
import { isTransition } from '../../shared/tasks/state-machine.ts';
import type { TaskState } from '../../shared/tasks/state-machine.ts';
import { systemClock } from '../../shared/time/clock.ts';
import { addLease, addTask, count, openFaulty, openWorker, partDeps, rows } from '../support/core.ts';
import type { FaultyDatabase, TestWorker } from '../support/core.ts';
import { openDatabase } from '../support/database.ts';
import type { TestDatabase } from '../support/database.ts';
import { eventually } from '../support/eventually.ts';
import { expectBalance, openAudit } from '../support/ledger.ts';
import { seeded } from '../support/seeded.ts';

const TASKS = 150;
const WORKERS = 3;
const ENDED = `('succeeded', 'dead', 'cancelled', 'expired')`;

let opened: TestDatabase;
let db: TestDatabase['database'];
beforeAll(async () => {
  opened = await openDatabase({ max: 10 });
  db = opened.database;
  for (const text of [
    'create table steps (task_id uuid, before task_state, after task_state, attempt_before int, attempt_after int)',
    `create function note_step() returns trigger language plpgsql as $$
       begin insert into steps values (new.id, old.state, new.state, old.attempt, new.attempt); return null; end $$`,
    'create trigger note_step after update on tasks for each row execute function note_step()',
  ]) {
    await db.query({ text });
  }
});
afterAll(async () => await opened[Symbol.asyncDispose]());

/** What the broker holds: invitations, some of them twice, in no order. */
class Broker {
  readonly queue: Invitation[] = [];
  readonly #random: () => number;

  constructor(random: () => number) {
    this.#random = random;
  }

  /** Publishes and confirms a row, or dies before. */
  async invite(row: OutboxRow): Promise<boolean> {
    if (this.#random() < 0.1) return false;
    for (const invitation of row.invitations) {
      this.queue.push(invitation);
      if (this.#random() < 0.2) this.queue.push(invitation);
    }
    if (this.#random() < 0.1) return false; // published, and died before the confirm
    await db.query({ text: 'delete from outbox where id = $1', values: [row.id] });
    return true;
  }

  take(): Invitation | undefined {
    return this.queue.splice(Math.floor(this.#random() * this.queue.length), 1)[0];
  }
}

/** A worker that takes invitations until it is stopped. */
class Actor {
  readonly won: Claim[] = [];
  readonly succeeded: string[] = [];
  readonly #faulty: FaultyDatabase;
  readonly #broker: Broker;
  readonly #random: () => number;
  readonly #late: Promise<void>[] = [];
  #isDying = false;

  constructor(faulty: FaultyDatabase, broker: Broker, random: () => number) {
    this.#faulty = faulty;
    this.#broker = broker;
    this.#random = random;
  }

  async work(signal: AbortSignal): Promise<void> {
    const worker = await openWorker(this.#faulty, { maxBatch: 8 });
    const lanes = Array.from({ length: 6 }, async () => {
      while (!signal.aborted) {
        const invitation = this.#broker.take();
        if (invitation === undefined) await systemClock.sleep(2, signal);
        else await this.#attempt(worker, invitation);
        for (const row of worker.invited.splice(0)) await this.#broker.invite(row);
      }
    });
    const forgetting = (async () => {
      while (!signal.aborted) {
        await worker.settles.forgetFinished().catch(() => undefined);
        await systemClock.sleep(20, signal);
      }
    })();
    await Promise.all([...lanes, forgetting]);
    await Promise.all(this.#late);
    await worker.settles.forgetFinished();
  }

  async #attempt(worker: TestWorker, invitation: Invitation): Promise<void> {
    const answer = await worker.claims.claim(invitation);
    if (answer.kind !== 'won') return;
    this.won.push(answer.claim);
    if (this.#random() < 0.03) await this.#die(worker, answer.claim);
    else await this.#settle(worker, answer.claim);
  }

  /** The lease lapses with all that runs; the worker goes on under a new id, and settles what it ran too late. */
  async #die(worker: TestWorker, claim: Claim): Promise<void> {
    if (this.#isDying) return; // with another of its attempts
    this.#isDying = true;
    await db.query({
      text: `update leases set renewed_at = clock_timestamp() - interval '1 h' where worker = $1`,
      values: [worker.workerId],
    });
    worker.workerId = await addLease(db);
    worker.book.clear();
    this.#isDying = false;
    if (this.#random() < 0.5) return;
    this.#late.push(systemClock.sleep(this.#random() * 200).then(async () => await this.#settle(worker, claim)));
  }

  async #settle(worker: TestWorker, claim: Claim): Promise<void> {
    const outcome = this.#outcome();
    const settled =
      outcome.kind === 'succeeded'
        ? await worker.settles.succeed(claim, outcome.result)
        : await worker.settles.settle(
            claim,
            judge(
              outcome,
              { ...claim, policy: { maxAttempts: claim.maxAttempts, firstDelayMs: 4, maxDelayMs: 20 } },
              this.#random,
            ),
          );
    if (outcome.kind === 'succeeded' && settled === 'succeeded') this.succeeded.push(claim.taskId);
  }

  #outcome(): Outcome {
    const chance = this.#random();
    const error = { type: 'Error', message: chance < 0.05 ? 'bad \0 text' : 'no', causes: [] };
    if (chance < 0.3) return { kind: 'failed', reason: 'error', retryable: true, error };
    if (chance < 0.36) return { kind: 'failed', reason: 'error', retryable: false, error };
    if (chance < 0.45) return { kind: 'deferred', delayMs: 5, why: 'handler' };
    if (chance < 0.55) return { kind: 'interrupted', by: 'shutdown' };
    return { kind: 'succeeded', result: Buffer.from('1') };
  }
}

/** The producer's background roles, with times that pass quickly. */
function background(broker: Broker): readonly Loop[] {
  const invite = async (row: OutboxRow): Promise<boolean> => await broker.invite(row);
  const loop = (name: string, round: () => Promise<void>): Loop =>
    new Loop({ ...partDeps, round }, { name, intervalMs: 10 });
  return [
    createDispatcher({ ...partDeps, db, invite }, { intervalMs: 5, batchSize: 20 }),
    createOutboxSweeper(
      { ...partDeps, db, invite, canPublish: () => true, onMeasured: () => undefined },
      { intervalMs: 10, batchSize: 10, retryInMs: 50 },
    ),
    loop('time', async () => {
      await db.query({ text: `update outbox set retry_at = clock_timestamp() where retry_at > clock_timestamp()` });
    }),
    loop('reaper', async () => {
      await run(db, lapseLeases, 600_000);
      const freed = await retryConflicts(db, async () => await run(db, reapOrphans, 50, 3));
      for (const row of outboxRowsOf(freed, ({ id }) => id)) await invite(row);
      await run(db, followCancelRequests);
    }),
  ];
}

const actor = { name: 'anna', role: 'operator' } as const;

/** Fifty clients who cancel and edit whatever they like, one or many, in whatever state it is, while workers claim and settle. */
async function interfere(ids: readonly string[], broker: Broker, random: () => number): Promise<void> {
  const deps = {
    db,
    invite: async (row: OutboxRow) => await broker.invite(row),
    isOutboxFull: () => false,
    metrics: partDeps.metrics,
  };
  const changes = (): TaskChanges => {
    const chance = random();
    if (chance < 0.3) return { priority: Math.floor(random() * 10) };
    if (chance < 0.6) return { delayMs: Math.floor(random() * 60) };
    if (chance < 0.75) return { runAt: null, queue: 'bulk' };
    if (chance < 0.85) return { deadline: new Date(systemClock.now().getTime() + 2_000 * random()) };
    return { deadline: null, input: { bytes: Buffer.from(`{"n":${Math.floor(random() * 9)}}`) } };
  };
  const some = (): string[] => ids.filter(() => random() < 0.2);
  const one = (): string => ids[Math.floor(random() * ids.length)] ?? '';
  const client = async (): Promise<void> => {
    for (let acts = 0; acts < 6; acts += 1) {
      await systemClock.sleep(random() * 80);
      const chance = random();
      try {
        if (chance < 0.1) await cancelTask(db, one(), { actor, reason: undefined });
        else if (chance < 0.12) await cancelEach(db, some().slice(0, 5), { actor, reason: 'many', operation: 'o' });
        else if (chance < 0.8) await editTask(deps, one(), { changes: changes(), actor, reason: undefined });
        else await editEach(deps, some(), { changes: changes(), actor, reason: 'many', operation: 'o' });
      } catch (thrown) {
        if (!isWarrenError(thrown, 'task-finished') && !isWarrenError(thrown, 'task-not-editable')) throw thrown;
      }
    }
  };
  await Promise.all(Array.from({ length: 50 }, client));
}

test.each([1, 2, 3])(
  'all invariants hold after chaos number %s',
  async (seed) => {
    await db.query({
      text: `truncate tasks, claims, leases, outbox, due, cancel_requests, dead_letters, attempts, steps, ledger_entries,
                    ledger_audits`,
    });
    const random = seeded(seed);
    const broker = new Broker(random);
    const ids: string[] = [];
    for (let task = 0; task < TASKS; task += 1) {
      const deadline =
        random() < 0.1 ? { deadline: `clock_timestamp() + interval '${Math.floor(random() * 400)} ms'` } : {};
      const late = random() < 0.2 ? { state: 'scheduled' as const, runAt: `clock_timestamp() + interval '50 ms'` } : {};
      ids.push(await addTask(db, { ...deadline, ...late }));
    }
    await db.query({
      text: `insert into outbox (retry_at, task_ids, types, queues, priorities, generations)
           select clock_timestamp(), array[id], array[type], array[queue], array[priority], array[generation]
             from tasks where state = 'pending' and attempt = 0 and id = any($1::uuid[])`,
      values: [`{${ids.join(',')}}`],
    });
    // In no snapshot does the audit see a difference, or a task without the row that stands for it.
    await using audit = await openAudit(db, { intervalMs: 20, rowsPerStep: 50 });
    const faulty = await openFaulty(db);
    faulty.fault = (name) => {
      const chance = name === '' ? 1 : random();
      return chance < 0.04 ? 'lose' : chance < 0.08 ? 'refuse' : undefined;
    };
    const stopping = new AbortController();
    const actors = Array.from({ length: WORKERS }, () => new Actor(faulty, broker, random));
    const loops = background(broker);
    for (const loop of loops) await loop.start();
    const working = Promise.all(actors.map(async (actor) => await actor.work(stopping.signal)));
    const mine = `id = any('{${ids.join(',')}}')`;
    try {
      await interfere(ids, broker, random);
      await eventually(async () => expect(await count(db, 'tasks', `${mine} and state not in ${ENDED}`)).toBe(0), {
        withinMs: 40_000,
      });
      faulty.fault = () => undefined;
      stopping.abort();
      await working;
      // Nothing is left over: what a living worker forgot would stand here.
      const leftOver = `select c.id, l.worker is not null as lives, c.task_ids from claims c left join leases l using (worker)`;
      await eventually(async () => expect(await rows(db, leftOver)).toEqual([]));
      await eventually(async () => expect(await count(db, 'cancel_requests')).toBe(0));
      // What ended before its deadline is forgotten when that has passed.
      await eventually(async () =>
        expect(await count(db, 'due', `task_id in (select id from tasks where state in ${ENDED})`)).toBe(0),
      );
    } finally {
      faulty.fault = () => undefined;
      stopping.abort();
      await working;
      for (const loop of loops) await loop.stop(systemClock.monotonicMs() + 5_000);
      await faulty[Symbol.asyncDispose]();
    }

    // 2: one outcome
    const succeeded = actors.flatMap((actor) => actor.succeeded);
    expect(new Set(succeeded).size).toBe(succeeded.length);
    expect(await count(db, 'tasks', `id = any('{${succeeded.join(',')}}') and state = 'succeeded'`)).toBe(
      succeeded.length,
    );
    expect(await count(db, 'tasks', `${mine} and state = 'succeeded'`)).toBe(succeeded.length);
    const won = actors.flatMap((actor) => actor.won.map(({ taskId, attempt }) => `${taskId}/${attempt}`));
    expect(new Set(won).size).toBe(won.length);

    // 3: every attempt that did not succeed says why
    const unexplained = `select t.id, n as attempt from tasks t, generate_series(1, t.attempt) n
     where t.${mine} and not (t.state = 'succeeded' and n = t.attempt)
       and not exists (select from attempts a where a.task_id = t.id and a.attempt = n)`;
    expect(await rows(db, unexplained)).toEqual([]);

    // 4: one dead letter per death
    const wrongLetters = `select t.id, t.state from tasks t
     where t.${mine} and (t.state = 'dead')::int <> (select count(*) from dead_letters l where l.task_id = t.id)`;
    expect(await rows(db, wrongLetters)).toEqual([]);

    // 6: no way that the state machine does not have, and attempts only rise
    const steps = await rows<{ before: TaskState; after: TaskState }>(
      db,
      'select distinct before, after from steps where before <> after',
    );
    expect(steps.filter(({ before, after }) => !isTransition(before, after))).toEqual([]);
    expect(await count(db, 'steps', `attempt_after <> attempt_before + (after = 'running')::int`)).toBe(0);

    // Both edits and cancels were at work
    const acts = await rows<{ action: string }>(db, 'select distinct action from audit order by 1');
    expect(acts.map(({ action }) => action)).toEqual(['task.cancel', 'task.edit']);

    // The books
    await audit.pass();
    expect(audit.lines).toEqual([]);
    await expectBalance(db);
  },
  60_000,
);
