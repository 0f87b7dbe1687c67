/** The built-in type `warren.alert`: delivers one alert to one channel. So an alert is as safe as any task, and waits like one. */
import type { AlertChannel } from '../../../shared/config/alert-channels.ts';
import { ALERT_TYPE, alertInput } from '../../../shared/dead-letters/alert.ts';
import { defineTask } from '../../../shared/tasks/define-task.ts';
import type { TaskType } from '../../../shared/tasks/define-task.ts';
import type { Clock } from '../../../shared/time/clock.ts';
import { deliverByMail } from './alert-mail.ts';
import { deliverByWebhook } from './alert-webhook.ts';

/** How `warren.alert` delivers. */
export interface AlertOptions {
  /** The channels that this worker knows. */
  readonly channels: readonly AlertChannel[];
  /** Milliseconds that one delivery may take. Default 15 000. */
  readonly deliverWithinMs: number;
}

/** The defaults. */
export const DEFAULT_ALERT: AlertOptions = { channels: [], deliverWithinMs: 15_000 };

/** What a delivery says of itself. */
export interface Delivered {
  readonly channel: string;
  readonly kind: AlertChannel['kind'];
}

/**
 * Makes the type. Connections that fail, 408, 429, 5xx and passing refusals are tried again (`Retry-After` is honoured), over about
 * an hour; other refusals are not. No error holds an address with its secret: errors are stored and shown.
 */
export function createAlertType(clock: Clock, options: AlertOptions = DEFAULT_ALERT): TaskType {
  const channels = new Map(options.channels.map((channel) => [channel.name, channel]));
  return defineTask({
    name: ALERT_TYPE,
    input: alertInput,
    // During the incident that it tells of, the queue is full of what it tells of.
    priority: 9,
    timeoutMs: 60_000,
    retry: { maxAttempts: 16, firstDelayMs: 2_000, maxDelayMs: 900_000 },
    run: async ({ channel: name, alert }, ctx): Promise<Delivered> => {
      const channel = channels.get(name);
      // Another worker may know it: configuration comes to a fleet one by one.
      if (channel === undefined) throw new Error(`no channel ${name} in alerts.channels of this worker`);
      const limited = new AbortController();
      const { deliverWithinMs: withinMs } = options;
      const late = (): void => limited.abort(new Error(`channel ${name}: no answer within ${withinMs} ms`));
      const cancel = clock.after(withinMs, late);
      const signal = AbortSignal.any([ctx.signal, limited.signal]);
      try {
        if (channel.kind === 'email') await deliverByMail(channel, alert, { signal, withinMs });
        else await deliverByWebhook(channel, alert, { signal, clock });
        return { channel: name, kind: channel.kind };
      } finally {
        cancel();
      }
    },
  });
}
