/** Handlers that say where they stand in a trace. */
import { context, trace } from '@opentelemetry/api';
import { z } from 'zod';
import { defineTask } from '../../../shared/tasks/define-task.ts';
import type { TaskContext } from '../../../shared/tasks/define-task.ts';

/** What it gives. */
export interface Standing {
  /** As the context says it. */
  readonly traceparent: string | undefined;
  readonly tracestate: string | undefined;
  /** Of the span that is active while it runs. */
  readonly activeSpan: string | undefined;
  /** Of the span that it makes itself. */
  readonly ownSpan: string;
}

const input = z.object({
  journal: z.string().optional(),
  /** Attempts, from the first, that fail. */
  fails: z.int().default(0),
  after: z.unknown().optional(),
});

async function stand({ fails }: z.infer<typeof input>, ctx: TaskContext): Promise<Standing> {
  const activeSpan = trace.getSpanContext(context.active())?.spanId;
  const ownSpan = await trace.getTracer('handler').startActiveSpan('work of the handler', async (span) => {
    await Promise.resolve();
    span.end();
    return span.spanContext().spanId;
  });
  ctx.log.info('handler stands', { activeSpan });
  if (ctx.attempt <= fails) throw new Error(`attempt ${ctx.attempt} fails`);
  return { traceparent: ctx.traceparent, tracestate: ctx.tracestate, activeSpan, ownSpan };
}

const RETRY = { maxAttempts: 2, firstDelayMs: 10, maxDelayMs: 10 };

export const traced = defineTask({ name: 'trace.stand', input, retry: RETRY, run: stand });
export const tracedInThread = defineTask({
  name: 'trace.stand-in-thread',
  input,
  retry: RETRY,
  isolation: 'thread',
  run: stand,
});
