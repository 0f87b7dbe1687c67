/** A worker's way in over a real broker and a real database, with handlers that a test writes as functions. */
import { z } from 'zod';
import type { AttemptObserver } from '../../services/worker/attempt.ts';
import type { Claim } from '../../services/worker/claims.ts';
import { Intake } from '../../services/worker/intake.ts';
import { Isolation } from '../../services/worker/isolation.ts';
import type { Settled } from '../../services/worker/settles.ts';
import { Unstarted } from '../../services/worker/unstarted.ts';
import { defineTask } from '../../shared/tasks/define-task.ts';
import type { TaskType } from '../../shared/tasks/define-task.ts';
import type { OutboxRow } from '../../shared/tasks/invitation.ts';
import type { Outcome } from '../../shared/tasks/outcome.ts';
import type { RetryPolicy } from '../../shared/tasks/retry-policy.ts';
import { systemClock } from '../../shared/time/clock.ts';
import { addTask, openWorker, partDeps, rows } from './core.ts';
import type { NewTask, TestWorker } from './core.ts';
import type { TestWork } from './work.ts';

/** What a task of a type does. */
export type Handler = (claim: Claim) => Promise<Outcome> | Outcome;

/** How an intake of a test runs. */
export interface TestIntakeOptions {
  readonly handlers: Readonly<Record<string, Handler>>;
  readonly concurrency?: number;
  readonly prefetch?: number;
  readonly localWaitMs?: number;
  /** Default: no delivery is acked at its claim. */
  readonly mostUnansweredMs?: number;
  readonly retry?: Partial<RetryPolicy>;
}

/** A worker that takes deliveries. */
export interface TestIntake extends AsyncDisposable {
  readonly intake: Intake;
  readonly worker: TestWorker;
  readonly isolation: Isolation;
  /** Task ids in the order in which their attempts started. */
  readonly started: string[];
  /** How each settle was answered, by task. */
  readonly settled: Map<string, Settled>;
  /** Claims that were lost. */
  readonly lost: () => number;
  /** Deliveries that the broker holds for it. */
  readonly unanswered: () => number | undefined;
  /** Most attempts that ran at once. */
  readonly mostRunning: () => number;
  /** Handlers that ignored their abort and still run, as the intake sees it. Default 0. */
  abandonedHandlers: number;
  /** Whether Postgres is there, as the intake sees it. */
  canClaim: boolean;
}

/** An outcome that succeeds. */
export const succeeded: Outcome = { kind: 'succeeded', result: undefined };

/** Opens and starts one on the queue `default`. */
export async function openIntake(work: TestWork, options: TestIntakeOptions): Promise<TestIntake> {
  const { db, backbone } = work;
  const types = new Map<string, TaskType>();
  for (const name of Object.keys(options.handlers)) {
    const { retry = {} } = options;
    types.set(name, defineTask({ name, input: z.unknown(), run: () => undefined, retry }) as unknown as TaskType);
  }
  const worker = await openWorker(db);
  const invite = async (row: OutboxRow): Promise<boolean> => await backbone.inviter.invite(row);
  const unstarted = new Unstarted({ ...partDeps, db, invite }, { maxBatch: 500 });
  const isolation = new Isolation(() => systemClock.monotonicMs());
  const started: string[] = [];
  const settled = new Map<string, Settled>();
  let running = 0;
  let most = 0;
  let lost = 0;
  const observe: AttemptObserver = {
    claimRefused: () => {
      lost += 1;
    },
    started: (_type, claim) => started.push(claim.taskId),
    ended: () => undefined,
    settled: (_type, claim, _outcome, how) => settled.set(claim.taskId, how),
  };
  const intake: Intake = new Intake(
    {
      ...partDeps,
      connection: backbone.consuming,
      queueName: backbone.names.queue,
      onQueueMissing: async () => await Promise.resolve(),
      canClaim: () => self.canClaim,
      isQueuePaused: () => false,
      onDone: () => undefined,
      attempt: {
        findType: (name) => types.get(name),
        deferUnknown: async (wanted) => await unstarted.defer(wanted),
        claim: async (wanted) => await worker.claims.claim(wanted),
        isolation,
        abandonedHandlers: () => self.abandonedHandlers,
        markAlone: async (claim) => await worker.claims.markAlone(claim),
        whenDecided: async (claim) => await worker.settles.whenDecided(claim),
        run: async ({ name }, claim) => {
          running += 1;
          most = Math.max(most, running);
          try {
            return (await options.handlers[name]?.(claim)) ?? succeeded;
          } finally {
            running -= 1;
          }
        },
        succeed: async (claim, result) => await worker.settles.succeed(claim, result),
        settle: async (claim, verdict) => await worker.settles.settle(claim, verdict),
        freePlace: () => undefined,
        mostUnansweredMs: options.mostUnansweredMs ?? Number.POSITIVE_INFINITY,
        inviteAgain: async (wanted) => await unstarted.inviteAgain(wanted),
        isDraining: () => intake.isDraining,
        random: partDeps.random,
        log: partDeps.log,
        observe,
      },
    },
    {
      queues: [{ name: 'default', concurrency: options.concurrency ?? 10 }],
      prefetch: options.prefetch ?? 0,
      localWaitMs: options.localWaitMs ?? 600_000,
      maxTasks: 0,
      idleExitMs: 0,
    },
  );
  const self: TestIntake = {
    intake,
    worker,
    isolation,
    started,
    settled,
    lost: () => lost,
    unanswered: () => intake.lines[0]?.unanswered,
    mostRunning: () => most,
    abandonedHandlers: 0,
    canClaim: true,
    [Symbol.asyncDispose]: async () => await intake.stop(systemClock.monotonicMs() + 3_000),
  };
  await intake.start();
  return self;
}

/** Adds a task and publishes its invitation, and waits for the broker's confirm. */
export async function inviteTask(work: TestWork, task: NewTask = {}): Promise<string> {
  const id = await addTask(work.db, task);
  await inviteAnew(work, id);
  return id;
}

/** Publishes an invitation of a task as its row is. */
export async function inviteAnew(work: TestWork, id: string, generation?: number): Promise<void> {
  const [row] = await rows<{ type: string; queue: string; priority: number; generation: number }>(
    work.db,
    'select type, queue, priority, generation from tasks where id = $1',
    id,
  );
  if (row === undefined) throw new RangeError(`no task ${id}`);
  await work.backbone.invite({ taskId: id, ...row, generation: generation ?? row.generation });
}
