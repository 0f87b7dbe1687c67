/** Who wants to be told how a task ended, as it is asked for with the task and kept beside it. */
import { z } from 'zod';
import { TERMINAL_STATES } from './state-machine.ts';
import type { TaskState } from './state-machine.ts';

/** Name of the built-in type that calls a webhook. Warren alone makes such tasks: what they send is signed with its secret. */
export const WEBHOOK_TYPE = 'warren.webhook';

/** A wish to be told. */
export type Callback =
  | {
      readonly kind: 'webhook';
      readonly url: string;
      /** The ends that are told of; absent: all. */
      readonly states?: readonly TaskState[];
    }
  | {
      readonly kind: 'reply';
      /** A queue: what is told goes there by the default exchange. */
      readonly replyTo: string;
      readonly correlationId?: string;
    };

const state = z.enum(TERMINAL_STATES as readonly [TaskState, ...TaskState[]]);

/** How a callback is kept. */
const kept = z.discriminatedUnion('kind', [
  z.object({ kind: z.literal('webhook'), url: z.string(), states: z.array(state).optional() }),
  z.object({ kind: z.literal('reply'), replyTo: z.string(), correlationId: z.string().optional() }),
]);

/** Reads a callback as it was kept; `undefined` for what is none. */
export function parseCallback(value: unknown): Callback | undefined {
  const parsed = kept.safeParse(value);
  return parsed.success ? (parsed.data as Callback) : undefined;
}

/** The input of a task that calls a webhook. */
export const webhookInput = z.strictObject({
  url: z.string(),
  /** The id of the message: the same, however often it is delivered. */
  id: z.string(),
  /** What is sent and signed: JSON as text, so that it stays what it is. */
  body: z.string(),
});
