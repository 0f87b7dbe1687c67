/** The task types that come with Warren: of each worker, and of whoever announces types without one. */
import type { Config } from '../../../shared/config/schema.ts';
import type { TaskType } from '../../../shared/tasks/define-task.ts';
import type { Clock } from '../../../shared/time/clock.ts';
import { DEFAULT_ALERT, createAlertType } from './alert.ts';
import { DEFAULT_HTTP_REQUEST, createHttpRequestType } from './http-request.ts';
import { createWebhookType, DEFAULT_WEBHOOK } from './webhook.ts';

/** Makes them. Without `config` they can be described and not run. Throws `config-invalid` for a wrong pattern of a host. */
export function createBuiltInTypes(
  clock: Clock,
  config?: Pick<Config, 'httpRequest' | 'alerts' | 'webhooks'>,
): readonly TaskType[] {
  return [
    createHttpRequestType(clock, { ...DEFAULT_HTTP_REQUEST, ...config?.httpRequest }),
    createAlertType(clock, { ...DEFAULT_ALERT, channels: config?.alerts.channels ?? [] }),
    createWebhookType(clock, { ...DEFAULT_WEBHOOK, ...config?.webhooks }),
  ];
}
