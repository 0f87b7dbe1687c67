/** The statements about operations: something that was done to many rows at once, each with its own line in the audit. */
import { sql, statement } from '../postgres/statement.ts';

/** Writes that somebody begins to do something to many, before the first of them is touched. */
export const recordOperation = statement<
  [operationId: string, action: string, actor: string, role: string, detail: string, address: string | null]
>()({
  name: 'record_operation',
  text: sql`
    insert into audit (id, actor, role, address, action, target, detail)
    values ($1::uuid, $3::text, $4::text, $6::text, $2::text, $1::uuid::text, $5::jsonb)`,
  columns: {},
});

/** Whether this is an operation of that actor, with that filter. Index: audit primary key. */
export const findOperation = statement<[operationId: string, action: string, actor: string, filter: string]>()({
  name: 'find_operation',
  text: sql`
    select id from audit
     where id = $1::uuid and action = $2::text and actor = $3::text and detail->>'filter' = $4::text`,
  columns: { id: 'uuid' },
});
