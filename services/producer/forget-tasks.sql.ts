/** The statement that removes what stands beside tasks whose time is over. */
import { sql, statement } from '../../shared/postgres/statement.ts';

/**
 * Removes what stands beside ended tasks: attempts with their lines, what they did once, what their
 * publishers sent, progress, marks. Letters and replays have a
 * time of their own. Harmless where it is repeated. Indexes: primary keys.
 */
export const forgetBeside = statement<[ids: readonly string[]]>()({
  name: 'forget_beside',
  text: sql`
    with attempts_gone as (
      delete from attempts where task_id = any($1::uuid[])
    ), origins_gone as (
      delete from origins where task_id = any($1::uuid[])
    ), progress_gone as (
      delete from progress where task_id = any($1::uuid[])
    ), logs_gone as (
      delete from attempt_logs where task_id = any($1::uuid[])
    ), once_gone as (
      delete from once_runs where task_id = any($1::uuid[])
    ), held_gone as (
      delete from held_back where task_id = any($1::uuid[])
    ), requests_gone as (
      delete from cancel_requests where task_id = any($1::uuid[])
    )
    delete from erased_tasks where task_id = any($1::uuid[]) returning task_id`,
  columns: { task_id: 'uuid' },
});
