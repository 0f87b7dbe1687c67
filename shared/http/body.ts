/** Bodies as they came: the server keeps the bytes, the route parses them without loss. */
import { z } from 'zod';
import { WarrenError } from '../errors/warren-error.ts';
import { checkBySchema } from '../tasks/check-by-schema.ts';
import type { SchemaFault } from '../tasks/check-by-schema.ts';
import { parseExact } from '../tasks/json.ts';
import type { ExactOptions, Span } from '../tasks/json.ts';

/** A JSON body, not yet parsed. */
export interface RawBody {
  readonly raw: Buffer;
}

/** A parsed body, with the place of each of its outermost members in the bytes. */
export interface ParsedBody<T> extends RawBody {
  readonly value: T;
  readonly members: ReadonlyMap<string, Span>;
}

/** The schemas behind `rawBody`, for the OpenAPI document. */
const documented = new WeakMap<object, z.ZodType>();

/** Schema of a route whose body is `schema`: the document shows it, the handler gets the bytes and calls `parseBody`. */
export function rawBody(schema: z.ZodType): z.ZodType<RawBody> {
  const wrapped = z.custom<RawBody>((given) => given !== undefined && given !== null, 'is missing');
  documented.set(wrapped, schema);
  return wrapped;
}

/** The schema that the OpenAPI document shows for a body. */
export function documentedBody(schema: unknown): unknown {
  return typeof schema === 'object' && schema !== null ? (documented.get(schema) ?? schema) : schema;
}

/**
 * Parses and checks a body. Throws `body-invalid`, `body-too-deep`, `body-too-large`, `text-invalid`, `number-not-exact`,
 * and `field-invalid` with the first `field` and `reason` and all of them in `faults`.
 */
export function parseBody<T>({ raw }: RawBody, schema: z.ZodType<T>, options: ExactOptions): ParsedBody<T> {
  const parsed = parseExact(raw, options);
  if (parsed.kind === 'fault') throw new WarrenError(parsed.code, { field: parsed.field, reason: parsed.reason });
  const checked = checkBySchema(schema, parsed.value);
  if (checked.kind === 'refused') throw fieldInvalid(checked.faults);
  return { raw, value: checked.value, members: parsed.members };
}

/** The answer to what a schema refused: the first fault, and all in `faults`. */
export function fieldInvalid(faults: readonly [SchemaFault, ...SchemaFault[]]): WarrenError {
  const code = 'field-invalid';
  return new WarrenError(code, {
    ...faults[0],
    faults: faults.map((each) => ({ code, ...each })),
  });
}
