/** Schemas of the Dead Letter API: they check requests, and the OpenAPI document is made from them. */
import { z } from 'zod';
import { parseInstant } from '../../../shared/amqp/message.ts';
import { isStorableText } from '../../../shared/text/storable.ts';
import { LETTER_KINDS, LETTER_REASONS, LETTER_STATES } from '../../../shared/dead-letters/reason.ts';
import type { LetterKind, LetterState } from '../../../shared/dead-letters/reason.ts';
import { pageQuery } from '../../../shared/http/paging.ts';
import { itemView } from './replays.schema.ts';

const namesOf = <K extends string>(table: Readonly<Record<K, string>>): [K, ...K[]] =>
  Object.keys(table) as [K, ...K[]];
const list = (table: Readonly<Record<string, string>>): string =>
  Object.entries(table)
    .map(([name, meaning]) => `${name}: ${meaning}`)
    .join(' · ');

/** An instant in a query. */
export const instant = (what: string): z.ZodType<string | undefined> =>
  z
    .string()
    .refine((text) => parseInstant(text) !== undefined, 'must be an RFC 3339 instant with an offset')
    .optional()
    .describe(what);
/** A text in a query. */
export const filterText = z
  .string()
  .max(255)
  .refine((text) => isStorableText(text), 'must not hold U+0000 or a lone surrogate')
  .optional();

const kind = z.enum(namesOf<LetterKind>(LETTER_KINDS));
const state = z.enum(namesOf<LetterState>(LETTER_STATES));
const stateOrAll = z.enum([...namesOf<LetterState>(LETTER_STATES), 'all']);

const filter = z
  .string()
  .describe(
    'Such as `reason:timeout type:image.* error:"ECONNREFUSED" age:>1h input.user.id:42 tag:vip attempts:>=3`; see the guide to dead letters. Without a term about the state, open letters.',
  );

/** What letters are selected by; all of it must fit. */
export const selectQuery = z.strictObject({
  filter: filter.optional(),
  state: z
    .union([stateOrAll, z.array(stateOrAll).max(5)])
    .optional()
    .describe(
      `Default "open", or what the filter says. May be given more than once; "all" for every state. ${list(LETTER_STATES)}`,
    ),
  kind: z
    .union([kind, z.array(kind).max(3)])
    .optional()
    .describe(`May be given more than once. ${list(LETTER_KINDS)}`),
  reason: filterText.describe(`Why it died. ${list(LETTER_REASONS)}`),
  type: filterText.describe('Task type.'),
  queue: filterText.describe('Queue: of tasks without prefix, of foreign letters the whole name.'),
  taskId: z.uuid().optional().describe('Every letter of one task.'),
  diedAfter: instant('Died at this instant or later.'),
  diedBefore: instant('Died before this instant.'),
});

/** Query of the list. */
export const listQuery = pageQuery.extend(selectQuery.shape);

/** Path of one letter. */
export const letterParams = z.object({ id: z.uuid().describe('Id of the dead letter.') });

/** Why something is done. */
export const reasonText = z
  .string()
  .min(1)
  .max(1_000)
  .refine((text) => isStorableText(text), 'must not hold U+0000 or a lone surrogate');

/** Query of an export. */
export const exportQuery = selectQuery.extend({ why: reasonText.optional().describe('Why, for the record.') });

/** Headers of a replay and a discard. */
export const actHeaders = z.looseObject({
  'if-match': z
    .string()
    .max(100)
    .optional()
    .describe('The ETag of the letter that was looked at: nothing is done where it stands otherwise by now.'),
});

/** Body of a replay. */
export const replayBody = z.strictObject({
  reason: reasonText.optional().describe('Why, for the record.'),
  destination: z
    .strictObject({ exchange: filterText.unwrap(), routingKey: filterText.unwrap() })
    .optional()
    .describe(
      'Foreign letters alone: where it goes, if not to where it came from. Must be on deadLetters.replayDestinations.',
    ),
});

/** Body of a discard. */
export const discardBody = z.strictObject({ reason: reasonText.describe('Why, for the record.') });

const error = z
  .object({
    type: z.string().nullable(),
    code: z.string().nullable(),
    message: z.string().nullable(),
    stack: z.string().nullable().optional(),
  })
  .nullable();

const at = z.iso.datetime().nullable();

/** A letter in a list. */
export const letterSummary = z.object({
  id: z.uuid(),
  kind: kind.describe(list(LETTER_KINDS)),
  state: state.describe(list(LETTER_STATES)),
  reason: z.string().describe(list(LETTER_REASONS)),
  taskId: z.uuid().nullable(),
  type: z.string().nullable(),
  queue: z.string().nullable(),
  attempt: z.int().nullable().describe('The attempt that it died of.'),
  diedAt: z.iso.datetime(),
  recordedAt: at.describe("When the broker's evidence came, or was given up."),
  groupId: z.uuid().nullable().describe('Its failure group; null until the handler has taken note of it.'),
  tags: z.array(z.string()).describe('Tags of its task.'),
  error,
  closedAt: at,
  closedBy: z.string().nullable(),
  closeReason: z.string().nullable(),
});

/** A page of letters. */
export const letterPage = z.object({
  items: z.array(letterSummary),
  nextCursor: z.string().optional(),
  isPartial: z
    .literal(true)
    .optional()
    .describe(
      'The page is not full because no index serves the filter and two seconds were over; nextCursor looks further.',
    ),
});

const table = z
  .record(z.string(), z.unknown())
  .nullable()
  .describe(
    'Plain where JSON can say it; what it cannot is tagged with "$": x bytes, T timestamp, D decimal, s text, f number, t table.',
  );

/** A whole letter. */
export const letterView = letterSummary.extend({
  taskId: z.uuid().nullable().describe('Its task; of a refused letter the task that it became when it was replayed.'),
  exchange: z.string().nullable().describe('The original exchange; null for a task that came over HTTP.'),
  routingKey: z.string().nullable(),
  properties: table,
  headers: table,
  input: z
    .unknown()
    .optional()
    .describe('Of a task: its input, byte for byte; where `task.inputFile` is there an outline of it.'),
  bodyBytes: z.int().optional().describe('Of other letters: size of what is kept of the body.'),
  body: z.string().optional().describe('Of other letters: the bytes in base64.'),
  text: z
    .string()
    .nullable()
    .optional()
    .describe('Of other letters: the body as text, where it is valid UTF-8 of up to 1 MiB.'),
  xDeath: z
    .object({ isVerified: z.literal(false), value: z.unknown() })
    .nullable()
    .describe("The broker's account of its deaths. Any publisher can write this header: it is unverified."),
  evidence: z
    .object({ exchange: z.string().nullable(), routingKey: z.string().nullable(), properties: table, headers: table })
    .nullable()
    .optional()
    .describe('Of a task: the invitation that died.'),
  task: z.record(z.string(), z.unknown()).nullable().optional().describe('The task as it is now.'),
  attempts: z.array(z.record(z.string(), z.unknown())).describe('Every attempt that did not succeed, newest first.'),
  logs: z
    .object({
      attempt: z.int(),
      lines: z.array(z.unknown()).describe('The last 20 lines that are kept, oldest first.'),
      before: z.int().describe('Lines before those.'),
      path: z.string().describe('Where all kept lines are, in the Task API.'),
    })
    .nullable()
    .optional()
    .describe('Of a task: what the attempt that it died of logged; null where no lines are kept.'),
  letters: z
    .array(z.record(z.string(), z.unknown()))
    .describe('Every death of the same task, newest first, with who made it run again.'),
  audit: z.array(z.record(z.string(), z.unknown())).describe('What was done with this letter, oldest first.'),
  originalInput: z
    .unknown()
    .optional()
    .describe('Of a task whose input a replay of this letter has mended: the input before that, byte for byte.'),
  replays: z.array(itemView).describe('What replays did with this letter, oldest first: see the items of a replay.'),
  replayedTo: z.object({ exchange: z.string(), routingKey: z.string().nullable() }).nullable().optional(),
});

/** An export. */
export const letterLines = {
  description: 'JSON Lines: each line a whole letter, as it is shown alone. An answer that breaks off is not whole.',
  content: { 'application/jsonl': { schema: z.string() } },
};

/** What a replay answers. */
export const replayAnswer = z.object({
  id: z.uuid(),
  kind,
  state: z
    .enum(['replayed', 'replaying'])
    .describe('replaying: RabbitMQ has not confirmed yet; it is finished by itself.'),
  taskId: z.uuid().optional().describe('The task that runs again.'),
  replayId: z.uuid().describe('The replay of one letter that this is.'),
});

/** What a discard answers. */
export const discardAnswer = z.object({ id: z.uuid(), state: z.literal('discarded') });

/** A problem document, RFC 9457. */
export const problem = z
  .looseObject({
    type: z.string(),
    title: z.string(),
    status: z.int(),
    detail: z.string().optional(),
    instance: z.string().optional(),
  })
  .describe('RFC 9457');
