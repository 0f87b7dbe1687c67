/** The statements that count flows for the metrics. */
import { sql, statement } from '../../shared/postgres/statement.ts';

/** Up to where ends are counted, the instant of now where none ever was; as text: a `Date` has no microseconds. */
export const readCountedTo = statement<[figures: string]>()({
  name: 'read_counted_to',
  text: sql`
    select coalesce((select counted_to from fleet_figures where name = $1::text), clock_timestamp())::text as at`,
  columns: { at: 'text?' },
});

/** Moves that on; no row where another process counts by now. Index: primary key. */
export const moveCountedTo = statement<[figures: string, at: string, process: string]>()({
  name: 'move_counted_to',
  text: sql`
    update fleet_figures set counted_to = $2::text::timestamptz
     where name = $1::text and shown_by = $3::uuid
    returning name`,
  columns: { name: 'text' },
});

/**
 * Flows, those that are nested left out, that ended after `after`, the first ones, at most `most`, with the instant of each; those of the last `settleMs` are left for the next
 * time, since a transaction that ended one may commit later than another that came after it. Index: flows_finished_at.
 */
export const listEndedFlows = statement<[after: string, settleMs: number, most: number]>()({
  name: 'list_ended_flows',
  text: sql`
    select f.name, f.state::text as state, extract(epoch from f.finished_at - f.created_at)::float8 as seconds, f.finished_at::text as at
      from flows f
     where f.parent_id is null and f.finished_at > $1::text::timestamptz
       and f.finished_at <= (select clock_timestamp() - $2::float8 * interval '1 ms')
     order by f.finished_at
     limit $3::int4`,
  columns: { name: 'text', state: 'text', seconds: 'float8?', at: 'text?' },
});

/** Flows that have not ended, those that are nested left out, by state, each counted up to `most`. Index: flows_state. */
export const countOpenFlows = statement<[most: number]>()({
  name: 'count_open_flows',
  text: sql`
    select (select count(*) from (select from flows where state = 'pending' and parent_id is null limit $1::int4) p)::int4 as pending,
           (select count(*) from (select from flows where state = 'running' and parent_id is null limit $1::int4) r)::int4 as running`,
  columns: { pending: 'int4?', running: 'int4?' },
});
