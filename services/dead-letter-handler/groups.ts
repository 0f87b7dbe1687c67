/** Shows failure groups, and writes down what people say about them. */
import { WarrenError } from '../../shared/errors/warren-error.ts';
import type { Actor } from '../../shared/http/auth.ts';
import { run } from '../../shared/postgres/statement.ts';
import type { Queryable, RowOf } from '../../shared/postgres/statement.ts';
import { newId } from '../../shared/tasks/ids.ts';
import type { GroupState } from '../../shared/dead-letters/group-state.ts';
import { changeGroup, listGroups, readGroup, readGroupLetters } from './groups.sql.ts';

/** Which groups a list holds. */
export interface GroupListing {
  readonly states: readonly GroupState[];
  /** Only groups with this many open letters or more. */
  readonly minOpen: number;
  /** The last group of the page before; `undefined` for the first page. */
  readonly below: { readonly open: number; readonly id: string } | undefined;
  readonly limit: number;
}

/** What is to be changed; what is `undefined` stays, an empty text is taken away. */
export interface GroupChange {
  readonly state?: GroupState | undefined;
  readonly note?: string | undefined;
  readonly assignee?: string | undefined;
}

/** A group as the API shows it. */
export interface GroupView {
  readonly id: string;
  readonly kind: string;
  readonly type: string | null;
  readonly error: { readonly type: string | null; readonly message: string | null; readonly frame: string | null };
  readonly rule: string | null;
  readonly state: string;
  readonly note: string | null;
  readonly assignee: string | null;
  readonly version: number;
  readonly changedAt: string | null;
  readonly changedBy: string | null;
  readonly letters: number;
  readonly openLetters: number;
  readonly firstAt: string;
  readonly lastAt: string;
  readonly reopenedAt: string | null;
  readonly queues: readonly string[];
  readonly codeVersions: readonly string[];
  /** Letters of each of the last 24 hours, the present one last. */
  readonly lastHours: readonly number[];
}

const SHOWN_LETTERS = 10;

/** Groups, those with the most open letters first. */
export async function findGroups(
  db: Queryable,
  { states, minOpen, below, limit }: GroupListing,
): Promise<readonly GroupView[]> {
  const rows = await run(db, listGroups, states, minOpen, below?.open.toString() ?? null, below?.id ?? null, limit);
  return rows.map((row) => viewOf(row));
}

/** One group with its youngest open letters. Throws `failure-group-not-found`. */
export async function getGroup(
  db: Queryable,
  id: string,
): Promise<GroupView & { readonly youngest: readonly unknown[] }> {
  const [row] = await run(db, readGroup, id);
  if (row === undefined) throw new WarrenError('failure-group-not-found', { id });
  const letters = await run(db, readGroupLetters, id, SHOWN_LETTERS);
  return {
    ...viewOf(row),
    youngest: letters.map(({ id: letterId, reason, type, queue, died_at: diedAt, error_message: message }) => ({
      id: letterId,
      reason,
      type,
      queue,
      diedAt: diedAt.toISOString(),
      message,
    })),
  };
}

/**
 * Changes a group. `version`: only if it still is at this one. Throws `failure-group-not-found`, and `precondition-failed`
 * where somebody else was faster.
 */
export async function changeFailureGroup(
  db: Queryable,
  { id, version }: { readonly id: string; readonly version: number | undefined },
  { state, note, assignee }: GroupChange,
  actor: Actor,
): Promise<GroupView> {
  const [changed] = await run(
    db,
    changeGroup,
    id,
    version ?? null,
    state ?? null,
    note ?? null,
    assignee ?? null,
    actor.name,
    actor.role,
    newId(),
    actor.address ?? null,
  );
  const [row] = await run(db, readGroup, id);
  if (row === undefined) throw new WarrenError('failure-group-not-found', { id });
  if (changed === undefined)
    throw new WarrenError('precondition-failed', { version: row.version, changedBy: row.changed_by });
  return viewOf(row);
}

function viewOf(row: RowOf<typeof listGroups.columns>): GroupView {
  return {
    id: row.id,
    kind: row.kind,
    type: row.type,
    error: { type: row.error_type, message: row.error_message, frame: row.frame },
    rule: row.rule,
    state: row.state,
    note: row.note,
    assignee: row.assignee,
    version: row.version,
    changedAt: row.changed_at?.toISOString() ?? null,
    changedBy: row.changed_by,
    letters: Number(row.letters),
    openLetters: Number(row.open_letters),
    firstAt: row.first_at.toISOString(),
    lastAt: row.last_at.toISOString(),
    reopenedAt: row.reopened_at?.toISOString() ?? null,
    queues: row.queues,
    codeVersions: row.code_versions,
    lastHours: row.last_hours ?? [],
  };
}
