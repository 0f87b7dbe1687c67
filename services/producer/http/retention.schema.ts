/** What the routes of retention and erasing take and answer, as the OpenAPI document shows it. */
import { z } from 'zod';
import { isStorableText } from '../../../shared/text/storable.ts';

const instant = z.iso.datetime({ offset: true });
const range = { from: instant.optional(), to: instant.optional() };

/** What is kept, where it is, and what the next round does. */
export const retentionAnswer = z.object({
  now: instant.describe("By Postgres's clock."),
  rules: z
    .array(
      z.object({
        type: z.string().optional().describe('Absent: all types without a rule of their own.'),
        state: z.string(),
        keptMs: z.number().describe('Milliseconds from the end; of a dead task from when its letter was closed.'),
      }),
    )
    .describe('How long ended tasks are kept.'),
  spanMs: z.number().describe('Milliseconds of time that one partition holds.'),
  behindMs: z.number().describe('Milliseconds since the first partition that is still here could have gone.'),
  oldestTaskAt: instant.optional(),
  partitions: z.array(
    z.object({
      name: z.string(),
      state: z.enum(['ahead', 'current', 'kept', 'due', 'held', 'retiring', 'rest', 'default']),
      ...range,
      rows: z.number().describe('As Postgres last counted them.'),
      bytes: z.number(),
    }),
  ),
  underWay: z
    .object({ sources: z.array(z.string()), retired: z.number(), kept: z.number(), beganAt: instant })
    .optional()
    .describe('The retirement under way, with how many tasks were judged so far.'),
  next: z
    .object({
      make: z.array(z.object({ name: z.string(), from: instant, to: instant })),
      retire: z.array(z.string()),
      drop: z.array(z.string()),
      walk: z.array(z.object(range)).describe('Where tasks are removed one by one.'),
    })
    .describe('What the next round does.'),
  tables: z.array(
    z.object({
      table: z.string(),
      kept: z.string(),
      keptMs: z.number().optional(),
      rows: z.number(),
      bytes: z.number(),
      oldestAt: instant.optional(),
    }),
  ),
});

/** Ids of one request at most. */
export const MOST_IDS = 1_000;
const ids = z.array(z.uuid()).min(1).max(MOST_IDS);

/** What to erase, and why. */
export const erasureBody = z
  .strictObject({
    businessKey: z
      .string()
      .min(1)
      .max(255)
      .refine((text) => isStorableText(text), 'must not hold U+0000 or a lone surrogate')
      .optional()
      .describe('Every task with this key.'),
    taskIds: ids.optional(),
    letterIds: ids.optional().describe('Dead letters, also of messages that never became tasks.'),
    reason: z.string().min(1).max(500).describe('Kept in the audit for good, so it must not name the person.'),
  })
  .refine(
    ({ businessKey, taskIds, letterIds }) =>
      (businessKey === undefined) === (taskIds !== undefined || letterIds !== undefined),
    'give businessKey, or taskIds, letterIds or both',
  );

/** What was erased. */
export const erasureAnswer = z.object({
  id: z.uuid(),
  erased: z.object({
    tasks: z.int(),
    attempts: z.int(),
    attemptLogs: z.int(),
    files: z.int().describe('Nobody gets them any more; their bytes go soon after.'),
    onceResults: z.int(),
    origins: z.int(),
    progress: z.int(),
    deadLetters: z.int(),
    searchEntries: z.int(),
    mendedInputs: z.int(),
    replayPatches: z.int(),
    replayItems: z.int(),
    failureGroups: z.int(),
  }),
  notEnded: z
    .object({ count: z.int(), ids: z.array(z.uuid()).describe('The first hundred.') })
    .describe('Tasks that wait or run: nothing of them was erased. Cancel them, then ask again.'),
  isPartial: z.boolean().describe('True where time was over before all was erased: ask again.'),
});
