/** Schemas of replays: they check requests, and the OpenAPI document is made from them. */
import { z } from 'zod';
import { isStorableText } from '../../../shared/text/storable.ts';
import { ITEM_STATES, REPLAY_STATES, SKIP_CODES } from '../../../shared/dead-letters/replay-state.ts';
import type { ItemState, ReplayState } from '../../../shared/dead-letters/replay-state.ts';
import { pageQuery } from '../../../shared/http/paging.ts';
import { jsonObject } from '../../../shared/tasks/check-by-schema.ts';

const namesOf = <K extends string>(table: Readonly<Record<K, string>>): [K, ...K[]] =>
  Object.keys(table) as [K, ...K[]];
const list = (table: Readonly<Record<string, string>>): string =>
  Object.entries(table)
    .map(([name, meaning]) => `${name}: ${meaning}`)
    .join(' · ');

/** Ids of one request at most; more are found by a filter. */
export const MOST_IDS = 10_000;
const MOST_WAVES = 100;
const LONGEST_TIMEOUT_MS = 604_800_000;

const text = (longest: number): z.ZodString =>
  z
    .string()
    .min(1)
    .max(longest)
    .refine((value) => isStorableText(value), 'must not hold U+0000 or a lone surrogate');

const replayState = z.enum(namesOf<ReplayState>(REPLAY_STATES));
const itemState = z.enum(namesOf<ItemState>(ITEM_STATES));
const count = z.int().min(0);

/** Body of a new replay. */
export const newReplayBody = z
  .strictObject({
    ids: z
      .array(z.uuid())
      .min(1)
      .max(MOST_IDS)
      .optional()
      .describe(`Ids of dead letters, up to ${MOST_IDS}. Instead of filter and group.`),
    group: z.uuid().optional().describe('Every open letter of this failure group. Instead of ids and filter.'),
    filter: text(4_000).or(z.literal('')).optional().describe('Every open letter that this filter selects.'),
    all: z.boolean().optional().describe('True: yes, a filter that selects everything is meant.'),
    waves: z
      .union([
        z.literal(['growing', 'none']),
        z.array(z.int().min(1).max(1_000_000)).min(1).max(MOST_WAVES).describe('Sizes of the waves; the last repeats.'),
      ])
      .default('growing')
      .describe('growing: 1, 5, 25, 125, …; none: everything at once; or a list of sizes, of which the last repeats.'),
    stopAfter: z
      .int()
      .min(1)
      .max(1_000_000)
      .optional()
      .describe(
        'Failures of the same fingerprint in one wave that stop the replay. Default: 3, of a wave of more than 60 one in twenty, of a smaller one than 3 all.',
      ),
    waveTimeoutMs: z
      .int()
      .min(1)
      .max(LONGEST_TIMEOUT_MS)
      .default(600_000)
      .describe(
        'Milliseconds for which the first new attempt of each item of a wave is awaited; then the replay pauses.',
      ),
    rate: z.number().min(0.001).max(100_000).optional().describe('Letters per second at most.'),
    queue: text(100).optional().describe('Queue for the tasks instead of their own.'),
    priority: z.int().min(0).max(9).optional().describe('Priority for the tasks instead of their own, 0 to 9.'),
    patch: z
      .union([z.array(z.unknown()), jsonObject])
      .optional()
      .describe(
        'Mends each input: a JSON Patch (RFC 6902) where it is a list, a merge patch (RFC 7396) where it is an object. Needs the role editor.',
      ),
    waitForVersion: text(200)
      .optional()
      .describe(
        'A range of versions (semver): nothing is sent until every live worker that takes the types has one of it.',
      ),
    reason: text(1_000).optional().describe('Why, for the record. Required unless it is a dry run.'),
    dryRun: z.boolean().default(false).describe('True: say what would happen, and change nothing.'),
  })
  .refine(
    ({ ids, group, filter }) => [ids, group, filter].filter((given) => given !== undefined).length === 1,
    'must have one of filter, ids and group',
  )
  .refine(({ dryRun, reason }) => dryRun || reason !== undefined, {
    path: ['reason'],
    message: 'is required: say why, for the record',
  });

/** Query of the list. */
export const listReplaysQuery = pageQuery.extend({
  state: z
    .union([replayState, z.array(replayState).max(6)])
    .optional()
    .describe(`May be given more than once. ${list(REPLAY_STATES)}`),
  single: z
    .enum(['true', 'false'])
    .default('false')
    .describe('true: also the replays of one letter that POST /v1/dead-letters/{id}/replay made.'),
});

/** Query of the items. */
export const listItemsQuery = pageQuery.extend({
  state: z
    .union([itemState, z.array(itemState).max(7)])
    .optional()
    .describe(`May be given more than once. ${list(ITEM_STATES)}`),
  wave: z.coerce.number().int().min(1).max(1_000_000).optional().describe('Only of this wave.'),
});

/** Path of one replay. */
export const replayParams = z.object({ id: z.uuid().describe('Id of the replay.') });

/** Body of pause, resume and cancel. */
export const steerBody = z.strictObject({ reason: text(1_000).optional().describe('Why, for the record.') });

/** Headers of pause, resume and cancel. */
export const steerHeaders = z.looseObject({
  'if-match': z.string().max(100).optional().describe('ETag of the replay as you saw it; 412 where it is another now.'),
});

/** A replay in a list. */
export const replaySummary = z.object({
  id: z.uuid(),
  version: z.int().describe('Rises with each change of state; the ETag.'),
  state: replayState.describe(list(REPLAY_STATES)),
  stateReason: z.string().nullable().describe('Why it waits, is paused, or stopped.'),
  createdAt: z.iso.datetime(),
  createdBy: z.string(),
  finishedAt: z.iso.datetime().nullable(),
  reason: z.string().nullable(),
  selection: z.record(z.string(), z.unknown()).describe('What was chosen: filter, group, or how many ids.'),
  items: count.describe('Letters of the frozen selection.'),
  sent: count.describe('Items that it has come to, sent or skipped.'),
  wave: count.describe('The wave under way; 0 before the first.'),
  waves: z.unknown(),
  stopAfter: z.int().nullable(),
  waveTimeoutMs: z.int().nullable(),
  rate: z.number().nullable(),
  queue: z.string().nullable(),
  priority: z.int().nullable(),
  waitForVersion: z.string().nullable(),
  patch: z.unknown().optional(),
});

/** Counts of items by state. */
const counts = z.record(z.string(), count).describe(list(ITEM_STATES));

/** A whole replay. */
export const replayView = replaySummary.extend({
  counts,
  skipped: z.record(z.string(), count).describe(`Skipped items by code. ${list(SKIP_CODES)}`),
  waveCounts: z.array(
    z.object({
      wave: z.int(),
      items: count,
      counts,
      failedFirst: count.describe('Items whose first new attempt failed.'),
      sameFailure: count.describe('Those of them that failed of the same as their letter.'),
    }),
  ),
});

/** A page of replays. */
export const replayPage = z.object({ items: z.array(replaySummary), nextCursor: z.string().optional() });

/** An item. */
export const itemView = z.object({
  replayId: z.uuid(),
  n: z.int(),
  letterId: z.uuid(),
  state: itemState.describe(list(ITEM_STATES)),
  wave: z.int().nullable(),
  taskId: z.uuid().nullable().describe('The task that runs again, or that a refused letter became.'),
  sentAt: z.iso.datetime().nullable(),
  judgedAt: z.iso.datetime().nullable().describe('When its first new attempt was known.'),
  error: z
    .object({
      type: z.string().nullable(),
      message: z.string().nullable(),
      fingerprint: z.uuid(),
      isSame: z.boolean().describe('True where it is the fingerprint that its letter has.'),
    })
    .nullable()
    .describe('Of the first new attempt, where that failed.'),
  newLetterId: z.uuid().nullable().describe('The letter of its next death.'),
  code: z
    .string()
    .nullable()
    .describe(`Why it was skipped. ${list(SKIP_CODES)}`),
  why: z.string().nullable(),
});

/** A page of items. */
export const itemPage = z.object({ items: z.array(itemView), nextCursor: z.string().optional() });

/** What a dry run answers. */
export const dryRunAnswer = z.object({
  dryRun: z.literal(true),
  isPartial: z.boolean().describe('True where time ran out; the counts are of what was looked at.'),
  letters: count,
  replayed: count.describe('Letters that would be replayed.'),
  refused: count.describe('Those of the skipped ones that the patch does not fit, or that the schema refuses.'),
  skipped: count,
  reasons: z.array(z.object({ code: z.string(), why: z.string(), letters: count })),
  samples: z
    .array(z.record(z.string(), z.unknown()))
    .describe('Up to ten; with a patch each with its input before and after.'),
});
