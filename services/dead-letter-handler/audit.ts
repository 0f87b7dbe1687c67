/** Reads the audit: who did what, when, why and from where. Whatever acts writes its line in the transaction of the act. */
import { z } from 'zod';
import { encodeParameter } from '../../shared/postgres/statement.ts';
import type { Queryable, RowOf } from '../../shared/postgres/statement.ts';
import { auditText } from './audit.sql.ts';
import type { listAudit } from './audit.sql.ts';

/** After which line a page begins: its instant in microseconds since 1970, and its id. */
export const auditKey = z.tuple([z.string().regex(/^\d{1,17}$/), z.uuid()]);

/** Which lines; what is absent lets all pass. */
export interface AuditFilter {
  readonly target?: string | undefined;
  readonly actor?: string | undefined;
  readonly action?: string | undefined;
  /** From this instant on. */
  readonly after?: Date | undefined;
  /** Before this instant, not at it. */
  readonly before?: Date | undefined;
  /** Only lines beyond this one. */
  readonly past?: z.infer<typeof auditKey> | undefined;
  readonly limit: number;
}

/** A line of the audit, with the key that a page after it begins from. */
export interface AuditLine {
  readonly key: z.infer<typeof auditKey>;
  readonly line: {
    readonly id: string;
    readonly at: string;
    readonly actor: string;
    readonly role: string;
    readonly address: string | null;
    readonly action: string;
    readonly target: string;
    readonly detail: unknown;
  };
}

/** The lines that pass the filter, newest first. */
export async function findAudit(db: Queryable, filter: AuditFilter): Promise<readonly AuditLine[]> {
  const { target, actor, action, after, before, past, limit } = filter;
  const values = [target, actor, action, after, before, past?.[0], past?.[1], limit];
  const text = auditText((name) => filter[name] !== undefined);
  const { rows } = await db.query({ text, values: values.map((value) => encodeParameter(value)) });
  return (rows as RowOf<typeof listAudit.columns>[]).map(({ id, at, at_micros: micros, ...line }) => ({
    key: [micros ?? '0', id],
    line: { id, at: at.toISOString(), ...line },
  }));
}
