/** The fields by which a line of a log says which attempt it is about: the same wherever one is written. */
import type { LogFields } from '../../shared/observability/log.ts';
import { traceIdOf } from '../../shared/observability/trace-context.ts';
import type { TraceText } from '../../shared/observability/trace-context.ts';

/** What of an attempt lines say; a claim has all of it. */
export interface ToldAttempt {
  readonly taskId: string;
  readonly attempt: number;
  readonly flowId?: string | undefined;
  readonly businessKey?: string | undefined;
  readonly trace?: TraceText | undefined;
}

/** `taskId`, `attempt`, and `taskType` where it is known; `traceId`, `flowId` and `businessKey` where there are such. */
export function attemptFacts(
  taskType: string | undefined,
  { taskId, attempt, flowId, businessKey, trace }: ToldAttempt,
): LogFields {
  return {
    taskId,
    attempt,
    ...(taskType === undefined ? {} : { taskType }),
    ...(trace === undefined ? {} : { traceId: traceIdOf(trace) }),
    ...(flowId === undefined ? {} : { flowId }),
    ...(businessKey === undefined ? {} : { businessKey }),
  };
}
