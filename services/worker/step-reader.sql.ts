/** The statements by which a handler reads results of its own flow. What they call stands in `0026_step_results.sql`. */
import { sql, statement } from '../../shared/postgres/statement.ts';

/** The flow of the task `$1`: of no other can anything be read. */
const ownFlow = sql`(select own.flow_id from tasks own where own.id = $1::uuid)`;

/** A page of the results of a step of the flow of a task; see `page_step_results`. Index: primary keys. */
export const readOwnResults = statement<
  [taskId: string, name: string, after: number, limit: number, mostBytes: number]
>()({
  name: 'read_own_results',
  text: sql`
    select step, result, looked
      from page_step_results(${ownFlow}, $2::text, $3::int4, $4::int4, $5::int4)`,
  columns: { step: 'int4?', result: 'bytea?', looked: 'int4?' },
});

/** Whether a task is of a flow, and this has a step of that name. Index: primary keys. */
export const findOwnStep = statement<[taskId: string, name: string]>()({
  name: 'find_own_step',
  text: sql`select ${ownFlow} is not null as is_step, has_step(${ownFlow}, $2::text) as is_known`,
  columns: { is_step: 'bool?', is_known: 'bool?' },
});
