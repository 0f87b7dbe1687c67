/** The statements by which one process of a service comes to show what concerns all of an installation. */
import { sql, statement } from '../postgres/statement.ts';

/** Takes or keeps the right to show the figures `name` for `holdMs`; no row where another process has it. Index: primary key. */
export const holdFigures = statement<[name: string, process: string, holdMs: number]>()({
  name: 'hold_figures',
  text: sql`
    insert into fleet_figures as f (name, shown_by, shown_until)
    values ($1::text, $2::uuid, clock_timestamp() + $3::float8 * interval '1 ms')
    on conflict (name) do update
       set shown_by = excluded.shown_by, shown_until = excluded.shown_until
     where f.shown_by = excluded.shown_by or f.shown_until < clock_timestamp()
    returning f.name`,
  columns: { name: 'text' },
});

/** Gives the right up, so that another process need not wait until it lapses. Index: primary key. */
export const leaveFigures = statement<[name: string, process: string]>()({
  name: 'leave_figures',
  text: sql`
    update fleet_figures set shown_until = '-infinity'
     where name = $1::text and shown_by = $2::uuid
    returning name`,
  columns: { name: 'text' },
});
