/** The task of a step, as its type has it. */
import type { ErrorCode } from '../errors/catalogue.ts';
import { WEBHOOK_TYPE } from '../tasks/callback.ts';
import type { Catalog, KnownType } from '../tasks/type-catalog.ts';
import type { StepBody } from './flow-body.ts';
import type { PlannedTask } from './planned-flow.ts';

/** A task without its input, its type where that is announced, and what is wrong with which member. */
export function planTask(
  { type: name = '', queue, priority, maxAttempts }: Pick<StepBody, 'type' | 'queue' | 'priority' | 'maxAttempts'>,
  catalog: Catalog,
): {
  readonly task: Omit<PlannedTask, 'input'>;
  readonly type: KnownType | undefined;
  readonly faults: readonly (readonly [code: ErrorCode, member: string, reason: string])[];
} {
  const type = catalog.find(name);
  const faults: (readonly [ErrorCode, string, string])[] = [];
  if (type === undefined) faults.push(['task-type-unknown', 'type', 'names no announced task type']);
  if (name === WEBHOOK_TYPE) faults.push(['field-invalid', 'type', 'is for Warren alone']);
  if (queue !== undefined && queue !== type?.queue && !catalog.hasQueue(queue)) {
    faults.push(['queue-unknown', 'queue', 'names no queue that there is']);
  }
  return {
    task: {
      type: name,
      queue: queue ?? type?.queue ?? '',
      priority: priority ?? type?.priority ?? 0,
      maxAttempts: maxAttempts ?? type?.maxAttempts ?? 1,
    },
    type,
    faults,
  };
}
