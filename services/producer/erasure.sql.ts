/** The statements that erase payloads. All of a chunk are one transaction, which begins with retention's lock. */
import { sql, statement } from '../../shared/postgres/statement.ts';

/** The next 500 tasks of a business key. Index: tasks_business_key. */
export const findByKey = statement<[businessKey: string, after: string]>()({
  name: 'erasure_find_by_key',
  text: sql`select id from tasks where business_key = $1::text and id > $2::uuid order by id limit 500`,
  columns: { id: 'uuid' },
});

/** The tasks of letters: what a letter shows of its message lies there. */
export const findTasksOfLetters = statement<[letterIds: readonly string[]]>()({
  name: 'erasure_find_tasks_of_letters',
  text: sql`
    select distinct task_id as id from dead_letters where id = any($1::uuid[]) and task_id is not null order by 1`,
  columns: { id: 'uuid?' },
});

/** Notes who asks for what, before anything is erased. The audit gets no payload: of a business key only its digest. */
export const beginErasure = statement<
  [id: string, actor: string, role: string, address: string | null, reason: string, auditId: string, detail: string]
>()({
  name: 'begin_erasure',
  text: sql`
    with begun as (
      insert into erasures (id, actor, reason) values ($1::uuid, $2::text, $5::text) returning id
    )
    insert into audit (id, actor, role, address, action, target, detail)
    select $6::uuid, $2::text, $3::text, $4::text, 'payload.erase', id::text,
           $7::text::jsonb || jsonb_build_object('reason', $5::text)
      from begun
    returning id`,
  columns: { id: 'uuid' },
});

/** Adds to what an erasure has erased. */
export const countErasure = statement<[id: string, counts: string, isOver: boolean]>()({
  name: 'count_erasure',
  text: sql`
    update erasures
       set counts = $2::text::jsonb, ended_at = case when $3::bool then clock_timestamp() end
     where id = $1::uuid
    returning id`,
  columns: { id: 'uuid' },
});

/**
 * Locks tasks that have ended, with their letters, letters first as a replay does, each in id order. Answers the tasks, and
 * those that have not ended. Indexes: dead_letters_task, tasks primary key.
 */
export const lockErasable = statement<[taskIds: readonly string[]]>()({
  name: 'lock_erasable',
  text: sql`
    with letters as materialized (
      select id from dead_letters where task_id = any($1::uuid[]) order by id for no key update
    ), locked as materialized (
      select t.id, t.state
        from tasks t
       where t.id = any($1::uuid[]) and (select count(*) from letters) >= 0
       order by t.id
         for no key update of t
    )
    select array(select id from locked where state in ('succeeded', 'dead', 'cancelled', 'expired') order by id) as ended,
           array(select id from locked where state not in ('succeeded', 'dead', 'cancelled', 'expired') order by id)
             as not_ended`,
  columns: { ended: 'uuid[]', not_ended: 'uuid[]' },
});

/** Erases what tasks carry, and marks them. The tasks are locked. */
export const eraseTasks = statement<[taskIds: readonly string[], erasureId: string]>()({
  name: 'erase_tasks',
  text: sql`
    with erased as (
      update tasks
         set input = '{"erased":true}', input_file = null, result = null, tags = null, business_key = null, correlation_id = null,
             concurrency_key = null, rate_key = null, trace = null, failed_span = null
       where id = any($1::uuid[]) and state in ('succeeded', 'dead', 'cancelled', 'expired')
      returning id
    ), marked as (
      insert into erased_tasks (task_id, erasure_id)
      select id, $2::uuid from erased order by id
      on conflict (task_id) do update set erasure_id = excluded.erasure_id, erased_at = excluded.erased_at
    )
    select id from erased`,
  columns: { id: 'uuid' },
});

/** Erases what stands beside tasks. */
export const eraseBeside = statement<[taskIds: readonly string[]]>()({
  name: 'erase_beside',
  text: sql`
    with attempt as (
      update attempts set error_message = null, error_stack = null
       where task_id = any($1::uuid[]) and (error_message is not null or error_stack is not null)
      returning task_id
    ), origin as (
      delete from origins where task_id = any($1::uuid[]) returning task_id
    ), told as (
      delete from progress where task_id = any($1::uuid[]) returning task_id
    ), logged as (
      delete from attempt_logs where task_id = any($1::uuid[]) returning task_id
    ), done_once as (
      delete from once_runs where task_id = any($1::uuid[]) returning task_id
    ), filed as (
      -- from now on nobody gets them; their bytes go with the sweeper's next round
      update files
         set doomed_at = coalesce(doomed_at, clock_timestamp()), sweep_at = clock_timestamp(), name = 'erased'
       where task_id = any($1::uuid[])
      returning id
    ), part_of as (
      -- all flows around as well: they are about the same, and may hold what those within are made of
      with recursive around (id) as (
        select distinct t.flow_id from tasks t where t.id = any($1::uuid[]) and t.flow_id is not null
        union
        select f.parent_id from around a cross join lateral (select * from flows w where w.id = a.id offset 0) f where f.parent_id is not null
      )
      select a.id
        from around a
        cross join lateral (select * from flows w where w.id = a.id offset 0) f
       where f.finished_at is not null
    ), flow as (
      update flows f set business_key = null, tags = null, cancel_reason = null, groups = null, trace = null from part_of p where f.id = p.id
    ), key as (
      delete from flow_keys k using part_of p where k.flow_id = p.id
    ), made_of as (
      update flow_steps s set pieces = null, refs = null, spec = null, added_as = null from part_of p where s.flow_id = p.id
    ), signalled as (
      update flow_signals g set data = 'null' from part_of p where g.flow_id = p.id
    ), held as (
      delete from held_back where task_id = any($1::uuid[])
    )
    select (select count(*) from filed)::int4 as files, (select count(*) from logged)::int4 as logs, (select count(*) from done_once)::int4 as once_results,
           (select count(*) from attempt)::int4 as attempts, (select count(*) from origin)::int4 as origins,
           (select count(*) from told)::int4 as progress`,
  columns: {
    files: 'int4?',
    logs: 'int4?',
    once_results: 'int4?',
    attempts: 'int4?',
    origins: 'int4?',
    progress: 'int4?',
  },
});

/**
 * Erases letters, of these tasks and by these ids, and closes those that are open: what is erased cannot be replayed. A letter
 * that is on its way through RabbitMQ is left. Locks letters in id order.
 */
export const eraseLetters = statement<[taskIds: readonly string[], letterIds: readonly string[], actor: string]>()({
  name: 'erase_letters',
  text: sql`
    with locked as materialized (
      select id, state, group_id
        from dead_letters
       where (task_id = any($1::uuid[]) or id = any($2::uuid[])) and state <> 'replaying'
       order by id
         for no key update
    )
    update dead_letters l
       set state = case when k.state = 'open' then 'discarded' else l.state end,
           closed_at = coalesce(l.closed_at, clock_timestamp()),
           closed_by = coalesce(l.closed_by, $3::text),
           close_reason = case when k.state = 'open' then 'erased' else l.close_reason end,
           error_message = null, error_stack = null, properties = null, headers = null, x_death = null,
           body = case when l.kind <> 'task' then ''::bytea end, erased_at = clock_timestamp()
      from locked k
     where l.id = k.id and l.state = k.state
    returning l.id, l.group_id, k.state = 'open' as was_open`,
  columns: { id: 'uuid', group_id: 'uuid?', was_open: 'bool?' },
});

/** Erases what letters are searched by, inputs and patches of replays, what their items say of errors, and samples of groups. */
export const eraseBesideLetters = statement<
  [letterIds: readonly string[], groupIds: readonly string[], openByGroup: readonly number[]]
>()({
  name: 'erase_beside_letters',
  text: sql`
    with fact as (
      update letter_facts set tags = null, error_text = null, input = null where letter_id = any($1::uuid[]) returning letter_id
    ), mended as (
      delete from mended_inputs where letter_id = any($1::uuid[]) returning letter_id
    ), item as (
      update replay_items set error_message = null, why = null
       where letter_id = any($1::uuid[]) and (error_message is not null or why is not null)
      returning replay_id
    ), patch as (
      update replays r
         set patch = null
       where r.patch is not null and r.finished_at is not null
         and r.id in (select i.replay_id from replay_items i where i.letter_id = any($1::uuid[]))
      returning r.id
    ), grouped as (
      update failure_groups g
         set error_message = null, open_letters = g.open_letters - u.open
        from unnest($2::uuid[], $3::int4[]) as u (id, open)
       where g.id = u.id
      returning g.id
    )
    select (select count(*) from fact)::int4 as facts, (select count(*) from mended)::int4 as mended,
           (select count(*) from item)::int4 as items, (select count(*) from patch)::int4 as patches,
           (select count(*) from grouped)::int4 as groups`,
  columns: { facts: 'int4?', mended: 'int4?', items: 'int4?', patches: 'int4?', groups: 'int4?' },
});
