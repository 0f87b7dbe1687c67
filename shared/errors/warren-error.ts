/** The one error class of Warren: a code of the catalogue with facts. */
import { CATALOGUE } from './catalogue.ts';
import type { ErrorCode } from './catalogue.ts';

/** Facts about one error: plain values, safe to show, never a secret or a payload. */
export type ErrorFacts = Readonly<Record<string, unknown>>;

/**
 * An error with a code of the catalogue. The title of the code is the sentence; `facts` are what it is about
 * (`{ field: 'priority', reason: 'must be an integer from 0 to 9' }`), and become members of the problem document.
 */
export class WarrenError extends Error {
  readonly code: ErrorCode;
  readonly facts: ErrorFacts;
  override readonly name = 'WarrenError';

  constructor(code: ErrorCode, facts: ErrorFacts = {}, cause?: unknown) {
    super(messageOf(code, facts), cause === undefined ? undefined : { cause });
    this.code = code;
    this.facts = facts;
  }
}

/** A broken promise of our own code. Never caught below `main`. */
export class Bug extends Error {
  override readonly name = 'Bug';
}

/** True for a WarrenError, with the given code where one is given. */
export function isWarrenError(thrown: unknown, code?: ErrorCode): thrown is WarrenError {
  if (typeof thrown !== 'object' || thrown === null) return false;
  if (!('name' in thrown) || thrown.name !== 'WarrenError' || !('code' in thrown)) return false;
  return code === undefined || thrown.code === code;
}

function messageOf(code: ErrorCode, facts: ErrorFacts): string {
  const shown = Object.entries(facts)
    .map(([name, value]) => `${name}: ${typeof value === 'string' ? value : JSON.stringify(value)}`)
    .join(', ');
  return shown === '' ? CATALOGUE[code].title : `${CATALOGUE[code].title} (${shown})`;
}
