/** Letters written straight into a test's database, with the facts that they are found by. */
import type { Database } from '../../shared/postgres/pool.ts';
import { encodeParameter } from '../../shared/postgres/statement.ts';
import { newId } from '../../shared/tasks/ids.ts';

/** What a test says of a letter; what is absent is as a dead task's. */
export interface NewLetter {
  readonly kind?: 'task' | 'refused' | 'foreign';
  readonly state?: 'open' | 'replaying' | 'replayed' | 'discarded';
  readonly reason?: string;
  readonly type?: string | null;
  readonly queue?: string;
  readonly attempt?: number;
  readonly groupId?: string;
  readonly codeVersion?: string;
  readonly errorType?: string;
  readonly errorCode?: string;
  readonly taskId?: string;
  /** Milliseconds ago that it died, and that its id was made. Default 0. */
  readonly ageMs?: number;
  readonly tags?: readonly string[];
  readonly errorText?: string;
  /** JSON text. */
  readonly input?: string;
}

/** Adds a letter; returns its id. */
export async function addLetter(db: Database, letter: NewLetter = {}): Promise<string> {
  const { kind = 'task', state = 'open', ageMs = 0 } = letter;
  const id = newId() as string;
  const values = [
    id,
    kind,
    kind === 'task' ? (letter.taskId ?? newId()) : null,
    state,
    letter.reason ?? 'non_retryable',
    letter.type === undefined ? 'test.noop' : letter.type,
    letter.queue ?? 'default',
    letter.attempt ?? 1,
    ageMs,
    letter.groupId,
    letter.codeVersion,
    letter.errorType,
    letter.errorCode,
    letter.tags,
    letter.errorText,
    letter.input,
  ];
  const { rows } = await db.query({
    text: `with made as (
             insert into dead_letters (id, kind, task_id, state, reason, type, queue, attempt, died_at, group_id, code_version,
                                       error_type, error_code, body, closed_at)
             values ((lpad(to_hex((extract(epoch from now()) * 1000 - $9::float8)::bigint), 12, '0') || right(replace($1::text, '-', ''), 20))::uuid,
                     $2::text, $3::uuid, $4::text, $5::text, $6::text, $7::text, $8::int4,
                     clock_timestamp() - $9::float8 * interval '1 ms', $10::uuid, $11::text, $12::text, $13::text,
                     case when $2::text <> 'task' then 'x'::bytea end,
                     case when $4::text in ('replayed', 'discarded') then now() end)
             returning id),
           facts as (
             insert into letter_facts (letter_id, tags, error_text, input)
             select id, $14::text[], $15::text, $16::jsonb from made)
           select id from made`,
    values: values.map((value) => encodeParameter(value)),
  });
  return (rows as [{ readonly id: string }])[0].id;
}
