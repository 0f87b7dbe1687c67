/** The statement that reads the audit. */
import { sql, statement } from '../../shared/postgres/statement.ts';
import type { Sql } from '../../shared/postgres/statement.ts';

/** What can be given, each with the condition that it makes; what is not given is said to be null, so that its type is known. */
const CONDITIONS = {
  target: [sql`target = $1::text`, sql`$1::text is null`],
  actor: [sql`actor = $2::text`, sql`$2::text is null`],
  action: [sql`action = $3::text`, sql`$3::text is null`],
  after: [sql`at >= $4::timestamptz`, sql`$4::timestamptz is null`],
  before: [sql`at < $5::timestamptz`, sql`$5::timestamptz is null`],
  past: [
    sql`(at, id) < (timestamptz 'epoch' + $6::int8 * interval '1 microsecond', $7::uuid)`,
    sql`$6::int8 is null and $7::uuid is null`,
  ],
} as const;

/** What a list can be narrowed by. */
export type AuditCondition = keyof typeof CONDITIONS;

/**
 * The text of `listAudit` for what is given. One text for all, with `$1 is null or target = $1`, would find nothing by an index: a
 * session plans for any parameters, those of statements without a name too.
 */
export function auditText(isGiven: (condition: AuditCondition) => boolean): Sql {
  const condition = (name: AuditCondition): Sql => CONDITIONS[name][isGiven(name) ? 0 : 1];
  return sql`
    select id, at, (extract(epoch from at) * 1000000)::int8 as at_micros, actor, role, address, action, target, detail
      from audit
     where ${condition('target')}
       and ${condition('actor')}
       and ${condition('action')}
       and ${condition('after')}
       and ${condition('before')}
       and ${condition('past')}
     order by at desc, id desc
     limit $8::int4`;
}

/**
 * A page of the audit, newest first, with everything given; see `auditText`. Index: audit_target, audit_actor, audit_action, else
 * audit_at. The microseconds of `at` go out and in as text, since a JavaScript date has none, and a page that began a millisecond
 * off would miss or repeat lines.
 */
export const listAudit = statement<
  [
    target: string | null,
    actor: string | null,
    action: string | null,
    after: Date | null,
    before: Date | null,
    pastMicros: string | null,
    pastId: string | null,
    limit: number,
  ]
>()({
  name: 'list_audit',
  text: auditText(() => true),
  columns: {
    id: 'uuid',
    at: 'timestamptz',
    at_micros: 'int8?',
    actor: 'text',
    role: 'text',
    address: 'text?',
    action: 'text',
    target: 'text',
    detail: 'jsonb',
  },
});
