/** The statements with which `warren doctor` looks at the Postgres server. They lock nothing. */
import { sql, statement } from '../shared/postgres/statement.ts';

/** Connections that there may be for such as us, and those of Warren's services to this database. */
export const readConnections = statement<[]>()({
  name: 'read_connections',
  text: sql`
    select current_setting('max_connections')::int4 - current_setting('superuser_reserved_connections')::int4 as allowed,
           count(*) filter (where backend_type = 'client backend')::int4 as open,
           count(*) filter (where application_name = 'warren-producer' and datname = current_database())::int4 as producer,
           count(*) filter (where application_name = 'warren-dead-letter-handler' and datname = current_database())::int4
             as dead_letter_handler
      from pg_stat_activity`,
  columns: { allowed: 'int4', open: 'int4', producer: 'int4', dead_letter_handler: 'int4' },
});

/** Whether a standby is there, and whether a commit waits for one. */
export const readReplication = statement<[]>()({
  name: 'read_replication',
  text: sql`
    select current_setting('synchronous_standby_names') as synchronous,
           (select count(*)::int4 from pg_stat_replication) as standbys`,
  columns: { synchronous: 'text', standbys: 'int4' },
});

/** The server's clock. */
export const readServerClock = statement<[]>()({
  name: 'read_server_clock',
  text: sql`select clock_timestamp() as now`,
  columns: { now: 'timestamptz' },
});

/** Tables and sequences of our schema that this user may not read and write, and functions that it may not call. */
export const findMissingRights = statement<[]>()({
  name: 'find_missing_rights',
  text: sql`
    select current_user::text as "user",
           array(
             select c.relname::text
               from pg_class c
              where c.relnamespace = (select oid from pg_namespace where nspname = current_schema()) and c.relkind in ('r', 'p')
                and not (has_table_privilege(c.oid, 'select') and has_table_privilege(c.oid, 'insert')
                         and has_table_privilege(c.oid, 'update') and has_table_privilege(c.oid, 'delete'))
              order by 1) as tables,
           array(
             select distinct p.proname::text
               from pg_proc p
              where p.pronamespace = (select oid from pg_namespace where nspname = current_schema()) and not has_function_privilege(p.oid, 'execute')
                and p.proname not in ('enqueue', 'enqueue_task') -- of those who publish by SQL: no service calls them
              order by 1) as functions`,
  columns: { user: 'text', tables: 'text[]', functions: 'text[]' },
});

/** Task types that may run longer than `$1` milliseconds. */
export const findLongTypes = statement<[ms: number]>()({
  name: 'find_long_types',
  text: sql`select name from task_types where timeout_ms > $1::float8 order by name`,
  columns: { name: 'text' },
});
