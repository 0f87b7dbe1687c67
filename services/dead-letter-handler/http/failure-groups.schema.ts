/** Schemas of failure groups in the Dead Letter API. */
import { z } from 'zod';
import { isStorableText } from '../../../shared/text/storable.ts';
import { GROUP_STATES } from '../../../shared/dead-letters/group-state.ts';
import type { GroupState } from '../../../shared/dead-letters/group-state.ts';
import { pageQuery } from '../../../shared/http/paging.ts';

const STATES = Object.keys(GROUP_STATES) as [GroupState, ...GroupState[]];
const meaning = Object.entries(GROUP_STATES)
  .map(([name, says]) => `${name}: ${says}`)
  .join(' · ');
const state = z.enum(STATES);
const stateOrAll = z.enum([...STATES, 'all']);

/** Query of the list. */
export const groupsQuery = pageQuery.extend({
  state: z
    .union([stateOrAll, z.array(stateOrAll).max(5)])
    .default(['open', 'acknowledged'])
    .describe(`May be given more than once; "all" for every state. ${meaning}`),
  minOpen: z.coerce
    .number()
    .int()
    .min(0)
    .max(2_000_000_000)
    .default(1)
    .describe('Only groups with this many open letters or more.'),
});

/** Path of one group. */
export const groupParams = z.object({ id: z.uuid().describe('Id of the failure group: its fingerprint.') });

const text = (most: number): z.ZodType<string> =>
  z
    .string()
    .max(most)
    .refine((given) => isStorableText(given), 'must not hold U+0000 or a lone surrogate');

/** Body of a change. */
export const groupChange = z
  .strictObject({
    state: state.optional().describe(meaning),
    note: text(10_000).optional().describe('What people should know; empty takes it away.'),
    assignee: text(200).optional().describe('Who is on it; empty takes it away.'),
  })
  .refine((change) => Object.keys(change).length > 0, 'must hold state, note or assignee');

/** Headers of a change. */
export const changeHeaders = z.looseObject({
  'if-match': z
    .string()
    .max(100)
    .optional()
    .describe('The ETag that was looked at: nothing is changed where the group has another by now.'),
});

const at = z.iso.datetime();

/** A group. */
export const groupView = z.object({
  id: z.uuid(),
  kind: z.string(),
  type: z.string().nullable().describe('Task type; of foreign letters their queue.'),
  error: z.object({
    type: z.string().nullable(),
    message: z.string().nullable().describe('Without ids, numbers, times, quoted text, addresses and paths.'),
    frame: z.string().nullable().describe('Function and file of the top frame of your own code.'),
  }),
  rule: z.string().nullable().describe('The rule of deadLetters.groupRules that made the group.'),
  state: state.describe(meaning),
  note: z.string().nullable(),
  assignee: z.string().nullable(),
  version: z.int().describe('Also the ETag.'),
  changedAt: at.nullable(),
  changedBy: z.string().nullable(),
  letters: z.int().describe('Letters ever.'),
  openLetters: z.int(),
  firstAt: at,
  lastAt: at,
  reopenedAt: at.nullable(),
  queues: z.array(z.string()),
  codeVersions: z.array(z.string()),
  lastHours: z.array(z.int()).describe('Letters of each of the last 24 hours, the present one last.'),
});

/** A page of groups. */
export const groupPage = z.object({ items: z.array(groupView), nextCursor: z.string().optional() });

/** One group. */
export const wholeGroup = groupView.extend({
  youngest: z.array(z.record(z.string(), z.unknown())).describe('Its youngest open letters.'),
});
