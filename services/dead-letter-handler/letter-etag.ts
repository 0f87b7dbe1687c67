/** How a letter stands, as HTTP names it: who looked at it and acts with `If-Match` is told where somebody was faster. */
import { WarrenError } from '../../shared/errors/warren-error.ts';

/** What an ETag is made of. */
export interface LetterStand {
  readonly state: string;
  readonly closed_at: Date | null;
  readonly closed_by: string | null;
  readonly replay_at: Date | null;
}

/** The ETag of a letter: it differs after each replay, discard and return. */
export function letterEtag({ state, closed_at: closedAt, replay_at: replayAt }: LetterStand): string {
  return `"${state}-${(closedAt ?? replayAt)?.getTime() ?? 0}"`;
}

/** Throws `precondition-failed` where the letter stands otherwise than `ifMatch` says; `undefined` and `*` fit every one. */
export function checkLetter(letter: LetterStand, ifMatch: string | undefined): void {
  if (ifMatch === undefined || ifMatch.trim() === '*') return;
  const etag = letterEtag(letter);
  if (ifMatch.trim().replace(/^W\//, '') === etag) return;
  const { state, closed_by: closedBy } = letter;
  throw new WarrenError('precondition-failed', { state, etag, ...(closedBy === null ? {} : { closedBy }) });
}
