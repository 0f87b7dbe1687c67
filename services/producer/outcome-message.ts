/** What is told of how a task ended: the same facts to webhooks and to queues of publishers. */
import type { RowOf } from '../../shared/postgres/statement.ts';
import { renderWithRaw } from '../../shared/tasks/json.ts';
import type { readOutcomes } from './callbacks.sql.ts';
import { withoutNull } from './without-null.ts';

/** How a task ended. */
export type OutcomeRow = RowOf<typeof readOutcomes.columns>;

/** Bytes of a result that are told; a larger one is left to be fetched. */
export const MOST_RESULT_BYTES = 65_536;

/** One id for one end: the same, however often it is told. */
export function outcomeId({ id, attempt, state }: OutcomeRow): string {
  return `${id}-${attempt}-${state}`;
}

/** The facts as JSON text, the result as the bytes that it is. */
export function renderOutcome(task: OutcomeRow): string {
  const error = withoutNull({ type: task.error_type, code: task.error_code, message: task.error_message });
  const isLeftOut = task.result !== null && task.result.length > MOST_RESULT_BYTES;
  return renderWithRaw(
    withoutNull({
      id: task.id,
      type: task.type,
      state: task.state,
      attempt: task.attempt,
      failures: task.failures,
      acceptedAt: task.accepted_at,
      startedAt: task.started_at,
      finishedAt: task.finished_at,
      businessKey: task.business_key,
      externalId: task.external_id,
      correlationId: task.correlation_id,
      tags: task.tags,
      deadLetterId: task.dead_letter_id,
      reason: task.reason,
      error: Object.keys(error).length === 0 ? null : error,
      isResultLeftOut: isLeftOut ? true : null,
    }),
    { result: isLeftOut ? undefined : (task.result ?? undefined) },
  );
}

/** The body of a webhook: what Standard Webhooks recommends. */
export function renderWebhook(task: OutcomeRow): string {
  return renderWithRaw(
    { type: `warren.task.${task.state}`, timestamp: task.finished_at },
    { data: renderOutcome(task) },
  );
}
