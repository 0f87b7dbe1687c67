/** What a refused message may have met that is in its row alone. */
import { sql, statement } from '../../shared/postgres/statement.ts';
import { isKeyHeld } from '../../shared/tasks/beside.sql.ts';

/** Which tasks hold these keys now. Index: unique_keys primary key. */
export const findHolders = statement<[types: readonly string[], keys: readonly string[]]>()({
  name: 'find_key_holders',
  text: sql`
    select a.n::int4 as n, k.task_id
      from unnest($1::text[], $2::text[]) with ordinality as a (type, key, n)
      join unique_keys k on k.type = a.type and k.key = a.key
      left join tasks t on t.id = k.task_id
     where ${isKeyHeld}`,
  columns: { n: 'int4', task_id: 'uuid' },
});
