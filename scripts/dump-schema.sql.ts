/** What the catalogue of Postgres knows of one schema, line by line. `pg_dump` would write its own version into the file. */
import { sql, statement } from '../shared/postgres/statement.ts';

/**
 * Every object of the schema that `search_path` names, one row each, in an order that depends on names alone. Not-null
 * constraints stand with their columns: from Postgres 18 on they are in pg_constraint too.
 */
export const dumpSchema = statement<[]>()({
  name: 'dump_schema',
  text: sql`
    with relations as (
      select c.oid, c.relname, c.relkind, c.reloptions, c.relispartition
        from pg_class c
       where c.relnamespace = current_schema()::regnamespace and c.relkind in ('r', 'p')
    ), objects as (
      select 1 as rank, t.typname::text as of_table, '' as sub,
             format('create type %s as enum (%s);', t.typname,
                    (select string_agg(quote_literal(e.enumlabel), ', ' order by e.enumsortorder)
                       from pg_enum e where e.enumtypid = t.oid)) as line
        from pg_type t
       where t.typnamespace = current_schema()::regnamespace and t.typtype = 'e'
      union all
      select 2, p.proname::text, '',
             format('create function %s(%s) returns %s language %s; -- source md5 %s', p.proname,
                    pg_get_function_identity_arguments(p.oid), format_type(p.prorettype, null), l.lanname,
                    md5(regexp_replace(p.prosrc, '\s+', ' ', 'g')))
        from pg_proc p
        join pg_language l on l.oid = p.prolang
       where p.pronamespace = current_schema()::regnamespace
      union all
      select 3, r.relname::text, '0',
             format('create table %s%s%s;', r.relname,
                    case when r.relkind = 'p' then ' partition by ' || pg_get_partkeydef(r.oid) else '' end,
                    case when r.reloptions is null then ''
                         else ' with (' || array_to_string(r.reloptions, ', ') || ')' end)
        from relations r
      union all
      select 3, r.relname::text, '1' || to_char(a.attnum, '0000'),
             format('  %s %s%s%s%s', a.attname, format_type(a.atttypid, a.atttypmod),
                    case when a.attnotnull then ' not null' else '' end,
                    case when a.attidentity = '' then '' else ' generated as identity' end,
                    case when d.oid is null then '' else ' default ' || pg_get_expr(d.adbin, d.adrelid) end)
        from relations r
        join pg_attribute a on a.attrelid = r.oid and a.attnum > 0 and not a.attisdropped
        left join pg_attrdef d on d.adrelid = r.oid and d.adnum = a.attnum
       where not r.relispartition
      union all
      select 3, r.relname::text, '2' || k.conname,
             format('  constraint %s %s', k.conname, pg_get_constraintdef(k.oid))
        from relations r
        join pg_constraint k on k.conrelid = r.oid and k.contype <> 'n'
       where not r.relispartition
      union all
      select 3, r.relname::text, '3' || i.relname, format('  %s;', replace(
               pg_get_indexdef(x.indexrelid), current_schema() || '.', ''))
        from relations r
        join pg_index x on x.indrelid = r.oid
        join pg_class i on i.oid = x.indexrelid
       where not r.relispartition and not exists (select from pg_constraint k where k.conindid = x.indexrelid)
      union all
      select 3, r.relname::text, '4', format('  partition of %s %s', h.inhparent::regclass::text,
                                             pg_get_expr(c.relpartbound, c.oid))
        from relations r
        join pg_class c on c.oid = r.oid
        join pg_inherits h on h.inhrelid = r.oid
       where r.relispartition
    )
    select line from objects order by rank, of_table collate "C", sub collate "C", line collate "C"`,
  columns: { line: 'text?' },
});
