/** Compiled JSON Schemas: what a producer knows of the input of a task type, without the code of the type. */
import { Ajv2020 } from 'ajv/dist/2020.js';
import type { ErrorObject, ValidateFunction } from 'ajv/dist/2020.js';
import { toError } from '../errors/to-error.ts';
import type { InputFault } from './input.ts';
import { renderPath } from './json.ts';

/** Checks one input; gives what is wrong with it, nothing where all is well. Never throws. */
export type CheckInput = (input: unknown) => readonly InputFault[];

/** A compiled schema, or why it could not be compiled: then the workers of the type alone check its input. */
export type CompiledSchema =
  | { readonly kind: 'ok'; readonly check: CheckInput }
  | { readonly kind: 'unusable'; readonly reason: string };

const MOST_FAULTS = 20;
/** Members and items of an input up to which all its faults are listed: each fault costs an object. */
const MOST_VALUES_FOR_ALL = 2_000;
const MOST_ALLOWED_SHOWN = 200;

/** Compiles the text of a JSON Schema (2020-12). References to other documents make it unusable; nothing is fetched. */
export function compileInputSchema(text: string): CompiledSchema {
  try {
    const schema = JSON.parse(text) as Record<string, unknown>;
    const first = compile(schema, false);
    // Listing all faults is slower even where there are none, so it has a function of its own, made when first needed.
    let all: ValidateFunction | undefined;
    return {
      kind: 'ok',
      check: (input) => {
        try {
          if (first(input) === true) return [];
          if (!isSmall(input)) return toFaults(first.errors, input);
          all ??= compile(schema, true);
          return all(input) === true ? [] : toFaults(all.errors, input);
        } catch (thrown) {
          return [{ field: 'input', reason: `the schema of its type failed: ${toError(thrown).message}` }];
        }
      },
    };
  } catch (thrown) {
    return { kind: 'unusable', reason: toError(thrown).message };
  }
}

/** An instance per schema, so that two types may use the same `$id`. */
function compile(schema: Record<string, unknown>, allErrors: boolean): ValidateFunction {
  const ajv = new Ajv2020({
    allErrors,
    strict: false,
    logger: false,
    // What every object has is no member of an input.
    ownProperties: true,
    // A dialect that is not known is read as 2020-12.
    meta: false,
    validateSchema: false,
    // Formats that a library writes without a pattern beside them; all others are left to the worker.
    formats: { uri: (value: string) => URL.canParse(value) },
  });
  return ajv.compile(schema);
}

function toFaults(errors: readonly ErrorObject[] | null | undefined, input: unknown): InputFault[] {
  const faults = (errors ?? []).slice(0, MOST_FAULTS).map((error) => toFault(error, input));
  return faults.length === 0 ? [{ field: 'input', reason: 'does not fit its schema' }] : faults;
}

function toFault({ instancePath, keyword, params, message }: ErrorObject, input: unknown): InputFault {
  const path = pathOf(instancePath, input);
  const facts = params as Readonly<Record<string, unknown>>;
  if (keyword === 'required' || keyword === 'dependentRequired') {
    return { field: renderPath([...path, String(facts['missingProperty'])]), reason: 'is required' };
  }
  if (keyword === 'additionalProperties' || keyword === 'unevaluatedProperties') {
    const name = facts['additionalProperty'] ?? facts['unevaluatedProperty'];
    return { field: renderPath([...path, String(name)]), reason: 'is not allowed here' };
  }
  const allowed = keyword === 'enum' ? JSON.stringify(facts['allowedValues']) : '';
  const shown = allowed !== '' && allowed.length <= MOST_ALLOWED_SHOWN ? `: ${allowed}` : '';
  return { field: renderPath(path), reason: `${message ?? 'does not fit its schema'}${shown}` };
}

/** A JSON pointer as a path; a number is an index only where the input has an array. */
function pathOf(pointer: string, input: unknown): PropertyKey[] {
  const path: PropertyKey[] = ['input'];
  let value = input;
  for (const escaped of pointer.split('/').slice(1)) {
    const step = escaped.replaceAll('~1', '/').replaceAll('~0', '~');
    path.push(Array.isArray(value) ? Number(step) : step);
    value = typeof value === 'object' && value !== null ? (value as Record<string, unknown>)[step] : undefined;
  }
  return path;
}

function isSmall(input: unknown): boolean {
  const open: unknown[] = [input];
  let count = 0;
  while (open.length > 0) {
    const value = open.pop();
    if (typeof value !== 'object' || value === null) continue;
    const members: unknown[] = Object.values(value);
    count += members.length;
    if (count > MOST_VALUES_FOR_ALL) return false;
    open.push(...members);
  }
  return true;
}
