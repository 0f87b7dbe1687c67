/** The statements of the type catalog. Both tables hold a row per type or queue, and are read whole. */
import { sql, statement } from '../postgres/statement.ts';

/**
 * Changes whenever an announcement was committed. A digest over all rows, since the latest instant alone would miss an
 * announcement that began earlier and committed later than another.
 */
export const digestCatalog = statement<[]>()({
  name: 'digest_catalog',
  text: sql`
    select md5(
      coalesce((select string_agg(name || ' ' || extract(epoch from announced_at)::text, ',' order by name)
                  from task_types), '')
      || '/' ||
      coalesce((select string_agg(name || ' ' || mode || (fair_by is not null), ',' order by name) from queues), '')) as digest`,
  columns: { digest: 'text' },
});

/** Every task type. */
export const loadTaskTypes = statement<[]>()({
  name: 'load_task_types',
  text: sql`
    select name, queue, priority, timeout_ms, max_attempts, description, input_schema::text as input_schema,
           code_version, announced_at
      from task_types
     order by name`,
  columns: {
    name: 'text',
    queue: 'text',
    priority: 'int2',
    timeout_ms: 'int8',
    max_attempts: 'int4',
    description: 'jsonb',
    input_schema: 'text?',
    code_version: 'text',
    announced_at: 'timestamptz',
  },
});

/** Every queue. */
export const loadQueues = statement<[]>()({
  name: 'load_queues',
  text: sql`select name, mode, fair_by is not null as is_fair from queues order by name`,
  columns: { name: 'text', mode: 'text', is_fair: 'bool?' },
});
