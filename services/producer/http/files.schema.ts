/** What the routes of files take and answer, as the OpenAPI document shows it. */
import { z } from 'zod';

const instant = z.iso.datetime({ offset: true });

/** Seconds that a link may be valid at most: 30 days. */
export const MOST_LINK_SECONDS = 2_592_000;

/** A file of a task. */
export const taskFile = z.object({
  id: z.uuid(),
  kind: z
    .enum(['saved', 'result', 'input'])
    .describe('saved: by the handler; result: what it returned, input: what was submitted, too large for the row.'),
  name: z.string(),
  contentType: z.string(),
  bytes: z.int().min(0),
  sha256: z.string().describe('64 hexadecimal digits.'),
  createdAt: instant,
  linkExpiresAt: instant.optional().describe('When the last link to it expires.'),
});

/** Files of a task. */
export const taskFiles = z.object({ items: z.array(taskFile) });

/** Body of a request for a link; may be absent. */
export const linkBody = z.strictObject({
  expiresInSeconds: z.int().min(1).max(MOST_LINK_SECONDS).optional().describe('Default: files.linkMs.'),
});

/** A link. */
export const fileLink = z.object({
  url: z.string().describe('Whoever has it may download the file until it expires.'),
  path: z.string().describe('The same below the address of this API.'),
  expiresAt: instant,
});
