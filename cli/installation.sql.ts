/** The statements with which the command line looks at an installation. They lock nothing. */
import { sql, statement } from '../shared/postgres/statement.ts';

/** Every queue. */
export const listQueues = statement<[]>()({
  name: 'list_queues',
  text: sql`select name from queues order by name`,
  columns: { name: 'text' },
});

/** The prefix that the database belongs to. */
export const readInstallation = statement<[]>()({
  name: 'read_installation',
  text: sql`select prefix from installation`,
  columns: { prefix: 'text' },
});

/** Every lease with the milliseconds since its renewal, and the queues that it consumes. */
export const listLeases = statement<[]>()({
  name: 'list_leases',
  text: sql`
    select worker, host, pid, queues::text as queues,
           (extract(epoch from clock_timestamp() - renewed_at) * 1000)::int8 as silent_ms
      from leases
     order by started_at`,
  columns: { worker: 'uuid', host: 'text', pid: 'int4', queues: 'text', silent_ms: 'int8' },
});

/** Each announced task type with its queue. */
export const listTaskTypes = statement<[]>()({
  name: 'list_task_types',
  text: sql`select name, queue from task_types order by name`,
  columns: { name: 'text', queue: 'text' },
});

/** Version of the server, and whether it commits before it has written: then a crash can lose what was accepted. */
export const readServer = statement<[]>()({
  name: 'read_server',
  text: sql`
    select current_setting('server_version') as version, current_setting('server_version_num')::int4 as number,
           current_setting('fsync') as fsync, current_setting('synchronous_commit') as synchronous_commit`,
  columns: { version: 'text', number: 'int4', fsync: 'text', synchronous_commit: 'text' },
});

/** How many dead letters are open. Walks the index of the open ones. */
export const countOpenDeadLetters = statement<[]>()({
  name: 'count_open_dead_letters',
  text: sql`select count(*)::int8 as open from dead_letters where state = 'open'`,
  columns: { open: 'int8' },
});
