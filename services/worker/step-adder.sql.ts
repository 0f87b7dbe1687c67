/** The statement of steps that are added to a flow as it runs. What it does stands in `0025_added_steps.sql`. */
import { sql, statement } from '../../shared/postgres/statement.ts';

/**
 * Adds a step, or members of a group, to the flow of a task that runs; see `add_steps`. No row: the claim is lost. `pieces` are array literals. Fails
 * with a code of the catalogue in `constraint`, the field in `column`.
 */
export const addSteps = statement<
  [
    taskId: string,
    attempt: number,
    claimId: string,
    name: string,
    spec: Readonly<Record<string, unknown>>,
    inputs: readonly (string | null)[],
    pieces: readonly (string | null)[],
    refs: readonly (string | null)[],
    mostSteps: number,
    mostEdges: number,
  ]
>()({
  name: 'add_steps',
  text: sql`
    select task_ids, is_new
      from add_steps($1::uuid, $2::int4, $3::uuid, $4::text, $5::jsonb, $6::text[], $7::text[], $8::text[], $9::int4, $10::int4)`,
  columns: { task_ids: 'uuid[]?', is_new: 'bool?' },
});
