/** Schemas of discarding many dead letters. */
import { z } from 'zod';
import { letterSummary, reasonText } from './dead-letters.schema.ts';

const MOST_IDS = 10_000;

/** Body of a discard of many. */
export const discardManyBody = z.strictObject({
  filter: z.string().optional().describe('Every open letter that this filter selects. Instead of ids.'),
  ids: z
    .array(z.uuid())
    .min(1)
    .max(MOST_IDS)
    .optional()
    .describe(`Ids of dead letters, up to ${MOST_IDS}; those that are not open stay as they are.`),
  all: z.boolean().optional().describe('True: yes, a filter that selects everything is meant.'),
  reason: reasonText.optional().describe('Why, for the record. Required unless dryRun is true.'),
  dryRun: z.boolean().optional().describe('True: only say how many would be closed, with ten samples.'),
});

/** What it answers. */
export const discardManyAnswer = z.object({
  dryRun: z.boolean(),
  operation: z.uuid().optional().describe('Id of the line in the audit; the line of each letter names it.'),
  selected: z.int().describe('Open letters that fitted at the start.'),
  discarded: z.int().optional(),
  samples: z.array(letterSummary).optional().describe('Of a dry run: the ten newest.'),
  isPartial: z
    .boolean()
    .describe('True where time was over first: of a dry run there may be more; else the same request closes the rest.'),
});
