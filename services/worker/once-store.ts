/** Where side effects of tasks are kept: asks Postgres until it answers, or the attempt is cut off. */
import { run } from '../../shared/postgres/statement.ts';
import { MOST_ONCE_KEYS } from '../../shared/tasks/once.ts';
import { askUntilAnswered } from './ask-until-answered.ts';
import type { AskDeps, AttemptProof } from './ask-until-answered.ts';
import { dropOnce, finishOnce, startOnce, takeOverOnce } from './once.sql.ts';

/** One step of a side effect. `runId` is the same each time that a step is asked for again. Plain data: it crosses threads. */
export type OnceStep =
  | { readonly kind: 'start'; readonly key: string; readonly runId: string }
  | { readonly kind: 'takeOver'; readonly key: string; readonly runId: string; readonly from: string }
  | { readonly kind: 'finish'; readonly key: string; readonly runId: string; readonly result: Uint8Array | undefined }
  | { readonly kind: 'drop'; readonly key: string; readonly runId: string };

/** What a step came to. `fenced`: the attempt has lost its claim. `full`: the task has as many keys as it may. */
export type OnceAnswer =
  | { readonly kind: 'done' }
  | { readonly kind: 'finished'; readonly result: Uint8Array | undefined }
  | { readonly kind: 'unknown'; readonly runId: string; readonly startedAt: Date; readonly attempt: number }
  | { readonly kind: 'fenced' }
  | { readonly kind: 'full' };

/** Keeps side effects; in a thread it asks the worker. */
export interface OnceStore {
  /** Throws once the signal has aborted and Postgres does not answer. */
  ask(proof: AttemptProof, step: OnceStep, signal: AbortSignal): Promise<OnceAnswer>;
}

const DONE: OnceAnswer = { kind: 'done' };
const FENCED: OnceAnswer = { kind: 'fenced' };

/** Keeps them in Postgres. */
export class DatabaseOnceStore implements OnceStore {
  readonly #deps: AskDeps;

  constructor(deps: AskDeps) {
    this.#deps = deps;
  }

  /** A step whose answer was lost may have been committed: each is such that asking again under its `runId` changes nothing. */
  async ask(proof: AttemptProof, step: OnceStep, signal: AbortSignal): Promise<OnceAnswer> {
    return await askUntilAnswered(
      this.#deps,
      proof,
      { what: `once: ${step.kind}`, signal },
      async () => await this.#ask(proof, step),
    );
  }

  async #ask({ taskId, attempt, claimId }: AttemptProof, step: OnceStep): Promise<OnceAnswer> {
    const { db } = this.#deps;
    const { key, runId } = step;
    switch (step.kind) {
      case 'start':
        return await this.#start({ taskId, attempt, claimId }, key, runId);
      case 'takeOver':
        return answerOf(await run(db, takeOverOnce, taskId, attempt, claimId, key, step.from, runId));
      case 'finish': {
        const result = step.result === undefined ? null : asBuffer(step.result);
        return answerOf(await run(db, finishOnce, taskId, attempt, claimId, key, runId, result));
      }
      case 'drop':
        return answerOf(await run(db, dropOnce, taskId, attempt, claimId, key, runId));
    }
  }

  async #start({ taskId, attempt, claimId }: AttemptProof, key: string, runId: string): Promise<OnceAnswer> {
    const [row] = await run(this.#deps.db, startOnce, taskId, attempt, claimId, key, runId, MOST_ONCE_KEYS);
    if (row === undefined) return FENCED;
    if (row.is_started || row.run_id === runId) return DONE;
    if (row.run_id === null || row.started_at === null) return { kind: 'full' };
    if (row.finished_at !== null) return { kind: 'finished', result: row.result ?? undefined };
    return { kind: 'unknown', runId: row.run_id, startedAt: row.started_at, attempt: row.attempt ?? 0 };
  }
}

function answerOf(rows: readonly unknown[]): OnceAnswer {
  return rows.length > 0 ? DONE : FENCED;
}

/** What came out of a thread is a plain Uint8Array. */
function asBuffer(bytes: Uint8Array): Buffer {
  return Buffer.from(bytes.buffer, bytes.byteOffset, bytes.length);
}
