/** The statements that show tasks. None walks the table but along an index, and each is bounded. */
import { sql, statement } from '../../shared/postgres/statement.ts';
import { oneById, traceOf } from '../../shared/tasks/beside.sql.ts';
import type { Sql } from '../../shared/postgres/statement.ts';

/** Columns of a task in a list: all but its bodies. */
export const listedColumns = {
  id: 'uuid',
  state: 'text',
  type: 'text',
  queue: 'text',
  priority: 'int2',
  generation: 'int4',
  attempt: 'int4',
  failures: 'int4',
  max_attempts: 'int4',
  lost_attempts: 'int2',
  accepted_at: 'timestamptz',
  invited_at: 'timestamptz?',
  run_at: 'timestamptz?',
  deadline: 'timestamptz?',
  started_at: 'timestamptz?',
  finished_at: 'timestamptz?',
  worker: 'uuid?',
  business_key: 'text?',
  external_id: 'text?',
  publisher: 'text?',
  correlation_id: 'text?',
  tags: 'text[]?',
  trace: 'text?',
} as const;

/** Tasks with what stands beside each, in no order. Indexes: primary keys, dead_letters_open_task, files_task. */
export const readWholeTasks = statement<[ids: readonly string[]]>()({
  name: 'read_whole_tasks',
  text: sql`
    select t.id, t.state::text as state, t.type, t.queue, t.priority, t.generation, t.attempt, t.failures,
           t.max_attempts, t.lost_attempts, t.accepted_at, t.invited_at, t.run_at, t.deadline, t.started_at,
           t.finished_at, t.worker, t.business_key, t.external_id, t.publisher, t.correlation_id, t.tags,
           ${traceOf(sql`t`)} as trace, t.input, t.result,
           p.fraction::float8 as progress_fraction, p.step as progress_step, p.message as progress_message,
           p.updated_at as progress_at, clock_timestamp() as now,
           c.requested_at as cancel_requested_at, d.id as dead_letter_id,
           f.id as result_file_id, f.name as result_file_name, f.content_type as result_file_type,
           f.bytes as result_file_bytes, f.sha256 as result_file_sha256,
           n.id as input_file, n.bytes as input_file_bytes, n.sha256 as input_file_sha256, t.flow_id, s.name as step_name,
           case when s.task_id = t.id then s.why end as step_why
      from unnest($1::uuid[]) as wanted (id)
      cross join lateral ${oneById(sql`*`, sql`wanted.id`)} t
      left join progress p on p.task_id = t.id and p.attempt = t.attempt and t.state = 'running'
      left join cancel_requests c on c.task_id = t.id and t.state = 'running'
      left join dead_letters d on d.task_id = t.id and d.state in ('open', 'replaying')
      left join files f on f.task_id = t.id and f.attempt = t.attempt and f.kind = 'result' and t.state = 'succeeded'
                       and f.stored_at is not null and f.doomed_at is null
      left join files n on n.id = t.input_file and n.doomed_at is null
      left join flow_steps s on s.flow_id = t.flow_id and s.step = t.flow_step`,
  columns: {
    ...listedColumns,
    input: 'bytea',
    result: 'bytea?',
    progress_fraction: 'float8?',
    progress_step: 'text?',
    progress_message: 'text?',
    progress_at: 'timestamptz?',
    now: 'timestamptz?',
    cancel_requested_at: 'timestamptz?',
    dead_letter_id: 'uuid?',
    result_file_id: 'uuid?',
    result_file_name: 'text?',
    result_file_type: 'text?',
    result_file_bytes: 'int8?',
    result_file_sha256: 'bytea?',
    input_file: 'uuid?',
    input_file_bytes: 'int8?',
    input_file_sha256: 'bytea?',
    flow_id: 'uuid?',
    step_name: 'text?',
    step_why: 'text?',
  },
});

const listed = sql`t.id, t.state::text as state, t.type, t.queue, t.priority, t.generation, t.attempt, t.failures,
           t.max_attempts, t.lost_attempts, t.accepted_at, t.invited_at, t.run_at, t.deadline, t.started_at,
           t.finished_at, t.worker, t.business_key, t.external_id, t.publisher, t.correlation_id, t.tags,
           ${traceOf(sql`t`)} as trace`;

/**
 * Of the ids $1, the tasks that fit, newest first, without their bodies. The condition is made by `conditionOf`, over `t`. One
 * look-up in the primary key per id.
 */
export const tasksThatFit = (condition: Sql): Sql => sql`
    select ${listed}
      from unnest($1::uuid[]) as wanted (id)
      cross join lateral ${oneById(sql`*`, sql`wanted.id`)} t
     where ${condition}
     order by t.id desc`;

/**
 * Of the newest $3 tasks below the id $1 and from $2 on, the newest $4 that fit. Walks the primary key, and no further than the last
 * of them: a third of what ids and then look-ups cost.
 */
export const tasksOnTheWalk = (condition: Sql): Sql => sql`
    select ${listed}
      from (select * from tasks where id < $1::uuid and id >= $2::uuid order by id desc limit $3::int4) t
     where ${condition}
     order by t.id desc
     limit $4::int4`;

/** The whole lists, as statements whose plans and columns can be looked at. */
export const filterTasks = statement<[ids: readonly string[]]>()({
  name: 'filter_tasks',
  text: tasksThatFit(sql`true`),
  columns: listedColumns,
});
export const walkTasks = statement<[below: string, from: string, most: number, limit: number]>()({
  name: 'walk_tasks',
  text: tasksOnTheWalk(sql`true`),
  columns: listedColumns,
});

const ids = { id: 'uuid' } as const;

/** Where such a walk ends: the id number $3, newest first; none where there are fewer. Walks the primary key. */
export const endOfWalk = statement<[below: string, from: string, most: number]>()({
  name: 'end_of_walk',
  text: sql`
    select id from tasks where id < $1::uuid and id >= $2::uuid order by id desc offset $3::int4 - 1 limit 1`,
  columns: ids,
});

/** The newest ids of one business key, below `below` and from `from` on. Walks tasks_business_key. */
export const pageIdsByBusinessKey = statement<[below: string, from: string, limit: number, key: string]>()({
  name: 'page_ids_by_business_key',
  text: sql`
    select id from tasks
     where business_key = $4::text and id < $1::uuid and id >= $2::uuid
     order by id desc limit $3::int4`,
  columns: ids,
});

/** The same, of one external id. Walks tasks_external_id. */
export const pageIdsByExternalId = statement<[below: string, from: string, limit: number, externalId: string]>()({
  name: 'page_ids_by_external_id',
  text: sql`
    select id from tasks
     where external_id = $4::text and id < $1::uuid and id >= $2::uuid
     order by id desc limit $3::int4`,
  columns: ids,
});

/**
 * Any `limit` ids with a tag, in no order: where there are fewer, these are all. The offset keeps the planner from walking
 * the primary key instead, which for a rare tag would be the whole table. Index: tasks_tags.
 */
export const someIdsByTag = statement<[tag: string, limit: number]>()({
  name: 'some_ids_by_tag',
  text: sql`
    select id
      from (select id from tasks where tags @> array[$1::text] offset 0) tagged
     limit $2::int4`,
  columns: ids,
});

/** How many of the newest $2 tasks have a tag. Walks the primary key. */
export const countTagged = statement<[tag: string, most: number]>()({
  name: 'count_tagged',
  text: sql`
    select count(*)::int4 as tagged
      from (select tags from tasks order by id desc limit $2::int4) newest
     where tags @> array[$1::text]`,
  columns: { tagged: 'int4' },
});

/** The newest ids that a claim names: all that run, and a few that have just ended. A row per claim, so few. */
export const pageIdsOfClaims = statement<[below: string, from: string, limit: number]>()({
  name: 'page_ids_of_claims',
  text: sql`
    select u.id
      from claims c
      cross join unnest(c.task_ids) as u (id)
     where u.id < $1::uuid and u.id >= $2::uuid
     order by u.id desc limit $3::int4`,
  columns: ids,
});

/** The newest ids that wait for an instant: all that are scheduled or retrying. Walks the primary key of due. */
export const pageIdsOfDue = statement<[below: string, from: string, limit: number]>()({
  name: 'page_ids_of_due',
  text: sql`
    select task_id as id from due
     where task_id < $1::uuid and task_id >= $2::uuid
     order by task_id desc limit $3::int4`,
  columns: ids,
});

/**
 * Of the newest `most` ids that have a dead letter (all that are dead, and those replayed since) those of one of `types`, or all where it is
 * null; and the last that was looked at, which says where to go on. Index alone: dead_letters_task.
 */
export const pageIdsOfDeadLetters = statement<
  [below: string, from: string, most: number, types: readonly string[] | null]
>()({
  name: 'page_ids_of_dead_letters',
  text: sql`
    with looked_at as (
      select task_id, type
        from dead_letters
       where task_id < $1::uuid and task_id >= $2::uuid
       order by task_id desc limit $3::int4
    ), last as (
      select task_id from looked_at order by task_id limit 1
    )
    select distinct l.task_id as id, $4::text[] is null or l.type = any($4::text[]) as fits,
           (select count(*) from looked_at)::int4 as looked_at
      from looked_at l
     where $4::text[] is null or l.type = any($4::text[]) or l.task_id = (select task_id from last)
     order by l.task_id desc`,
  columns: { id: 'uuid?', fits: 'bool?', looked_at: 'int4?' },
});
