/** What `GET /v1/ledger` takes and answers, as the OpenAPI document shows it. */
import { z } from 'zod';
import { manyAnswer, manyOrder } from './many.schema.ts';
import { queryInstant, queryText } from './tasks.schema.ts';

/** Hours of one answer at most. */
export const MOST_HOURS = 744;
/** Lines of one answer at most. */
export const MOST_LINES = 10_000;

const instant = z.iso.datetime({ offset: true });
const standing = {
  succeeded: z.int(),
  dead: z.int().describe('Deaths without those that were replayed since.'),
  cancelled: z.int(),
  expired: z.int(),
  inProgress: z.int().describe('Tasks that have not ended.'),
};
const figures = {
  accepted: z.int().describe('succeeded + dead + cancelled + expired + inProgress'),
  ...standing,
  difference: z
    .int()
    .describe('Of how many tasks, at the least, row or count is wrong, by the last comparison; 0 before the first.'),
};

/** Query of the ledger. Members that are not here are refused. */
export const ledgerQuery = z.strictObject({
  type: queryText.describe('Only this task type.'),
  from: queryInstant.describe('RFC 3339; the first hour is the one that holds it. Default: 24 hours before `to`.'),
  to: queryInstant.describe(`RFC 3339, exclusive; at most ${MOST_HOURS} hours after \`from\`. Default: now.`),
});

/** The ledger. */
export const ledger = z.object({
  from: instant.describe('Begin of the first hour.'),
  to: instant.describe('End of the last hour.'),
  comparedAt: instant
    .optional()
    .describe('All lines have been compared with the tasks since then; absent while one has not been compared yet.'),
  totals: z.object(figures),
  items: z
    .array(
      z.object({
        type: z.string(),
        hour: instant.describe('Begin of the hour in which the tasks were accepted.'),
        ...figures,
        comparedAt: instant.optional().describe('When the tasks were last compared with this line.'),
        found: z.object(standing).optional().describe('With a difference: what the tasks themselves say.'),
      }),
    )
    .describe(`A line an hour and type, newest hour first, at most ${MOST_LINES}.`),
});

/** Body of a reconciling. */
export const reconcileBody = z.strictObject(manyOrder);

/** What a reconciling answers. */
export const reconcileAnswer = z.object({
  ...manyAnswer,
  freed: z
    .int()
    .optional()
    .describe('Attempts that ran by the backup, and were taken from their workers, which are gone.'),
  lifted: z.int().optional().describe('Tasks whose attempt was lifted.'),
  invited: z.int().optional().describe('Of these, those that were invited once more.'),
});
