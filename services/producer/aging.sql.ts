/** The statements that find what has waited long. */
import { sql, statement } from '../../shared/postgres/statement.ts';

/** Which of these tasks still wait. */
export const stillPending = statement<[ids: readonly string[]]>()({
  name: 'still_pending',
  text: sql`select id, queue from tasks where id = any($1::uuid[]) and state = 'pending'`,
  columns: { id: 'uuid', queue: 'text' },
});

/** Slots of the living fleet, per queue. */
export const countSlots = statement<[]>()({
  name: 'count_slots',
  text: sql`
    select q.key as queue, sum(q.value::int4)::int4 as slots
      from leases, jsonb_each_text(queues) q
     group by q.key`,
  columns: { queue: 'text?', slots: 'int4?' },
});
