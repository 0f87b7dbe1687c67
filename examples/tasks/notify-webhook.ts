/** `notify.webhook`: tells a local server about an event. Shows NonRetryable, RetryAfter, a breaker and an idempotency key. */
import { z } from 'zod';
import { defineTask } from '../../shared/tasks/define-task.ts';
import { NonRetryable, RetryAfter } from '../../shared/tasks/handler-errors.ts';

const WebhookInput = z.strictObject({
  /** Of this machine: a sample calls nobody else. For other hosts there is `http.request` with its allow-list. */
  url: z
    .url({ protocol: /^http$/ })
    .refine((url) => ['127.0.0.1', 'localhost', '[::1]'].includes(new URL(url).hostname), 'must be of this machine'),
  event: z.string().min(1).max(100),
  payload: z.record(z.string(), z.unknown()).default({}),
});

/** 5xx and 429 are tried again, when the server says so or by the policy; any other refusal is for good. */
export const notifyWebhook = defineTask({
  name: 'notify.webhook',
  input: WebhookInput,
  priority: 6,
  timeoutMs: 15_000,
  retry: { maxAttempts: 6, firstDelayMs: 200, maxDelayMs: 5_000 },
  run: async ({ url, event, payload }, ctx) =>
    await ctx.breaker(`webhook:${new URL(url).host}`, async (signal) => {
      const response = await fetch(url, {
        method: 'POST',
        // The same key at each attempt: an honest receiver acts once, also when its answer was lost.
        headers: { 'content-type': 'application/json', 'idempotency-key': ctx.taskId },
        body: JSON.stringify({ event, payload, attempt: ctx.attempt }),
        redirect: 'error',
        signal,
      });
      await response.body?.cancel();
      if (response.ok) return { status: response.status };
      const message = `the receiver answered ${response.status}`;
      if (response.status < 500 && response.status !== 429) throw new NonRetryable(message);
      const seconds = Number(response.headers.get('retry-after') ?? Number.NaN);
      throw Number.isFinite(seconds) ? new RetryAfter(seconds * 1_000, message) : new Error(message);
    }),
});
