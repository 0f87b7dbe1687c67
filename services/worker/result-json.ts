/** What a handler gives, as the JSON bytes that are kept. */
import { WarrenError } from '../../shared/errors/warren-error.ts';

/** Bytes, `undefined` for nothing; or why it cannot be kept, with its size where that is why. */
export type RenderedJson =
  | { readonly bytes: Buffer | undefined }
  | { readonly fault: string; readonly cause?: unknown; readonly tooLarge?: number };

/** Renders a value as JSON of at most `maxBytes`. Never throws, whatever the value's getters do. */
export function renderJson(value: unknown, maxBytes: number): RenderedJson {
  if (value === undefined) return { bytes: undefined };
  let text: string | undefined;
  try {
    text = JSON.stringify(value) as string | undefined;
  } catch (thrown) {
    return { fault: 'is no JSON', cause: thrown };
  }
  if (text === undefined) return { fault: `is a ${typeof value}` };
  const bytes = Buffer.from(text);
  if (bytes.length <= maxBytes) return { bytes };
  return { fault: `has ${bytes.length} bytes of JSON, more than ${maxBytes}`, tooLarge: bytes.length };
}

/** The error of a result that cannot be kept. */
export function unstorable(
  { fault, cause, tooLarge }: Extract<RenderedJson, { readonly fault: string }>,
  maxBytes: number,
): WarrenError {
  return tooLarge === undefined
    ? new WarrenError('result-unstorable', { reason: fault }, cause)
    : new WarrenError('result-too-large', { bytes: tooLarge, maxBytes });
}
