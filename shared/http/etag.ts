/** Versions of resources as HTTP names them, so that of two people who looked at the same the second one is told. */
import { WarrenError } from '../errors/warren-error.ts';

/** The ETag of a version. */
export const etagOf = (version: number): string => `"${version}"`;

/**
 * The version that `If-Match` names; `undefined` where any will do. Throws `field-invalid` for what is no ETag of ours.
 * Source: RFC 9110, section 13.1.1.
 */
export function versionOf(header: string | undefined): number | undefined {
  if (header === undefined || header.trim() === '*') return undefined;
  const version = /^(?:W\/)?"(\d{1,9})"$/.exec(header.trim())?.[1];
  if (version === undefined) {
    throw new WarrenError('field-invalid', { field: 'If-Match', reason: 'must be the ETag that was answered, or *' });
  }
  return Number(version);
}
