/** The statements that discard many letters. */
import { sql, statement } from '../../shared/postgres/statement.ts';
import { countOpen } from './open-count.sql.ts';

/**
 * Closes those of `ids` that are open, unrun, each with its own line in the audit that names the operation. Locks them in id order.
 * Index: dead_letters_pkey.
 */
export const discardLetters = statement<
  [ids: readonly string[], actor: string, role: string, reason: string, operationId: string, address: string | null]
>()({
  name: 'discard_letters',
  text: sql`
    with locked as (
      select id from dead_letters where id = any($1::uuid[]) and state = 'open' order by id for no key update
    ), letter as (
      update dead_letters l
         set state = 'discarded', closed_at = clock_timestamp(), closed_by = $2::text, close_reason = $4::text
        from locked k
       where l.id = k.id and l.state = 'open'
      returning l.id, l.kind, l.task_id, l.group_id
    ), grouped as (${countOpen(sql`-1`, sql`letter`)}
    ), audited as (
      insert into audit (id, actor, role, address, action, target, detail)
      select uuid_v7(), $2::text, $3::text, $6::text, 'dead-letter.discard', l.id::text,
             jsonb_build_object('kind', l.kind, 'taskId', l.task_id, 'reason', $4::text, 'operation', $5::uuid)
        from letter l
    )
    select id from letter`,
  columns: { id: 'uuid' },
});
