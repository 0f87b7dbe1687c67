/** Idempotency keys as headers. */
import { InputRefusedError } from './errors.ts';

/** A structured field's string (RFC 8941). Throws `InputRefusedError`. */
export function quoteKey(key: string): string {
  if (!/^[\x20-\x7e]{1,240}$/.test(key)) {
    throw new InputRefusedError(
      'idempotencyKey',
      'must be 1 to 240 printable ASCII characters',
      'idempotency-key-invalid',
    );
  }
  return `"${key.replaceAll(/["\\]/g, String.raw`\$&`)}"`;
}
