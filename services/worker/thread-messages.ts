/** What passes between the worker and a handler in a thread. Everything here can be cloned. */
import type { MessagePort } from 'node:worker_threads';
import type { TaskId } from '../../shared/tasks/ids.ts';

/** One call. */
export interface ThreadCall {
  /** URL of the module that exports the type. */
  readonly module: string;
  readonly taskType: string;
  readonly taskId: TaskId;
  readonly attempt: number;
  readonly input: Uint8Array;
  readonly resultMaxBytes: number;
  /** Whether debug lines of the handler go anywhere. */
  readonly isDebug: boolean;
  readonly port: MessagePort;
}

/** From the thread. Each `…Asked` gets one answer with its `id`. */
export type FromThread =
  | { readonly kind: 'progress'; readonly fraction: number; readonly step: string | undefined }
  | {
      readonly kind: 'log';
      readonly level: 'error' | 'warn' | 'info' | 'debug';
      readonly message: string;
      readonly fields: object | undefined;
    }
  | { readonly kind: 'tempDirAsked'; readonly id: number }
  | { readonly kind: 'breakerAsked'; readonly id: number; readonly name: string }
  /**
   * The call that a breaker let through has ended. `failed` only where that speaks against the dependency: then the answer is
   * what it means for the caller, `breakerOpen` or `breakerCallFailed`.
   */
  | { readonly kind: 'breakerCallEnded'; readonly id: number; readonly failed: boolean };

/** To the thread. */
export type ToThread =
  | { readonly kind: 'abort'; readonly code: 'attempt-timeout' | 'attempt-interrupted'; readonly facts: object }
  | { readonly kind: 'tempDir'; readonly id: number; readonly path: string | undefined; readonly reason: string }
  | { readonly kind: 'breakerLetThrough'; readonly id: number }
  | { readonly kind: 'breakerOpen'; readonly id: number; readonly delayMs: number }
  | { readonly kind: 'breakerCallFailed'; readonly id: number }
  /** The breaker's call timeout passed. */
  | { readonly kind: 'breakerCallLate'; readonly id: number };
