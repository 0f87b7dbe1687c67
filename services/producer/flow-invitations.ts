/** Publishes what a flow lets start. */
import type { OutboxRow } from '../../shared/tasks/invitation.ts';
import { outboxRowsOf } from '../../shared/tasks/outbox.ts';

/** Hands the tasks of these rows to whoever publishes; rows without a task are of something else. */
export function inviteFreed(rows: readonly FreedRow[], invite: (row: OutboxRow) => Promise<boolean>): void {
  const freed = rows.flatMap((row) => (isFreed(row) ? [row] : []));
  for (const row of outboxRowsOf(freed, ({ id }) => id)) void invite(row); // never rejects
}

/** What a statement answers of a task that may start. */
export interface FreedRow {
  readonly id: string | null;
  readonly type: string | null;
  readonly queue: string | null;
  readonly priority: number | null;
  readonly generation: number | null;
  readonly outbox_id: string | null;
}

type Freed = { readonly [Key in keyof FreedRow]: NonNullable<FreedRow[Key]> };

const isFreed = (row: FreedRow): row is Freed => row.id !== null && row.outbox_id !== null;
