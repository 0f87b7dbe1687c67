/** Checks the input of a task against the schema of its type, in the worker that has the type's code. */
import { toError } from '../errors/to-error.ts';
import type { TaskType } from './define-task.ts';
import { renderPath } from './json.ts';
import type { SchemaAnswer, SchemaIssue } from './standard-schema.ts';

/** What the schema said. `value` is what the handler gets, with defaults and transforms applied. */
export type InputCheck =
  | { readonly kind: 'ok'; readonly value: unknown }
  | { readonly kind: 'refused'; readonly faults: readonly InputFault[] };

/** One thing that is wrong: the JSON path from `input` on, and why. */
export interface InputFault {
  /** `input.user.ids[3]`. */
  readonly field: string;
  readonly reason: string;
}

const MOST_FAULTS = 20;

/** Checks `value`. A promise only where the schema is asynchronous. A schema that throws refuses; this never throws. */
export function checkInput(type: TaskType, value: unknown): InputCheck | Promise<InputCheck> {
  try {
    const answer = type.input['~standard'].validate(value);
    return isThenable(answer) ? answer.then(toCheck, schemaFailed) : toCheck(answer);
  } catch (thrown) {
    return schemaFailed(thrown);
  }
}

function toCheck(answer: SchemaAnswer<unknown>): InputCheck {
  if (answer.issues === undefined) return { kind: 'ok', value: answer.value };
  return { kind: 'refused', faults: answer.issues.slice(0, MOST_FAULTS).map((issue) => toFault(issue)) };
}

function toFault(issue: SchemaIssue): InputFault {
  const path = (issue.path ?? []).map((step) => (typeof step === 'object' ? step.key : step));
  return { field: renderPath(['input', ...path]), reason: issue.message };
}

function schemaFailed(thrown: unknown): InputCheck {
  return { kind: 'refused', faults: [{ field: 'input', reason: `the schema failed: ${toError(thrown).message}` }] };
}

function isThenable(value: object): value is Promise<SchemaAnswer<unknown>> {
  return 'then' in value;
}
