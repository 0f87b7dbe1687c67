/** The statement that shows the ledger. */
import { sql, statement } from '../../shared/postgres/statement.ts';

/**
 * The books of the hours from `$1` to before `$2`, of one type or of all, a row an hour and type, newest hour first, with the
 * last comparison where there was one. Indexes: primary keys of ledger_entries and ledger_audits.
 */
export const readBooks = statement<[from: number, before: number, type: string | null, limit: number]>()({
  name: 'ledger_read_books',
  text: sql`
    select coalesce(e.hour, a.hour) as hour, coalesce(e.type, a.type) as type,
           coalesce(e.accepted, 0)::float8 as accepted, coalesce(e.succeeded, 0)::float8 as succeeded,
           coalesce(e.dead, 0)::float8 as dead, coalesce(e.revived, 0)::float8 as revived,
           coalesce(e.cancelled, 0)::float8 as cancelled, coalesce(e.expired, 0)::float8 as expired,
           coalesce(e.retired, 0)::float8 as retired,
           a.compared_at, a.difference::float8 as difference, a.succeeded::float8 as found_succeeded,
           a.dead::float8 as found_dead, a.cancelled::float8 as found_cancelled, a.expired::float8 as found_expired,
           a.in_progress::float8 as found_in_progress
      from (
        select hour, type,
               sum(tasks) filter (where entry = 'accepted') as accepted,
               sum(tasks) filter (where entry = 'succeeded') as succeeded,
               sum(tasks) filter (where entry = 'dead') as dead,
               sum(tasks) filter (where entry = 'revived') as revived,
               sum(tasks) filter (where entry = 'cancelled') as cancelled,
               sum(tasks) filter (where entry = 'expired') as expired,
               sum(tasks) filter (where entry = 'retired') as retired
          from ledger_entries
         where hour >= $1::int4 and hour < $2::int4 and ($3::text is null or type = $3::text)
         group by hour, type
      ) e
      full join (
        select *
          from ledger_audits
         where hour >= $1::int4 and hour < $2::int4 and ($3::text is null or type = $3::text)
      ) a on a.hour = e.hour and a.type = e.type
     order by 1 desc, 2
     limit $4::int4`,
  columns: {
    hour: 'int4?',
    type: 'text?',
    accepted: 'float8?',
    succeeded: 'float8?',
    dead: 'float8?',
    revived: 'float8?',
    cancelled: 'float8?',
    expired: 'float8?',
    retired: 'float8?',
    compared_at: 'timestamptz?',
    difference: 'float8?',
    found_succeeded: 'float8?',
    found_dead: 'float8?',
    found_cancelled: 'float8?',
    found_expired: 'float8?',
    found_in_progress: 'float8?',
  },
});
