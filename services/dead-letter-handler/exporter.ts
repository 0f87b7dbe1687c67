/**
 * Writes letters out as JSON Lines, newest first. Ids are found in pages and letters are read one after the other, so that no cursor
 * and no transaction stays open, and nothing is read before whoever reads has taken what came before.
 */
import { toError } from '../../shared/errors/to-error.ts';
import type { Actor } from '../../shared/http/auth.ts';
import { execute } from '../../shared/postgres/statement.ts';
import type { Queryable } from '../../shared/postgres/statement.ts';
import type { Transactional } from '../../shared/postgres/transaction.ts';
import { newId } from '../../shared/tasks/ids.ts';
import { recordExport } from './exporter.sql.ts';
import { findLetterIds } from './finder.ts';
import type { LetterFilter } from './letter-filter.ts';
import { renderLetter } from './reader.ts';

/** What somebody asked for. */
export interface ExportRequest {
  readonly actor: Actor;
  /** What was asked for as it was asked, for the audit. */
  readonly asked: Readonly<Record<string, unknown>>;
}

/** Writes the line of the audit: letters hold what people sent, and who has a copy must be known. Throws as `Queryable.query`. */
export async function beginExport(db: Queryable, { actor, asked }: ExportRequest): Promise<void> {
  const { name, role, address } = actor;
  await execute(db, recordExport, newId(), name, role, JSON.stringify(asked), address ?? null);
}

/** Letters of one page of ids. */
const PAGE = 500;
/** Letters that are read at once: more saves nothing on two cores, and a letter may be large. */
const AT_ONCE = 4;

/**
 * Each letter that fits as one line, whole, as it is when its turn comes. What dies while the export runs is not in it. A failure
 * is logged and thrown on, so that the answer breaks off and nobody takes a part for the whole.
 */
export async function* exportLetters(db: Transactional, filter: LetterFilter): AsyncGenerator<string, void, undefined> {
  let below: string | undefined;
  let isWalking = false;
  try {
    do {
      const { items, next, isPartial } = await findLetterIds(db, { filter, limit: PAGE, below, isWalking });
      for (let start = 0; start < items.length; start += AT_ONCE) {
        const ids = items.slice(start, start + AT_ONCE);
        const letters = await Promise.all(ids.map(async (id) => (await renderLetter(db, id))?.text));
        for (const letter of letters) if (letter !== undefined) yield `${lineOf(letter)}\n`;
      }
      below = next;
      isWalking ||= isPartial;
    } while (below !== undefined);
  } catch (thrown) {
    db.deps.log.warn('export broken off', { err: toError(thrown) });
    throw thrown;
  }
}

/** An input is shown byte for byte, so that it may hold line breaks: between its tokens, where a space says the same. */
function lineOf(json: string): string {
  return json.replaceAll(/[\r\n]/g, ' ');
}
