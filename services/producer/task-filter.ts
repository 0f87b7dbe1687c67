/** From a filter of tasks to the condition that a statement selects them by. Values of users are parameters, each of them. */
import {
  adderTo,
  anyOf,
  conditionOfAge,
  conditionOfIds,
  conditionOfInput,
  conditionOfInstant,
  conditionOfNames,
  conditionOfNumber,
  conditionOfTag,
  conditionOfTerms,
  conditionOfText,
  valuesOf,
} from '../../shared/filter/conditions.ts';
import type { Add } from '../../shared/filter/conditions.ts';
import type { FilterTerm } from '../../shared/filter/filter.ts';
import { readFilter } from '../../shared/filter/read-filter.ts';
import { sql } from '../../shared/postgres/statement.ts';
import type { Sql } from '../../shared/postgres/statement.ts';
import { idAtLeast } from '../../shared/tasks/ids.ts';
import { TASK_LANGUAGE } from '../../shared/tasks/task-keys.ts';
import type { TaskKey } from '../../shared/tasks/task-keys.ts';
import type { TaskState } from '../../shared/tasks/state-machine.ts';

/** Which tasks are meant: those that every term fits. */
export interface TaskFilter {
  readonly terms: readonly TaskTerm[];
}

/** A term whose key is one of tasks. */
export type TaskTerm = FilterTerm & { readonly key: TaskKey };

/** Ids are made by the producer's clock, acceptance by that of Postgres: a range of time is widened by this. */
const CLOCK_SLACK_MS = 300_000;
const BEYOND_ALL_IDS = 'ffffffff-ffff-ffff-ffff-ffffffffffff';
const BEFORE_ALL_IDS = '00000000-0000-0000-0000-000000000000';

/** Reads a filter. Throws `field-invalid` of the field `filter`, with the place and what is allowed there. */
export function parseTaskFilter(text: string): TaskFilter {
  return { terms: readFilter(text, TASK_LANGUAGE) as readonly TaskTerm[] };
}

/** A term that one of the texts fits, as a whole. */
export function termOf(key: TaskKey, texts: readonly string[]): TaskTerm {
  return { key, path: [], isNegated: false, values: texts.map((text) => ({ kind: 'text', pieces: [text] })) };
}

/** The same filter, of tasks in one of these states alone. */
export function inStates({ terms }: TaskFilter, states: readonly TaskState[]): TaskFilter {
  return { terms: [...terms, termOf('state', states)] };
}

/** The whole texts that a task must have one of under `key`; `undefined` where the filter says it in no such way. */
export function wholeTextsOf({ terms }: TaskFilter, key: TaskKey): readonly string[] | undefined {
  for (const term of terms) {
    if (term.key !== key || term.isNegated) continue;
    const texts = term.values.map((value) =>
      value.kind === 'text' && value.pieces.length === 1 ? value.pieces[0] : undefined,
    );
    if (texts.every((text) => text !== undefined)) return texts;
  }
  return undefined;
}

/** True where a look at a task means a look into its input or its history, which can be large. */
export function isDeep({ terms }: TaskFilter): boolean {
  return terms.some(({ key }) => key === 'input' || key === 'text' || key === 'error');
}

/** The ids outside of which nothing fits, as far as times of acceptance say so: from one, and before the other. */
export function idRangeOf({ terms }: TaskFilter, now: Date): { readonly from: string; readonly before: string } {
  let from = BEFORE_ALL_IDS;
  let before = BEYOND_ALL_IDS;
  for (const { key, isNegated, values } of terms) {
    if (isNegated || (key !== 'accepted' && key !== 'age')) continue;
    const spans = valuesOf('range', values).map(({ range }) =>
      key === 'accepted'
        ? { first: range.from?.value, last: range.to?.value }
        : { first: agoOf(now, range.to?.value), last: agoOf(now, range.from?.value) },
    );
    const first = Math.min(...spans.map((span) => span.first ?? -Infinity));
    const last = Math.max(...spans.map((span) => span.last ?? Infinity));
    const least = Number.isFinite(first) ? idAtLeast(new Date(first - CLOCK_SLACK_MS)) : BEFORE_ALL_IDS;
    const most = Number.isFinite(last) ? idAtLeast(new Date(last + CLOCK_SLACK_MS)) : BEYOND_ALL_IDS;
    if (least > from) from = least;
    if (most < before) before = most;
  }
  return { from, before };
}

const agoOf = (now: Date, ms: number | undefined): number | undefined =>
  ms === undefined ? undefined : now.getTime() - ms;

/** The condition of a filter over the alias `t` (tasks). Its parameters are pushed onto `values`, encoded, and numbered from there. */
export function conditionOf({ terms }: TaskFilter, values: unknown[]): Sql {
  const add = adderTo(values);
  return conditionOfTerms(terms, (term) => conditionOfTerm(term, add));
}

function conditionOfTerm({ key, path, values }: TaskTerm, add: Add): Sql {
  const texts = valuesOf('text', values);
  const ranges = valuesOf('range', values);
  switch (key) {
    case 'state':
      return conditionOfNames(sql`t.state::text`, texts, add);
    case 'type':
      return conditionOfNames(sql`t.type`, texts, add);
    case 'queue':
      return conditionOfNames(sql`t.queue`, texts, add);
    case 'key':
      return conditionOfNames(sql`t.business_key`, texts, add);
    case 'externalId':
      return conditionOfNames(sql`t.external_id`, texts, add);
    case 'publisher':
      return conditionOfNames(sql`t.publisher`, texts, add);
    case 'correlation':
      return conditionOfNames(sql`t.correlation_id`, texts, add);
    case 'tag':
      return anyOf(texts, ({ pieces }) => conditionOfTag(sql`t.tags`, pieces, add));
    case 'priority':
      return anyOf(ranges, ({ range }) => conditionOfNumber(sql`t.priority`, range, add));
    case 'attempts':
      return anyOf(ranges, ({ range }) => conditionOfNumber(sql`t.attempt`, range, add));
    case 'failures':
      return anyOf(ranges, ({ range }) => conditionOfNumber(sql`t.failures`, range, add));
    case 'age':
      return anyOf(ranges, ({ range }) => conditionOfAge(sql`t.accepted_at`, range, add));
    case 'accepted':
      return anyOf(ranges, ({ range }) => conditionOfInstant(sql`t.accepted_at`, range, add));
    case 'runAt':
      return anyOf(ranges, ({ range }) => conditionOfInstant(sql`t.run_at`, range, add));
    case 'deadline':
      return anyOf(ranges, ({ range }) => conditionOfInstant(sql`t.deadline`, range, add));
    case 'finished':
      return anyOf(ranges, ({ range }) => conditionOfInstant(sql`t.finished_at`, range, add));
    case 'worker':
      return conditionOfIds(sql`t.worker`, texts, add);
    case 'id':
      return conditionOfIds(sql`t.id`, texts, add);
    case 'text':
      return anyOf(texts, ({ pieces }) => conditionOfText(sql`input_text(t.input)`, pieces, add));
    case 'error':
      return anyOf(texts, ({ pieces }) => conditionOfError(pieces, add));
    case 'input':
      return anyOf(values, (value) => conditionOfInput(sql`input_json(t.input)`, { path, value, add }));
  }
}

/** In any attempt that did not succeed. Index: attempts_pkey. */
function conditionOfError(pieces: readonly string[], add: Add): Sql {
  const said = conditionOfText(
    sql`nullif(concat_ws(': ', a.error_type, a.error_code, a.error_message), '')`,
    pieces,
    add,
  );
  return sql`exists (select from attempts a where a.task_id = t.id and ${said})`;
}
