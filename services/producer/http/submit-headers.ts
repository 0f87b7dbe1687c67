/** Headers of requests that hand something in. */
import { z } from 'zod';

/** What they may say. */
export const submitHeaders = z.looseObject({
  'idempotency-key': z
    .string()
    .optional()
    .describe(
      'The same key with the same body within seven days is answered as the first time, with `Idempotent-Replayed: true`, and makes no second task or flow.',
    ),
});
