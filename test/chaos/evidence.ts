/** All that the checker judges by: two logs that Warren does not write, its tables, its queues, its processes. */
import type { Database } from '../../shared/postgres/pool.ts';
import { run } from '../../shared/postgres/statement.ts';
import type { JournalEntry } from '../support/tasks/journal.ts';
import { listChaosAttempts, listChaosLetters, listChaosTasks, listSteps } from './evidence.sql.ts';
import type { FlowEvidence } from './flow-evidence.ts';
import type { ScheduleEvidence } from './schedule-evidence.ts';
import type { Press } from './operator.ts';
import type { Submission } from './submissions.ts';
import type { ProcessEnd } from './supervised.ts';

/** A task's row. */
export interface TaskRow {
  readonly id: string;
  readonly state: string;
  readonly attempt: number;
  readonly acceptedAt: Date;
  readonly startedAt: Date | undefined;
  readonly finishedAt: Date | undefined;
  /** Key of its submission; over AMQP it is the message id as well. */
  readonly key: string | undefined;
  /** The flow that it is a step of; absent once it has left it. */
  readonly flowId?: string | undefined;
}

/** A row of the history. */
export interface AttemptRow {
  readonly taskId: string;
  readonly attempt: number;
  readonly worker: string;
  readonly outcome: string;
  readonly error: string | undefined;
}

/** A dead letter. */
export interface LetterRow {
  readonly id: string;
  readonly kind: string;
  readonly taskId: string | undefined;
  readonly state: string;
  readonly reason: string;
  readonly attempt: number | undefined;
  readonly hasError: boolean;
  /** True where a handler took note of it, or still has time to. */
  readonly isRecorded: boolean;
  /** Of a message that never was a task. */
  readonly messageId: string | undefined;
}

/** A transition. */
export interface Step {
  readonly taskId: string;
  readonly before: string;
  readonly after: string;
  readonly attemptBefore: number;
  readonly attemptAfter: number;
  /** At the start of an attempt whose type has a limit: tasks that run under its key, this one too. */
  readonly atOnce?: number;
}

/** A worker's time under one id. */
export interface WorkerLife {
  readonly workerId: string;
  /** True where its process ended during the run, or said that its lease was taken away. */
  readonly wasCutOff: boolean;
}

/** A line of a service's log at the level `error`. */
export interface ErrorLine {
  readonly process: string;
  readonly message: string;
  readonly text: string;
}

/** Everything. */
export interface Evidence {
  readonly submissions: readonly Submission[];
  readonly runs: readonly JournalEntry[];
  readonly tasks: readonly TaskRow[];
  readonly attempts: readonly AttemptRow[];
  readonly letters: readonly LetterRow[];
  readonly steps: readonly Step[];
  readonly presses: readonly Press[];
  /** Tasks whose cancelling was asked for. */
  readonly cancelled: ReadonlySet<string>;
  readonly workers: readonly WorkerLife[];
  /** Rows and messages that are left, by where they lie. */
  readonly left: Readonly<Record<string, number>>;
  readonly ends: readonly ProcessEnd[];
  readonly errors: readonly ErrorLine[];
  /** True where the broker moves dead messages at most once and was killed: a refused message may be lost then. */
  readonly mayLoseRefused: boolean;
  readonly flows: FlowEvidence;
  readonly schedules: ScheduleEvidence;
}

/** What stands in the tables. */
export async function readTables(db: Database): Promise<Pick<Evidence, 'tasks' | 'attempts' | 'letters' | 'steps'>> {
  const tasks = await run(db, listChaosTasks);
  const attempts = await run(db, listChaosAttempts);
  const letters = await run(db, listChaosLetters);
  const steps = await run(db, listSteps);
  return {
    tasks: tasks.map((row) => ({
      id: row.id,
      state: row.state,
      attempt: row.attempt,
      acceptedAt: row.accepted_at,
      startedAt: row.started_at ?? undefined,
      finishedAt: row.finished_at ?? undefined,
      key: row.business_key ?? undefined,
      ...(row.flow_id === null ? {} : { flowId: row.flow_id }),
    })),
    attempts: attempts.map((row) => ({
      taskId: row.task_id,
      attempt: row.attempt,
      worker: row.worker,
      outcome: row.outcome,
      error: row.error_message ?? undefined,
    })),
    letters: letters.map((row) => ({
      id: row.id,
      kind: row.kind,
      taskId: row.task_id ?? undefined,
      state: row.state,
      reason: row.reason,
      attempt: row.attempt ?? undefined,
      hasError: row.error_message !== null,
      isRecorded: row.is_recorded === true,
      messageId: row.message_id ?? undefined,
    })),
    steps: steps.map((row) => ({
      taskId: row.task_id,
      before: row.before,
      after: row.after,
      attemptBefore: row.attempt_before,
      attemptAfter: row.attempt_after,
      ...(row.at_once === null ? {} : { atOnce: row.at_once }),
    })),
  };
}
