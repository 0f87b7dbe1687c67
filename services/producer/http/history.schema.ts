/** What the Task API answers about the life of a task, as the OpenAPI document shows it. */
import { z } from 'zod';
import { pageQuery } from '../../../shared/http/paging.ts';
import { NO_LINES } from '../../../shared/tasks/attempt-logs.ts';
import { faultOfOnceKey } from '../../../shared/tasks/once.ts';
import { TASK_STATES } from '../../../shared/tasks/state-machine.ts';

const instant = z.iso.datetime({ offset: true });
const id = z.uuid();

/** Query of a history. */
export const historyQuery = z.strictObject(pageQuery.shape);

const entry = z.looseObject({
  at: instant,
  kind: z
    .enum(['accepted', 'invited', 'started', 'ended', 'died', 'replayed', 'discarded', 'act', 'finished', 'restored'])
    .describe(
      'accepted: by whom, through which door. invited: a wait was over (for its instant, for room under a limit, for its queue), or it was invited ' +
        'once more, and it might start. started, ended: of an attempt. died: its dead letter. replayed, discarded: what became of that. ' +
        'act: what somebody did with the task or a letter of it, from the audit. finished: its end, where that is no death. restored: the database ' +
        'came from a backup; up to this attempt it may have run meanwhile.',
    ),
  by: z.string().optional().describe('Who or what caused it.'),
  door: z.enum(['http', 'amqp', 'flow', 'schedule']).optional(),
  until: instant.optional().describe('While it waits for an instant: which.'),
  attempt: z.int().optional(),
  worker: id.optional(),
  outcome: z
    .enum(['succeeded', 'failed', 'timeout', 'deferred', 'interrupted', 'cancelled', 'lost'])
    .optional()
    .describe('How the attempt ended.'),
  became: z.enum(TASK_STATES).optional().describe('What the task became when the attempt ended.'),
  error: z.object({ type: z.string(), code: z.string(), message: z.string() }).partial().optional(),
  codeVersion: z.string().optional(),
  hasLogs: z.literal(true).optional().describe('Lines of the attempt are kept: see its logs.'),
  progress: z.object({ fraction: z.number(), step: z.string().optional(), updatedAt: instant }).optional(),
  letterId: id.optional().describe('The dead letter.'),
  reason: z
    .string()
    .optional()
    .describe('Why it died, was replayed or discarded, or was cancelled by its flow; how it was restored.'),
  replayId: id.optional().describe('The replay that made it run again.'),
  action: z.string().optional().describe('What was done: task.cancel, task.forget-once, …'),
  role: z.string().optional(),
  address: z.string().optional(),
  detail: z.record(z.string(), z.unknown()).optional(),
  state: z.enum(TASK_STATES).optional().describe('Of `finished`: the state it ended in.'),
});

/** A page of a history. */
export const historyPage = z.object({
  taskId: id,
  state: z.enum(TASK_STATES).describe('The state now.'),
  items: z.array(entry).describe('Oldest first.'),
  nextCursor: z.string().optional().describe('There is more; absent on the last page.'),
});

/** Path of an attempt. */
export const attemptParams = z.object({
  id: z.string().max(100).describe('Id of the task.'),
  attempt: z.coerce.number().int().min(1).max(2_147_483_647).describe('Number of the attempt, from 1.'),
});

/** What an attempt logged. */
export const attemptLogs = z.object({
  taskId: id,
  attempt: z.int(),
  outcome: z.string().describe('How the attempt ended; running while it has not.'),
  dropped: z.int().describe('Lines left out between the first and the last that are kept.'),
  why: z
    .enum(Object.keys(NO_LINES) as [keyof typeof NO_LINES])
    .optional()
    .describe('Why there are no lines.'),
  note: z.string().optional().describe('The same in words.'),
  lines: z
    .array(
      z.object({
        at: instant,
        level: z.enum(['error', 'warn', 'info', 'debug']),
        message: z.string(),
        fields: z.record(z.string(), z.unknown()).optional(),
        cut: z
          .object({ characters: z.int(), start: z.string() })
          .optional()
          .describe(
            'Instead of the fields of a line that was too large: their size, and their beginning as JSON text.',
          ),
      }),
    )
    .describe('Oldest first; at most 200 lines and 64 KiB.'),
});

/** The side effects of a task. */
export const onceRuns = z.object({
  taskId: id,
  items: z.array(
    z.object({
      key: z.string(),
      state: z.enum(['finished', 'begun']).describe('begun: under way, or cut in the middle where no attempt runs.'),
      attempt: z.int().describe('The attempt that began it.'),
      startedAt: instant,
      finishedAt: instant.optional(),
      result: z.unknown().optional(),
    }),
  ),
});

/** Body of forgetting. */
export const forgetBody = z.strictObject({
  key: z.string().refine((key) => faultOfOnceKey(key) === undefined, 'must be a key of ctx.once'),
  reason: z.string().min(1).max(500).describe('Kept in the audit.'),
});

/** Answer to forgetting. */
export const forgetAnswer = z.object({ id, key: z.string(), forgotten: z.literal(true) });
