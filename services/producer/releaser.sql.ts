/** The statement that finds what is held back. */
import { sql, statement } from '../../shared/postgres/statement.ts';

/**
 * The next groups of tasks that are held back, in their order, but for those of fair queues, which stand behind all others. Goes from group to group along the index, however many tasks
 * each holds. Index: held_back_in_turn.
 */
export const findHeldGroups = statement<[afterReason: string, afterScope: string, afterKey: string, limit: number]>()({
  name: 'find_held_groups',
  text: sql`
    with recursive found as (
      (select reason, scope, key
         from held_back
        where (reason, scope, key) > ($1::text, $2::text, $3::text) and reason < 'turn'
        order by reason, scope, key
        limit 1)
      union all
      select n.reason, n.scope, n.key
        from found f
        cross join lateral (
          select h.reason, h.scope, h.key
            from held_back h
           where (h.reason, h.scope, h.key) > (f.reason, f.scope, f.key) and h.reason < 'turn'
           order by h.reason, h.scope, h.key
           limit 1
        ) n
    )
    select reason, scope, key from found limit $4::int4`,
  columns: { reason: 'text?', scope: 'text?', key: 'text?' },
});
