/** The statement that says which queues are paused. */
import { sql, statement } from '../../shared/postgres/statement.ts';
import { specialQueues } from '../../shared/tasks/beside.sql.ts';

/** The names of the paused queues; one row. Index: queues_special. */
export const readPausedQueues = statement<[]>()({
  name: 'read_paused_queues',
  text: sql`select names from (${specialQueues}) q`,
  columns: { names: 'text[]?' },
});
