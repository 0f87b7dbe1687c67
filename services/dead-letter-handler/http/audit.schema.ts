/** Schemas of the audit in the Dead Letter API. */
import { z } from 'zod';
import { pageQuery } from '../../../shared/http/paging.ts';
import { filterText, instant } from './dead-letters.schema.ts';

/** Query of the list. */
export const auditQuery = pageQuery.extend({
  target: filterText.describe('What was acted on: the id of a dead letter, a task or a replay.'),
  actor: filterText.describe('Who acted: the name of the token; `local` without one.'),
  action: filterText.describe('What was done, such as `dead-letter.replay`.'),
  after: instant('At this instant or later.'),
  before: instant('Before this instant.'),
});

/** A page of the audit. */
export const auditPage = z.object({
  items: z.array(
    z.object({
      id: z.uuid(),
      at: z.iso.datetime(),
      actor: z.string(),
      role: z.string().describe('The role that the actor had then.'),
      address: z
        .string()
        .nullable()
        .describe('IP address that the request came from; null for what a service did by itself.'),
      action: z.string(),
      target: z.string(),
      detail: z
        .record(z.string(), z.unknown())
        .describe('What the action was about, with `reason` where one was given.'),
    }),
  ),
  nextCursor: z.string().optional(),
});
