/** The schema of a task type, asked as a worker asks it. */
import type { TaskTypeLike } from './task-type.ts';

/** What the schema said: what the handler gets, or the first thing that is wrong. */
export type Checked =
  | { readonly kind: 'ok'; readonly value: unknown }
  | { readonly kind: 'refused'; readonly field: string; readonly reason: string };

interface Answer {
  readonly value?: unknown;
  readonly issues?: readonly {
    readonly message: string;
    readonly path?: readonly (PropertyKey | { readonly key: PropertyKey })[] | undefined;
  }[];
}

/** Checks an input that was written as JSON and read back. */
export async function checkBySchema(type: TaskTypeLike, input: unknown): Promise<Checked> {
  const standard = type.input['~standard'] as { validate?: (value: unknown) => Answer | Promise<Answer> };
  if (typeof standard.validate !== 'function')
    throw new TypeError(`task type ${type.name} has no schema; see defineTask`);
  const { value, issues } = await standard.validate(input);
  const [issue] = issues ?? [];
  if (issue === undefined) return { kind: 'ok', value };
  const steps = (issue.path ?? []).map((step) => (typeof step === 'object' ? step.key : step));
  const field = steps.map((step) => (typeof step === 'number' ? `[${step}]` : `.${String(step)}`)).join('');
  return { kind: 'refused', field: `input${field}`, reason: issue.message };
}
