/** What passes between the worker and a handler in a thread. Everything here can be cloned. */
import type { MessagePort } from 'node:worker_threads';
import type { ErrorCode } from '../../shared/errors/catalogue.ts';
import type { FileDescription, FileReference } from '../../shared/files/file-reference.ts';
import type { TaskId } from '../../shared/tasks/ids.ts';
import type { ProgressWord } from './context.ts';
import type { AddedSteps } from '../../shared/tasks/add-step.ts';
import type { OnceAnswer, OnceStep } from './once-store.ts';
import type { AskedStep } from './step-adder.ts';
import type { AskedResults, ResultsPage } from './step-reader.ts';

/** One call. */
export interface ThreadCall {
  /** URL of the module that exports the type. */
  readonly module: string;
  readonly taskType: string;
  readonly taskId: TaskId;
  readonly attempt: number;
  readonly claimId: string;
  /** Schema of Warren's tables. */
  readonly schema: string;
  readonly input: Uint8Array;
  /** Where the attempt stands in a trace. */
  readonly trace: string | undefined;
  readonly resultMaxBytes: number;
  /** Whether debug lines of the handler go anywhere. */
  readonly isDebug: boolean;
  readonly port: MessagePort;
}

/** Why a file was not saved. `code`: of the catalogue where it was an error of Warren. */
export interface SaveFailure {
  readonly code: ErrorCode | undefined;
  readonly facts: object;
  /** Of any other error. */
  readonly message: string;
  readonly errorCode: string | undefined;
}

/** From the thread. Each `…Asked` gets one answer with its `id`. */
export type FromThread =
  | ({ readonly kind: 'progress' } & ProgressWord)
  | {
      readonly kind: 'log';
      readonly level: 'error' | 'warn' | 'info' | 'debug';
      readonly message: string;
      readonly fields: object | undefined;
    }
  | { readonly kind: 'tempDirAsked'; readonly id: number }
  | { readonly kind: 'saveAsked'; readonly id: number; readonly path: string; readonly description: FileDescription }
  | { readonly kind: 'breakerAsked'; readonly id: number; readonly name: string }
  | { readonly kind: 'onceAsked'; readonly id: number; readonly step: OnceStep }
  | { readonly kind: 'stepAsked'; readonly id: number; readonly asked: AskedStep }
  | { readonly kind: 'resultsAsked'; readonly id: number; readonly asked: AskedResults }
  /** The handler settles in a transaction of its own, from its thread. */
  | { readonly kind: 'settlesWith' }
  /**
   * The call that a breaker let through has ended. `failed` only where that speaks against the dependency: then the answer is
   * what it means for the caller, `breakerOpen` or `breakerCallFailed`.
   */
  | { readonly kind: 'breakerCallEnded'; readonly id: number; readonly failed: boolean };

/** To the thread. */
export type ToThread =
  | { readonly kind: 'abort'; readonly code: 'attempt-timeout' | 'attempt-interrupted'; readonly facts: object }
  | { readonly kind: 'tempDir'; readonly id: number; readonly path: string | undefined; readonly reason: string }
  | { readonly kind: 'onceAnswered'; readonly id: number; readonly answer: OnceAnswer }
  | { readonly kind: 'stepAdded'; readonly id: number; readonly added: AddedSteps }
  | { readonly kind: 'resultsRead'; readonly id: number; readonly page: ResultsPage }
  /** What was asked could not be done. */
  | { readonly kind: 'askFailed'; readonly id: number; readonly code: ErrorCode; readonly facts: object }
  | { readonly kind: 'saved'; readonly id: number; readonly reference: FileReference }
  | { readonly kind: 'saveFailed'; readonly id: number; readonly failure: SaveFailure }
  | { readonly kind: 'breakerLetThrough'; readonly id: number }
  | { readonly kind: 'breakerOpen'; readonly id: number; readonly delayMs: number }
  | { readonly kind: 'breakerCallFailed'; readonly id: number }
  /** The breaker's call timeout passed. */
  | { readonly kind: 'breakerCallLate'; readonly id: number };
