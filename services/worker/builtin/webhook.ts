/** The built-in type `warren.webhook`: tells one receiver how one task ended. So what is to be told is as safe as any task. */
import { codeOf } from '../../../shared/errors/to-error.ts';
import { isWarrenError, WarrenError } from '../../../shared/errors/warren-error.ts';
import { allowHosts } from '../../../shared/http/allowed-hosts.ts';
import { webhookUrlFault } from '../../../shared/http/webhook-url.ts';
import { WEBHOOK_TYPE, webhookInput } from '../../../shared/tasks/callback.ts';
import { defineTask } from '../../../shared/tasks/define-task.ts';
import type { TaskType } from '../../../shared/tasks/define-task.ts';
import type { Clock } from '../../../shared/time/clock.ts';
import { withoutSecrets } from './alert-secrets.ts';
import { postGuarded } from './guarded-post.ts';
import type { PostAnswer } from './guarded-post.ts';
import { judgeAnswer, standardHeaders } from './webhook-answer.ts';

/** How `warren.webhook` calls. */
export interface WebhookOptions {
  /** What is signed with; at least one is needed to call. */
  readonly secrets: readonly string[];
  /** Hosts that may have private addresses. */
  readonly allowHosts: readonly string[];
  /** Milliseconds that one call may take. Default 15 000. */
  readonly deliverWithinMs: number;
}

/** The defaults. */
export const DEFAULT_WEBHOOK: WebhookOptions = { secrets: [], allowHosts: [], deliverWithinMs: 15_000 };

/** What a call says of itself. */
export interface Called {
  readonly status: number;
}

/**
 * Makes the type. Connections that fail, 408, 429 and 5xx are tried again (`Retry-After` is honoured), over about a day; other
 * answers and private addresses are not. No error holds the path of the URL: errors are stored and shown. Throws
 * `config-invalid` for a wrong pattern of a host.
 */
export function createWebhookType(clock: Clock, options: WebhookOptions = DEFAULT_WEBHOOK): TaskType {
  const isAllowed = allowHosts(options.allowHosts, 'webhooks.allowHosts');
  return defineTask({
    name: WEBHOOK_TYPE,
    input: webhookInput,
    timeoutMs: 60_000,
    retry: { maxAttempts: 20, firstDelayMs: 2_000, maxDelayMs: 14_400_000, neverOn: ['host-not-allowed'] },
    run: async ({ url: text, id, body }, ctx): Promise<Called> => {
      const { secrets, deliverWithinMs: withinMs } = options;
      // Another worker may know one: configuration comes to a fleet one by one.
      if (secrets.length === 0) throw new Error('no webhooks.secrets in this worker');
      const fault = webhookUrlFault(text, isAllowed);
      if (fault !== undefined) throw new WarrenError('host-not-allowed', { field: 'url', reason: fault });
      const url = new URL(text);
      const who = `webhook to ${url.host}`;
      const limited = new AbortController();
      const cancel = clock.after(withinMs, () => limited.abort(new Error(`${who}: no answer within ${withinMs} ms`)));
      const signal = AbortSignal.any([ctx.signal, limited.signal]);
      let answer: PostAnswer;
      try {
        answer = await postGuarded({
          url,
          headers: {
            'content-type': 'application/json; charset=utf-8',
            'user-agent': 'warren',
            ...standardHeaders(secrets, id, clock.now(), body),
            ...(ctx.traceparent === undefined ? {} : { traceparent: ctx.traceparent }),
            ...(ctx.tracestate === undefined ? {} : { tracestate: ctx.tracestate }),
          },
          body,
          mayBePrivate: isAllowed(url),
          signal,
        });
      } catch (thrown) {
        signal.throwIfAborted();
        if (isWarrenError(thrown, 'host-not-allowed')) throw thrown;
        throw new Error(`${who}: cannot be reached (${codeOf(thrown) ?? 'no answer'})`);
      } finally {
        cancel();
      }
      judgeAnswer(who, { ...answer, said: withoutSecrets(answer.said, { url: text }) }, clock);
      return { status: answer.status };
    },
  });
}
