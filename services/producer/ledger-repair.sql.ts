/**
 * The statements that give tasks the row that has to stand for them. Each judges the task once it is locked, passes over those
 * that somebody else holds, since they are not stranded, and may be sent any number of times.
 */
import { sql, statement } from '../../shared/postgres/statement.ts';
import { isAmong, writeOutbox } from '../../shared/tasks/beside.sql.ts';

/** Gives waiting tasks their row of `due`, or moves one that comes too late. Locks tasks in id order, then `due`. */
export const giveDue = statement<[ids: readonly string[]]>()({
  name: 'give_due',
  text: sql`
    with waiting as (
      select id, least(deadline, case when state in ('scheduled', 'retrying') then run_at end) as at
        from tasks
       where id = any($1::uuid[]) and state in ('pending', 'scheduled', 'retrying', 'blocked')
       order by id
         for no key update skip locked
    )
    insert into due as d (task_id, at)
    select id, at from waiting where at is not null order by id
    on conflict (task_id) do update set at = excluded.at where d.at > excluded.at
    returning task_id`,
  columns: { task_id: 'uuid' },
});

/**
 * Invites tasks that are pending, invited by nobody and held back for nothing, by a row of the outbox that is due now. One that a claim
 * holds back in this very moment is refused again. Locks tasks in id order. Index: held_back primary key.
 */
export const giveInvitation = statement<[ids: readonly string[]]>()({
  name: 'give_invitation',
  text: sql`
    with waiting as (
      select t.id
        from tasks t
       where t.id = any($1::uuid[]) and t.state = 'pending' and t.invited_at is null
         and not exists (select from held_back h where h.task_id = t.id)
       order by t.id
         for no key update of t skip locked
    ), given as (
      update tasks t
         set invited_at = clock_timestamp()
        from waiting w
       where t.id = w.id and t.state = 'pending'
      returning t.id, t.type, t.queue, t.priority, t.generation
    ), invited as (${writeOutbox(sql`given`, sql`interval '0'`)}
    )
    select id as task_id from given order by id`,
  columns: { task_id: 'uuid' },
});

/**
 * Gives running tasks a row of `claims`: whoever runs one settles it, a worker that lives and does not run it hands it back,
 * and where the worker is gone the reaper frees it. Locks tasks in id order, then claims in order.
 */
export const giveClaim = statement<[ids: readonly string[]]>()({
  name: 'give_claim',
  text: sql`
    with running as (
      select t.id, t.claim_id, t.worker
        from tasks t
       where t.id = any($1::uuid[]) and t.state = 'running'
         and not exists (select from claims c where c.id = t.claim_id and t.id = any(c.task_ids))
       order by t.id
         for no key update of t skip locked
    ), given as (
      insert into claims as c (id, worker, claimed_at, task_ids)
      select claim_id, (array_agg(worker order by id))[1], clock_timestamp(), array_agg(id order by id)
        from running
       group by claim_id
       order by claim_id
      on conflict (id) do update set task_ids = c.task_ids || excluded.task_ids
      returning c.id
    )
    select r.id as task_id from running r where ${isAmong(sql`r.claim_id`, sql`given`)}`,
  columns: { task_id: 'uuid' },
});

/**
 * Writes the dead letter of tasks that are dead without one, out of the attempt that they died in. Its reason is `unknown` where
 * that attempt does not tell. Locks tasks in id order. Indexes: attempts primary key, dead_letters_task.
 */
export const giveDeadLetter = statement<[ids: readonly string[]]>()({
  name: 'give_dead_letter',
  text: sql`
    with dead as (
      select t.id, t.type, t.queue, t.attempt, t.failures, t.max_attempts, t.finished_at
        from tasks t
       where t.id = any($1::uuid[]) and t.state = 'dead'
         and not exists (
           select from dead_letters l
            where l.task_id = t.id
              and (l.state in ('open', 'replaying') or (l.state = 'discarded' and l.attempt = t.attempt)))
       order by t.id
         for no key update of t skip locked
    ), given as (
      insert into dead_letters (id, kind, task_id, reason, type, queue, attempt, died_at, error_type, error_code,
                                error_message, error_stack)
      select uuid_v7(), 'task', d.id,
             case
               when a.outcome = 'lost' then 'worker_lost'
               when a.outcome = 'timeout' then 'timeout'
               when a.outcome = 'failed' and d.failures >= d.max_attempts then 'attempts_exhausted'
               else 'unknown'
             end,
             d.type, d.queue, d.attempt, d.finished_at, a.error_type, a.error_code, a.error_message, a.error_stack
        from dead d
        left join attempts a on a.task_id = d.id and a.attempt = d.attempt
       order by d.id
      on conflict (task_id) where state in ('open', 'replaying') do nothing
      returning task_id
    )
    select d.id as task_id from dead d where ${isAmong(sql`d.id`, sql`(select task_id as id from given) g`)}`,
  columns: { task_id: 'uuid' },
});
