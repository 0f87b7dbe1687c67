/** What the benchmark of flows asks of Postgres. */
import { sql, statement } from '../../../shared/postgres/statement.ts';

/** Tasks that have not ended, by the ledger: counting tasks would read all of them, twenty times a second. */
export const countOpen = statement<[]>()({
  name: 'bench_flows_count_open',
  text: sql`
    select coalesce(sum(case entry when 'accepted' then tasks when 'succeeded' then -tasks else 0 end), 0)::int4 as open
      from ledger_entries`,
  columns: { open: 'int4?' },
});
