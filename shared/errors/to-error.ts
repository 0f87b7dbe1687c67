/** Turns whatever was thrown into an Error, since JavaScript can throw anything and handlers do. */

interface ErrorLike extends Error {
  readonly code?: unknown;
}

/**
 * Turns whatever was thrown into an Error. Never throws itself, not even for an object whose getters throw.
 *
 * Duck-typed on purpose: `instanceof Error` is false for errors from another realm (sockets under jest, threads).
 */
export function toError(thrown: unknown): ErrorLike {
  try {
    return isErrorLike(thrown) ? thrown : new Error(`thrown value: ${String(thrown)}`, { cause: thrown });
  } catch {
    return new Error('thrown value could not be read');
  }
}

/** The `code` of whatever was thrown (`ECONNREFUSED`, an SQLSTATE, a Warren code), or `undefined`. Never throws. */
export function codeOf(thrown: unknown): string | undefined {
  try {
    if (typeof thrown !== 'object' || thrown === null || !('code' in thrown)) return undefined;
    return typeof thrown.code === 'string' ? thrown.code : undefined;
  } catch {
    return undefined;
  }
}

function isErrorLike(value: unknown): value is ErrorLike {
  return (
    typeof value === 'object' &&
    value !== null &&
    'message' in value &&
    typeof value.message === 'string' &&
    'name' in value &&
    typeof value.name === 'string'
  );
}
