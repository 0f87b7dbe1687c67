/** The statements that show the results of a step of a flow. What they call stands in `0026_step_results.sql`. */
import { sql, statement } from '../../shared/postgres/statement.ts';

/** A page of the results of a step; see `page_step_results`. Index: primary keys. */
export const readStepResults = statement<
  [flowId: string, name: string, after: number, limit: number, mostBytes: number]
>()({
  name: 'read_step_results',
  text: sql`
    select step, member, task_id, state::text as state, result, looked
      from page_step_results($1::uuid, $2::text, $3::int4, $4::int4, $5::int4)`,
  columns: {
    step: 'int4?',
    member: 'int4?',
    task_id: 'uuid?',
    state: 'text?',
    result: 'bytea?',
    looked: 'int4?',
  },
});

/** Whether a flow has a step of that name; no row where there is no such flow. Index: primary keys. */
export const findStep = statement<[flowId: string, name: string]>()({
  name: 'find_step',
  text: sql`select has_step(id, $2::text) as is_known from flows where id = $1::uuid`,
  columns: { is_known: 'bool?' },
});
