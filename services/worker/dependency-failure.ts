/** Which errors speak against a dependency, for its circuit breaker. */
import { handlerSignalOf } from '../../shared/tasks/handler-errors.ts';

/** False where the dependency answered and only the request was wrong (NonRetryable), or where nothing failed (a deferral). */
export function isDependencyFailure(thrown: unknown): boolean {
  const kind = handlerSignalOf(thrown)?.kind;
  return kind !== 'non_retryable' && kind !== 'deferred';
}
