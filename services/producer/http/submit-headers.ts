/** Headers of requests that hand something in. */
import { z } from 'zod';
import { readTrace } from '../../../shared/observability/trace-context.ts';
import type { TraceText } from '../../../shared/observability/trace-context.ts';

/** What they may say. */
export const submitHeaders = z.looseObject({
  'idempotency-key': z
    .string()
    .optional()
    .describe(
      'The same key with the same body within seven days is answered as the first time, with `Idempotent-Replayed: true`, and makes no second task or flow.',
    ),
  traceparent: z
    .string()
    .optional()
    .describe('The trace that what is handed in belongs to (W3C Trace Context). One that is not valid is ignored.'),
  tracestate: z.string().optional(),
});

/** Where a request stands in a trace. */
export function traceOfRequest({
  headers,
}: {
  readonly headers: Readonly<Record<string, unknown>>;
}): TraceText | undefined {
  return readTrace(headers['traceparent'], headers['tracestate']);
}
