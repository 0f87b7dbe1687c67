/** The statement of exports. */
import { sql, statement } from '../../shared/postgres/statement.ts';

/** Writes that somebody takes a copy of many letters, before the first of them is sent. */
export const recordExport = statement<
  [operationId: string, actor: string, role: string, detail: string, address: string | null]
>()({
  name: 'record_export',
  text: sql`
    insert into audit (id, actor, role, address, action, target, detail)
    values ($1::uuid, $2::text, $3::text, $5::text, 'dead-letters.export', $1::uuid::text, $4::jsonb)`,
  columns: {},
});
