/** The count of open letters that each failure group keeps. */
import { sql } from '../../shared/postgres/statement.ts';
import type { Sql } from '../../shared/postgres/statement.ts';

/**
 * Adds to the open letters of groups. `change`: 1 or -1; `from`: rows of letters that have just become open, or are not open any
 * more, with `group_id` as their update returned it. What is in no group yet is counted when it joins one. Locks groups in id
 * order, after the letters.
 *
 * The group may have been made while the statement waited for the letter's lock. A join would not see it, a conflict does: the
 * row that is to be inserted never is.
 */
export const countOpen = (change: Sql, from: Sql): Sql => sql`
      insert into failure_groups as g (id, kind, letters, open_letters, first_at, last_at)
      select group_id, 'task', 0, (${change}) * count(*), now(), now()
        from ${from}
       where group_id is not null
       group by 1
       order by 1
      on conflict (id) do update set open_letters = g.open_letters + excluded.open_letters`;
