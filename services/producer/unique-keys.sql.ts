/** Who holds unique keys. What holds a key is judged by the holder's row, at the moment at which somebody asks. */
import { sql, statement } from '../../shared/postgres/statement.ts';
import { isKeyHeld } from '../../shared/tasks/beside.sql.ts';

/**
 * Who holds these keys, and frees those that nobody holds any more; a key that is not answered is free already. A key may be
 * asked for once. Index: unique_keys primary key.
 */
export const contestKeys = statement<[types: readonly string[], keys: readonly string[]]>()({
  name: 'contest_unique_keys',
  text: sql`
    with looked as (
      select k.type, k.key, k.task_id, k.hold, t.state::text as state, t.accepted_at, clock_timestamp() as now,
             ${isKeyHeld} as is_held
        from unnest($1::text[], $2::text[]) as a (type, key)
        join unique_keys k on k.type = a.type and k.key = a.key
        left join tasks t on t.id = k.task_id
       order by k.type, k.key
    ), free as (
      select k.type, k.key
        from looked l
        join unique_keys k on k.type = l.type and k.key = l.key and k.task_id = l.task_id
       where not l.is_held
       order by k.type, k.key
         for update of k
    ), freed as (
      delete from unique_keys k using free f where k.type = f.type and k.key = f.key
    )
    select type, key, task_id, hold, state, accepted_at, now, is_held from looked`,
  columns: {
    type: 'text',
    key: 'text',
    task_id: 'uuid',
    hold: 'text',
    state: 'text?',
    accepted_at: 'timestamptz?',
    now: 'timestamptz?',
    is_held: 'bool',
  },
});

/** Gives keys back that tasks took which were not accepted after all. Index: unique_keys primary key. */
export const giveKeysBack = statement<
  [types: readonly string[], keys: readonly string[], taskIds: readonly string[]]
>()({
  name: 'give_unique_keys_back',
  text: sql`
    delete from unique_keys k
     using unnest($1::text[], $2::text[], $3::uuid[]) as a (type, key, task_id)
     where k.type = a.type and k.key = a.key and k.task_id = a.task_id
       and not exists (select from tasks t where t.id = k.task_id)
    returning k.task_id`,
  columns: { task_id: 'uuid' },
});
