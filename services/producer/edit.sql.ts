/** The statements that edit tasks which wait. */
import { sql, statement } from '../../shared/postgres/statement.ts';
import type { Sql } from '../../shared/postgres/statement.ts';
import { holdForQueue, isAmong, writeOutbox } from '../../shared/tasks/beside.sql.ts';

/** An instant as the API writes it, whatever the zone of the session. */
const shown = (column: Sql): Sql => sql`to_char(${column} at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"')`;

/** One member of what the audit says has changed: nothing where it is the same. */
const change = (name: Sql, before: Sql, after: Sql): Sql => sql`
             case when ${before} is distinct from ${after}
               then jsonb_build_object(${name}, jsonb_build_object('before', ${before}, 'after', ${after})) else '{}' end`;

/**
 * Edits those of the tasks that wait, in the generation that is asked for where one is; null leaves a column as it is. With another
 * input go the keys that it counts under towards the limits of its type. Where
 * that changes anything the generation rises, so that invitations of before lose, the audit gets a line with what changed (but for
 * replacements, of which a key may see many a second), and what is pending then is invited anew, or waits for its turn where its queue
 * is fair. A blocked task waits for no time, so none is set. Locks the tasks in id order, then their
 * rows of `due`. A row is judged as it is once locked, while the update sees it as it was when the statement began: where the two
 * differ nothing is done, and the caller sends the statement again. Index: tasks primary key.
 */
export const editTasks = statement<
  [
    ids: readonly string[],
    generation: number | null,
    newPriority: number | null,
    newQueue: string | null,
    setsRunAt: boolean,
    newRunAt: Date | null,
    delayMs: number | null,
    setsDeadline: boolean,
    newDeadline: Date | null,
    newInput: Buffer | null,
    newConcurrencyKey: string | null,
    newRateKey: string | null,
    actor: string,
    role: string,
    detail: string,
    address: string | null,
    isAudited: boolean,
    newInputFile: string | null,
  ]
>()({
  name: 'edit_tasks',
  text: sql`
    with target as (
      select id, state, generation, priority, queue, run_at, deadline, input, clock_timestamp() as now,
             case when $10::bytea is null then false
                  else input <> $10::bytea or input_file is distinct from $18::uuid end as is_new_input,
             case when $10::bytea is null then null
                  else coalesce((select bytes from files f where f.id = input_file), octet_length(input)) end as input_bytes
        from tasks where id = any($1::uuid[]) order by id for no key update
    ), wanted as (
      select g.*, m.new_run_at, coalesce($3::int2, g.priority) as new_priority, coalesce($4::text, g.queue) as new_queue,
             case when $8::bool then $9::timestamptz else g.deadline end as new_deadline,
             case
               when not $5::bool then g.state
               when m.new_run_at is null then 'pending'
               when g.state = 'retrying' then 'retrying'
               else 'scheduled'
             end::task_state as new_state,
             g.state in ('pending', 'scheduled', 'retrying') or (g.state = 'blocked' and not $5::bool) as is_editable,
             $2::int4 is null or g.generation = $2::int4 as is_expected,
             turn_key(coalesce($4::text, g.queue), coalesce($10::bytea, g.input)) as turn
        from target g
        cross join lateral (
          select case
                   when not $5::bool then g.run_at
                   when $7::float8 > 0 then g.now + $7::float8 * interval '1 ms'
                   when $6::timestamptz > g.now then $6::timestamptz
                 end as new_run_at
        ) m
    ), changed as (
      select * from wanted w
       where is_editable and is_expected
         and (is_new_input
              or (new_priority, new_queue, new_state, new_run_at, new_deadline)
                 is distinct from (priority, queue, state, run_at, deadline))
    ), edited as (
      update tasks t
         set state = c.new_state, generation = t.generation + 1, priority = c.new_priority, queue = c.new_queue,
             run_at = c.new_run_at, deadline = c.new_deadline, input = coalesce($10::bytea, t.input),
             concurrency_key = case when $10::bytea is null then t.concurrency_key else $11::text end,
             rate_key = case when $10::bytea is null then t.rate_key else $12::text end,
             input_file = case when $10::bytea is null then t.input_file else $18::uuid end,
             invited_at = case
               when c.new_state = 'pending' then case when c.turn is null then c.now end
               when c.new_state = c.state then t.invited_at
             end
        from changed c
       where t.id = c.id and t.state = c.state and t.generation = c.generation
         and t.state in ('pending', 'scheduled', 'retrying', 'blocked')
      returning t.id, t.state, t.generation, t.type, t.queue, t.priority, c.turn, c.state as was, c.generation as generation_before,
                c.priority as old_priority, c.queue as old_queue, c.run_at as old_run_at, c.deadline as old_deadline,
                c.new_run_at, c.new_deadline, c.is_new_input, c.input_bytes, t.flow_id, t.flow_step,
                least(case when t.state in ('scheduled', 'retrying') then t.run_at end, t.deadline) as due_at
    ), filed as (
      -- what a replacing submission stored was for a task of its own
      update files f set task_id = e.id from edited e where f.id = $18::uuid and f.task_id <> e.id
    ), made_by_hand as (
      -- the input of a step that its flow would make of results: what is given now is what it gets
      update flow_steps s
         set pieces = null, refs = null
        from edited e
       where e.is_new_input and e.was = 'blocked' and s.flow_id = e.flow_id and s.step = e.flow_step
    ), waiting as (
      insert into due (task_id, at)
      select id, due_at from edited where due_at is not null order by id
      on conflict (task_id) do update set at = excluded.at where due.at <> excluded.at
    ), no_longer_due as (
      delete from due d using edited e where d.task_id = e.id and e.due_at is null
    ), held as (${holdForQueue(sql`edited where state = 'pending' and turn is not null`)}
    ), invited as (${writeOutbox(sql`edited where state = 'pending' and turn is null`)}
    ), audited as (
      insert into audit (id, actor, role, address, action, target, detail)
      select uuid_v7(), $13::text, $14::text, $16::text, 'task.edit', e.id::text,
             $15::text::jsonb || jsonb_build_object('changed',
             ${change(sql`'state'`, sql`e.was`, sql`e.state`)} ||
             ${change(sql`'priority'`, sql`e.old_priority`, sql`e.priority`)} ||
             ${change(sql`'queue'`, sql`e.old_queue`, sql`e.queue`)} ||
             ${change(sql`'runAt'`, shown(sql`e.old_run_at`), shown(sql`e.new_run_at`))} ||
             ${change(sql`'deadline'`, shown(sql`e.old_deadline`), shown(sql`e.new_deadline`))} ||
             case when e.is_new_input
               then jsonb_build_object('input', jsonb_build_object('bytesBefore', e.input_bytes, 'bytesAfter',
                                                                         coalesce((select bytes from files f where f.id = $18::uuid), octet_length($10::bytea))))
               else '{}' end)
        from edited e
       where $17::bool
    )
    select e.id, e.was::text as was, e.generation_before, true as is_editable, true as is_expected, true as is_changed,
           e.state::text as state, e.type, e.queue, e.priority, e.generation,
           case when e.state = 'pending' and e.turn is null then (select id from invited) end as outbox_id
      from edited e
    union all
    select w.id, w.state::text, w.generation, w.is_editable, w.is_expected, ${isAmong(sql`w.id`, sql`changed`)},
           null, null, null, null, null, null
      from wanted w
     where not ${isAmong(sql`w.id`, sql`edited`)}
     order by 1`,
  columns: {
    id: 'uuid',
    was: 'text',
    generation_before: 'int4',
    is_editable: 'bool?',
    is_expected: 'bool?',
    is_changed: 'bool?',
    state: 'text?',
    type: 'text?',
    queue: 'text?',
    priority: 'int2?',
    generation: 'int4?',
    outbox_id: 'int8?',
  },
});

/** The type of a task, which never changes. Index: tasks primary key. */
export const readType = statement<[taskId: string]>()({
  name: 'read_task_type',
  text: sql`select type from tasks where id = $1::uuid`,
  columns: { type: 'text' },
});
