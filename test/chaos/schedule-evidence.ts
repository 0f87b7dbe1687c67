/** What the checker knows of schedules: what became of each instant, and the tasks that say they are of one. */
import { sql, run, statement } from '../../shared/postgres/statement.ts';
import type { Database } from '../../shared/postgres/pool.ts';

/** What became of an instant. */
export interface OccurrenceRow {
  readonly schedule: string;
  readonly atMs: number;
  /** The first instant that it stands for. */
  readonly fromMs: number;
  readonly isManual: boolean;
  readonly state: string;
  readonly why: string | undefined;
  readonly runId: string | undefined;
}

/** All of it. */
export interface ScheduleEvidence {
  readonly occurrences: readonly OccurrenceRow[];
  /** Tasks that a schedule handed in. */
  readonly taskIds: readonly string[];
}

/** No schedules. */
export const NO_SCHEDULES: ScheduleEvidence = { occurrences: [], taskIds: [] };

const listOccurrences = statement<[]>()({
  name: 'chaos_list_occurrences',
  text: sql`
    select s.name, o.at, coalesce(o.from_at, o.at) as from_at, o.is_manual, o.state, o.why, o.run_id
      from occurrences o
      join schedules s on s.id = o.schedule_id
     order by s.name, o.at`,
  columns: {
    name: 'text',
    at: 'timestamptz',
    from_at: 'timestamptz?',
    is_manual: 'bool',
    state: 'text',
    why: 'text?',
    run_id: 'uuid?',
  },
});

const listScheduledTasks = statement<[]>()({
  name: 'chaos_list_scheduled_tasks',
  text: sql`select id from tasks where publisher like 'schedule:%' order by id`,
  columns: { id: 'uuid' },
});

/** What stands in the tables. */
export async function readSchedules(db: Database): Promise<ScheduleEvidence> {
  const rows = await run(db, listOccurrences);
  return {
    occurrences: rows.map((row) => ({
      schedule: row.name,
      atMs: row.at.getTime(),
      fromMs: (row.from_at ?? row.at).getTime(),
      isManual: row.is_manual,
      state: row.state,
      why: row.why ?? undefined,
      runId: row.run_id ?? undefined,
    })),
    taskIds: (await run(db, listScheduledTasks)).map(({ id }) => id),
  };
}
