/** What several statements write beside a task's row, each in its own transaction: one text, so that none of them forgets a part. */
import { sql } from '../postgres/statement.ts';
import type { Sql } from '../postgres/statement.ts';

/**
 * Where the task `t` stands in a trace; null for nowhere. A step stands where its outermost flow does: for those alone flows are looked up, by
 * their key. The function `trace_of_flow` says the same to triggers; here it would be planned anew by each statement.
 */
export const traceOf = (t: Sql): Sql => sql`
      case when ${t}.flow_id is null then ${t}.trace
           else (select coalesce(f.trace, (select r.trace from flows r where r.id = f.root_id)) from flows f where f.id = ${t}.flow_id)
      end`;

/** Counts tasks in the ledger. `from`: a source of rows with `id` and `type`; `entry`: the text of the entry, over those rows. */
export const countInLedger = (entry: Sql, from: Sql): Sql => sql`
      insert into ledger_entries as l (hour, type, entry, backend, tasks)
      select task_hour(id), type, ${entry}, pg_backend_pid(), count(*)
        from ${from}
       group by 1, 2, 3
       order by 1, 2, 3
      on conflict (hour, type, entry, backend) do update set tasks = l.tasks + excluded.tasks
      returning l.type`;

/**
 * Writes one outbox row for all tasks that have become claimable together, and returns its `id`; none where there is no task.
 * `from`: a source of rows with `id`, `type`, `queue`, `priority`, `generation`. The sweeper takes it `after` that long.
 */
export const writeOutbox = (from: Sql, after: Sql = sql`interval '10 s'`): Sql => sql`
      insert into outbox (retry_at, task_ids, types, queues, priorities, generations)
      select clock_timestamp() + ${after}, array_agg(id), array_agg(type), array_agg(queue),
             array_agg(priority), array_agg(generation)
        from ${from} having count(*) > 0
      returning id`;

/**
 * Moves on the flows of tasks that have ended, and gives what may start now (`task_id`, `type`, `queue`, `priority`, `generation`,
 * `outbox_id`): see `end_steps`. `from`: a source of rows with `flow_id`, `flow_step`, `state`; `flow_id` is null for what is no step.
 * Every statement that ends tasks has it and reads it, else Postgres leaves it out; its own entries in the ledger, its CTE `counted`, are written
 * first, since what a function has written before no insert may change. The sweeper takes the outbox row `after` that long.
 */
export const endSteps = (from: Sql, after: Sql = sql`interval '10 s'`): Sql => sql`
      select freed.*
        from (
          select array_agg(flow_id) as flows, array_agg(flow_step) as steps, array_agg(state::text) as states
            from ${from}
           where flow_id is not null and (select count(*) from counted) >= 0
        ) ended
        cross join lateral end_steps(ended.flows, ended.steps, ended.states, ${after}) freed`;

/** The same for those that publish nothing: the sweeper takes what may start at once. A count, for the statement to read. */
export const endStepsUnheard = (from: Sql): Sql =>
  sql`(select count(*) from (${endSteps(from, sql`interval '0'`)}) unheard)::int4`;

/**
 * Takes a task that waits out of its wait, as cancelled, where it still is as `from` (`id`, `state`, `generation`) saw it: an edit may have
 * changed what stands beside it and not its state. Returns `id`, `type` and `finished_at`.
 */
export const cancelWaiting = (from: Sql): Sql => sql`
      update tasks t
         set state = 'cancelled', generation = t.generation + 1, run_at = null, finished_at = clock_timestamp()
        from ${from} g
       where t.id = g.id and t.state = g.state and t.generation = g.generation
         and g.state in ('pending', 'scheduled', 'retrying', 'blocked')
      returning t.id, t.type, t.finished_at, t.flow_id, t.flow_step, t.state`;

/**
 * Tells the workers of the tasks in `from` (`worker`), each on its `cancelChannelOf`, when the transaction commits. A row per worker;
 * whoever puts this into a statement must read it, else Postgres leaves it out.
 */
export const notifyWorkers = (from: Sql): Sql => sql`
      select pg_notify('warren_cancel_' || replace(w.worker::text, '-', ''), '') as told
        from (select distinct worker from ${from}) w`;

/**
 * Dead tasks live again: those that are steps of flows are so again; see `revive_steps`. `from`: a source of rows with `id` and `flow_id`. A count,
 * which the statement must read, else Postgres leaves it out.
 */
export const reviveSteps = (from: Sql): Sql =>
  sql`coalesce((select revive_steps(array_agg(id)) from ${from} where flow_id is not null), 0)`;

/**
 * Tasks that were dead wait again, and whoever was told of the death is to be told of their next end. `from`: a source of rows with
 * `id`. Not only where nobody waits: a death may be told of at this very moment.
 */
export const tellAgain = (from: Sql): Sql => sql`
      update callbacks c set is_waiting = true from ${from} r where c.task_id = r.id returning c.task_id`;

/**
 * The end of an insert into `dead_letters`: where the task's last letter is open still, somebody made the task live again by
 * hand. That holds up nobody else, and the letter is of this death from now on.
 */
export const ofThisDeath: Sql = sql`
      on conflict (task_id) where state in ('open', 'replaying') do update
         set reason = excluded.reason, queue = excluded.queue, attempt = excluded.attempt, died_at = excluded.died_at,
             error_type = excluded.error_type, error_code = excluded.error_code, error_message = excluded.error_message,
             error_stack = excluded.error_stack, recorded_at = null, exchange = null, routing_key = null,
             properties = null, headers = null, x_death = null, evidence_key = null`;

/**
 * True where the key `k` is held by its task `t` (all null where there is none). A window outlives its task, but not one that
 * never was: then an acceptance was cut off between taking the key and finding its message id known.
 */
export const isKeyHeld: Sql = sql`
      case k.hold
        when 'window' then k.until > clock_timestamp() and (t.id is not null or k.held_at < now() - interval '1 hour')
        when 'waiting' then coalesce(t.state in ('pending', 'scheduled', 'retrying', 'blocked'), false)
        else coalesce(t.state not in ('succeeded', 'dead', 'cancelled', 'expired'), false)
      end`;

/** The `names` of the queues of which nothing may start, and those that are `fair`. One row. Index: queues_special. */
export const specialQueues: Sql = sql`
      select coalesce(array_agg(name) filter (where mode = 'paused'), '{}') as names,
             coalesce(array_agg(name) filter (where fair_by is not null), '{}') as fair
        from queues
       where mode <> 'open' or fair_by is not null`;

/**
 * Writes down that pending tasks are held back by their queue: for their turn where they have a `turn` (the key of `turn_key`), else
 * because it is drained. `from`: a source of rows with `id`, `queue`, `priority`, `turn`.
 */
export const holdForQueue = (from: Sql): Sql => sql`
      insert into held_back (task_id, reason, scope, key, priority)
      select id, case when turn is null then 'draining' else 'turn' end, queue, coalesce(turn, ''), priority
        from ${from}
       order by id
      on conflict (task_id) do update
         set reason = excluded.reason, scope = excluded.scope, key = excluded.key, priority = excluded.priority`;

/**
 * True where `id` is one of the ids of `source`, a source of rows with `id`. For two sets that a statement made itself, in place of a join: with
 * hash joins off (decision 0007) that would compare each row with each, while what may be null is looked up in a hash table.
 */
export const isAmong = (id: Sql, source: Sql): Sql => sql`((${id} in (select id from ${source})) is true)`;

/** True where there is no task of that id. A count, which goes by the key: `not exists` may read all tasks once, for whoever asks. */
export const isTaskGone = (id: Sql): Sql => sql`(select count(*) from tasks gone where gone.id = ${id}) = 0`;

/**
 * Invites what waits of `picked`, a CTE with the `task_id` of rows of `held_back` that are locked: the CTEs `locked`, `freed` (what was
 * invited), `past` (rows that mean nothing any more) and `invited`. Judged is the task as it is once locked, never as the snapshot shows it: a
 * row may be of a moment ago, written by a claim that found no room. What another holds is left for the next call, since claims lock the other
 * way round. Locks tasks in id order.
 */
export const inviteHeld: Sql = sql`locked as (
      select t.id, t.state = 'pending' and t.invited_at is null as waits
        from picked p
        join tasks t on t.id = p.task_id
       order by t.id
         for no key update of t skip locked
    ), freed as (
      update tasks t
         set invited_at = clock_timestamp()
        from locked l
       where t.id = l.id and l.waits and t.state = 'pending'
      returning t.id, t.type, t.queue, t.priority, t.generation
    ), past as (
      select id as task_id from locked where not waits
      union all
      select p.task_id from picked p where not ${isAmong(sql`p.task_id`, sql`locked`)} and ${isTaskGone(sql`p.task_id`)}
    ), invited as (${writeOutbox(sql`freed`)}
    )`;

/** What a statement with `inviteHeld` answers. `looked`: rows taken, those included whose task no longer waits so. */
export const shownHeld: Sql = sql`
    select (select count(*) from picked)::int4 as looked, f.id, f.type, f.queue, f.priority, f.generation, i.id as outbox_id
      from (values (1)) as one (n)
      left join freed f on true
      left join invited i on true`;

/** Its columns; all but `looked` are null where nothing was invited. */
export const heldColumns = {
  looked: 'int4?',
  id: 'uuid?',
  type: 'text?',
  queue: 'text?',
  priority: 'int2?',
  generation: 'int4?',
  outbox_id: 'int8?',
} as const;

/** How many tasks wait for their turn in the queue `q`, counted up to 100 000. Index: held_back_in_turn. */
export const turnsWaiting: Sql = sql`
      (select count(*) from (select from held_back h where h.reason = 'turn' and h.scope = q.name limit 100000) t)::int4`;

/** Where the file `id` of the installation `i` lies in the store. */
export const keyOf = (id: Sql): Sql => sql`i.store_id::text || '/' || right(${id}::text, 2) || '/' || ${id}::text`;

/**
 * The task of an id, to be joined laterally to the rows that name it. Always by its key: a session keeps a plan from when there were few tasks,
 * and a join would by then read them all to find those that a small table names. `rest`: further conditions, and how the row is locked.
 */
export const oneById = (columns: Sql, id: Sql, rest: Sql = sql``): Sql =>
  sql`(select ${columns} from tasks where id = ${id} ${rest} offset 0)`;
