/** What the route of scaling takes and answers, as the OpenAPI document shows it. */
import { z } from 'zod';
import { QUEUE_MODES } from '../../../shared/tasks/queue-mode.ts';
import type { QueueMode } from '../../../shared/tasks/queue-mode.ts';

/** The most workers that can be asked about. */
export const MOST_WORKERS = 10_000;

const count = z.int().min(0);
const bound = z.coerce.number().int().min(0).max(MOST_WORKERS).optional();

/** Path. */
export const scalingParams = z.object({ queue: z.string().max(100).describe('Name of the queue.') });

/** Query. */
export const scalingQuery = z.strictObject({
  slo: z
    .string()
    .max(40)
    .optional()
    .describe(
      'The target: 95 of 100 tasks wait at most so long to be started, such as `30s` or `5m`; 100ms to 1d. Default `scaling.sloMs`.',
    ),
  min: bound.describe('The fewest workers that are answered. Default 0.'),
  max: bound.describe('The most workers that are answered. Default `scaling.maxWorkers`.'),
  slots: z.coerce
    .number()
    .int()
    .min(1)
    .max(1_000)
    .optional()
    .describe(
      'Tasks that a worker runs at once, for as long as no worker of the queue is there to tell. Default `scaling.slots`.',
    ),
});

/** Answer. */
export const scalingAnswer = z.object({
  queue: z.string(),
  workersWanted: count.describe('Workers that keep the wait within the target, within min and max.'),
  why: z.string().describe('What decided, in one line.'),
  sloSeconds: z.number(),
  min: count,
  max: count,
  mode: z.enum(Object.keys(QUEUE_MODES) as QueueMode[]),
  slotsWanted: count.describe('Tasks that are to run at once: what the workers are wanted for.'),
  waiting: count
    .optional()
    .describe('Tasks that could start and wait: ready + held + turns. Absent while RabbitMQ does not answer.'),
  ready: count.optional().describe('Of these, invitations in RabbitMQ that no worker holds.'),
  held: count.describe('Of these, those that workers hold and have no free slot for.'),
  turns: count.describe('Of these, those that wait for their turn in a fair queue, counted up to 100000.'),
  running: count.describe('Tasks that run on workers that stay, whether their deliveries are acked or not.'),
  arrivalPerSecond: z.number().describe('Tasks accepted a second, over two minutes; over 15 seconds where it rises.'),
  meanRunSeconds: z.number().optional().describe('Mean of a run. Absent where no run of its types was measured.'),
  slotsPerWorker: z.number().describe('Tasks of this queue that a worker runs at once.'),
  workers: count.describe('Workers that take tasks of the queue, without those on their way out.'),
  draining: count.describe('Workers on their way out.'),
  ending: count.describe('Tasks that those still run.'),
  mostRunning: count
    .optional()
    .describe('What the limits of its task types let run at once, where they do not let any number.'),
});
