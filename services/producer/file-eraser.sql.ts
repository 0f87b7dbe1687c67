/** The statements that delete files: first nobody gets them any more, then their bytes go, then their rows. */
import { sql, statement } from '../../shared/postgres/statement.ts';

/**
 * Looks at files whose time has come and answers those to delete, which from then on nobody gets. The file of a running attempt
 * stays, one of an attempt that succeeded until its time is over, and any other goes: its attempt failed, was lost or handed back, its
 * upload never ended, or its task is gone. The input of a task that may run again stays, that of one that ended for good until its
 * time is over, and one from before a replay mended it as long as that is kept. What stays is looked at again when its time may be over, and at least once a day;
 * what is to be deleted comes again after a minute, should whoever takes it now die. Rows that another replica looks at are
 * left to it. Walks files_sweep_at; tasks by primary key, mended_inputs_file.
 */
export const doomFiles = statement<[keepMs: number, keepAfterLinkMs: number, graceMs: number, limit: number]>()({
  name: 'doom_files',
  text: sql`
    with looked_at as (
      select f.id, f.task_id, f.attempt, f.kind, f.stored_at, f.link_expires_at, f.doomed_at
        from files f
       where f.sweep_at <= clock_timestamp()
       order by f.sweep_at
       limit $4::int4
         for no key update skip locked
    ), judged as (
      select l.id, l.doomed_at,
             case
               when l.doomed_at is not null or t.id is null then null
               when l.kind = 'input' then
                 case
                   when l.id is distinct from t.input_file then
                     case when exists (select from mended_inputs m where m.input_file = l.id) then clock_timestamp() + interval '1 day' end
                   when t.state in ('succeeded', 'cancelled', 'expired') then
                     greatest(t.finished_at + $1::float8 * interval '1 ms',
                              l.link_expires_at + $2::float8 * interval '1 ms')
                   else clock_timestamp() + interval '1 day'
                 end
               when t.attempt <> l.attempt then null
               when t.state = 'running' then clock_timestamp() + $3::float8 * interval '1 ms'
               when t.state = 'succeeded' and l.stored_at is not null then
                 greatest(t.finished_at + $1::float8 * interval '1 ms',
                          l.link_expires_at + $2::float8 * interval '1 ms')
             end as keep_until,
             coalesce(l.stored_at is not null and (l.id = t.input_file or t.state = 'succeeded' and t.attempt = l.attempt), false) as was_kept
        from looked_at l
        left join tasks t on t.id = l.task_id
    )
    update files f
       set doomed_at = case
             when j.keep_until is null or j.keep_until <= clock_timestamp() then coalesce(f.doomed_at, clock_timestamp())
           end,
           sweep_at = case
             when j.keep_until is null or j.keep_until <= clock_timestamp() then clock_timestamp() + interval '1 minute'
             else least(j.keep_until, clock_timestamp() + interval '1 day')
           end
      from judged j
     where f.id = j.id
    returning f.id, f.key, f.doomed_at is not null as is_doomed,
              case when j.was_kept then 'expired' else 'unused' end as why`,
  columns: { id: 'uuid', key: 'text', is_doomed: 'bool?', why: 'text?' },
});

/** Deletes the rows of files whose bytes are gone. */
export const deleteFileRows = statement<[ids: readonly string[]]>()({
  name: 'delete_file_rows',
  text: sql`
    with locked as (
      select id from files where id = any($1::uuid[]) and doomed_at is not null order by id for update
    )
    delete from files f using locked where f.id = locked.id returning f.id`,
  columns: { id: 'uuid' },
});

/** The first part of the key of every file of this database. */
export const readStoreId = statement<[]>()({
  name: 'read_store_id',
  text: sql`select store_id from installation`,
  columns: { store_id: 'uuid' },
});

/** Of `keys`, those that a row names. */
export const findKnownKeys = statement<[ids: readonly string[], keys: readonly string[]]>()({
  name: 'find_known_keys',
  text: sql`select key from files where id = any($1::uuid[]) and key = any($2::text[])`,
  columns: { key: 'text' },
});
