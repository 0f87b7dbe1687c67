/** One call of a handler, in whichever thread: parse, check, run, write the result. */
import { toError } from '../../shared/errors/to-error.ts';
import { WarrenError } from '../../shared/errors/warren-error.ts';
import type { TaskContext, TaskType } from '../../shared/tasks/define-task.ts';
import { handlerSignalOf } from '../../shared/tasks/handler-errors.ts';
import { checkInput } from '../../shared/tasks/input.ts';
import { describeError } from '../../shared/tasks/outcome.ts';
import type { FailureReason, Outcome } from '../../shared/tasks/outcome.ts';
import { classify } from '../../shared/tasks/retry-policy.ts';
import { renderJson, unstorable } from './result-json.ts';

/** Calls the handler of `type` with `input`, JSON as stored. Never throws, whatever the handler does. */
export async function callHandler(
  type: TaskType,
  input: Buffer,
  ctx: TaskContext,
  resultMaxBytes: number,
): Promise<Outcome> {
  let value: unknown;
  try {
    value = JSON.parse(input.toString('utf8'));
  } catch (thrown) {
    return failed('invalid_input', new WarrenError('body-invalid', { field: 'input' }, thrown));
  }
  const checking = checkInput(type, value);
  const checked = 'then' in checking ? await checking : checking;
  if (checked.kind === 'refused') {
    const [first] = checked.faults;
    return failed('invalid_input', new WarrenError('input-invalid', { ...first, faults: checked.faults.length }));
  }
  let result: unknown;
  try {
    result = await type.run(checked.value, ctx);
  } catch (thrown) {
    return outcomeOfThrown(type, thrown, ctx);
  }
  return renderResult(result, resultMaxBytes);
}

/** What a thrown value means for the attempt, by what it says itself and by the type's policy. Never throws. */
export function outcomeOfThrown(type: TaskType, thrown: unknown, ctx: Pick<TaskContext, 'log'>): Outcome {
  const signal = handlerSignalOf(thrown);
  if (signal?.kind === 'deferred') return { kind: 'deferred', delayMs: signal.delayMs, why: signal.why };
  const error = toError(thrown);
  const { retryable, delayMs, brokenRule } = classify(error, type.retry);
  if (brokenRule !== undefined) ctx.log.warn('retry rule of a task type threw', { rule: brokenRule, err: error });
  return {
    kind: 'failed',
    reason: retryable ? 'error' : 'non_retryable',
    error: describeError(thrown),
    retryable,
    ...(delayMs === undefined ? {} : { delayMs }),
  };
}

function renderResult(result: unknown, maxBytes: number): Outcome {
  const rendered = renderJson(result, maxBytes);
  return 'fault' in rendered
    ? failed('result_unstorable', unstorable(rendered, maxBytes))
    : { kind: 'succeeded', result: rendered.bytes };
}

function failed(reason: FailureReason, error: WarrenError): Outcome {
  return { kind: 'failed', reason, error: describeError(error), retryable: false };
}
