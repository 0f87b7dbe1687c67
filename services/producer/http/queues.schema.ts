/** What the API of queues takes and answers. */
import { z } from 'zod';
import { isLimitKey } from '../../../shared/tasks/limit-key.ts';
import { QUEUE_MODES } from '../../../shared/tasks/queue-mode.ts';

const MODES = Object.keys(QUEUE_MODES) as (keyof typeof QUEUE_MODES)[];
const mode = z.enum(MODES).describe(MODES.map((each) => `${each}: ${QUEUE_MODES[each]}`).join(' '));

/** By what a queue is fair. */
const fairness = z.object({
  key: z.string().describe('Member of the input whose values take turns.'),
  weights: z.record(z.string(), z.int()).describe('Tasks in a turn of a key; 1 for all others.'),
  depth: z.int().describe('Tasks that are invited at a time and have not started.'),
});

/** Queues. */
export const queueList = z.object({
  items: z.array(
    z.object({
      name: z.string(),
      taskTypes: z.array(z.string()),
      mode,
      modeReason: z.string().optional(),
      modeBy: z.string().optional(),
      modeSince: z.iso.datetime({ offset: true }).optional(),
      running: z.int().describe('Tasks of it that run now.'),
      ready: z
        .int()
        .optional()
        .describe('Invitations that wait in RabbitMQ, as of the last reading, some 15 s ago at most.'),
      holdsBack: z.boolean().describe('True where tasks wait for the queue to be resumed.'),
      fairness: fairness
        .extend({ waiting: z.int().describe('Tasks that wait for their turn, counted up to 100000.') })
        .optional()
        .describe('Absent where the queue is first come, first served within a priority.'),
    }),
  ),
});

/** Body of a pause, a drain and a resume. */
export const modeBody = z.strictObject({
  reason: z.string().max(500).optional().describe('Shown with the queue, and kept in the audit.'),
});

/** Body of a call that makes a queue fair. */
export const fairnessBody = z.strictObject({
  key: z
    .string()
    .refine((path) => isLimitKey(path), 'must be a path of 1 to 8 names such as input.tenantId')
    .describe('Member of the input whose values take turns, such as `input.tenantId`.'),
  weights: z
    .record(z.string().max(200), z.int().min(1).max(100))
    .refine((weights) => Object.keys(weights).length <= 1_000, 'must be at most 1000 keys')
    .optional()
    .describe('Tasks in a turn of a key, 1 to 100. Default 1.'),
  depth: z
    .int()
    .min(1)
    .max(1_000)
    .optional()
    .describe(
      'Tasks that are invited at a time and have not started. 1 to 1000, default 100: more than all slots of its workers.',
    ),
  reason: modeBody.shape.reason,
});

/** Answer to it. */
export const fairnessAnswer = z.object({ name: z.string(), fairness });

/** Answer to a call that makes a queue fair no longer. */
export const unfairAnswer = z.object({ name: z.string() });

/** Answer to them. */
export const modeAnswer = z.object({ name: z.string(), mode, was: mode });
