/** Reads the Range header of a download (RFC 9110, section 14). */
import { WarrenError } from '../../../shared/errors/warren-error.ts';
import type { ByteRange } from '../../../shared/files/file-store.ts';

/**
 * The range that is asked for of a file of `bytes`, `undefined` for all of it: without a header, with several ranges, or one in
 * another form, which a server may ignore. Throws `range-invalid` for one beyond the end.
 */
export function parseRange(header: string | undefined, bytes: number): ByteRange | undefined {
  const [, first = '', last = ''] = /^bytes=(\d{0,15})-(\d{0,15})$/i.exec(header ?? '') ?? [];
  if (first === '' && last === '') return undefined;
  if (first === '') {
    if (Number(last) === 0 || bytes === 0) throw new WarrenError('range-invalid', { bytes });
    return { start: Math.max(0, bytes - Number(last)), end: bytes - 1 };
  }
  const start = Number(first);
  const end = last === '' ? bytes - 1 : Math.min(Number(last), bytes - 1);
  if (last !== '' && Number(last) < start) return undefined; // no range at all
  if (start >= bytes) throw new WarrenError('range-invalid', { bytes });
  return { start, end };
}
