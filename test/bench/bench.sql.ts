/** What the benchmark asks of Postgres. */
import { sql, statement } from '../../shared/postgres/statement.ts';

/** Tasks that have ended, of all. */
export const countEnded = statement<[]>()({
  name: 'bench_count_ended',
  text: sql`select count(*)::int4 as tasks, count(finished_at)::int4 as ended from tasks`,
  columns: { tasks: 'int4', ended: 'int4' },
});

/** Seconds from the first start to the last end, of tasks without a business key: those with one measured latency. */
export const processingSpan = statement<[]>()({
  name: 'bench_processing_span',
  text: sql`
    select count(*)::int4 as tasks, extract(epoch from max(finished_at) - min(started_at))::float8 as seconds
      from tasks where state = 'succeeded' and business_key is null`,
  columns: { tasks: 'int4', seconds: 'float8?' },
});

/** When each task started, in milliseconds since 1970. */
export const listStarts = statement<[]>()({
  name: 'bench_list_starts',
  text: sql`
    select business_key, (extract(epoch from started_at) * 1000)::float8 as started_ms
      from tasks where business_key is not null and started_at is not null`,
  columns: { business_key: 'text?', started_ms: 'float8?' },
});

/** Bytes of all tables of the schema with their indexes, and bytes of WAL that the server has written so far. */
export const measureDisk = statement<[]>()({
  name: 'bench_measure_disk',
  text: sql`
    select (select sum(pg_total_relation_size(c.oid))
              from pg_class c join pg_namespace n on n.oid = c.relnamespace
             where n.nspname = current_schema() and c.relkind = 'r')::float8 as tables,
           pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::float8 as wal`,
  columns: { tables: 'float8?', wal: 'float8?' },
});
