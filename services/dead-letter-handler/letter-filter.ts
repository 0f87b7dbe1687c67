/** From a filter of dead letters to the condition that a statement selects them by. Values of users are parameters, each of them. */
import { LETTER_LANGUAGE } from '../../shared/dead-letters/letter-keys.ts';
import type { LetterKey } from '../../shared/dead-letters/letter-keys.ts';
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
  joined,
  valuesOf as of,
} from '../../shared/filter/conditions.ts';
import type { Add, ValueOf } from '../../shared/filter/conditions.ts';
import type { FilterTerm } from '../../shared/filter/filter.ts';
import type { FilterRange } from '../../shared/filter/ranges.ts';
import { readFilter, selectsEverything } from '../../shared/filter/read-filter.ts';
import { sql } from '../../shared/postgres/statement.ts';
import type { Sql } from '../../shared/postgres/statement.ts';
import { idAtLeast } from '../../shared/tasks/ids.ts';

/** Ids are made by the clock of whoever wrote the letter, deaths happen by that of Postgres: a range of ids is wider by this. */
const CLOCK_SLACK_MS = 300_000;

/** Which letters are meant: those that every term fits, and open ones alone where no term is about the state. */
export interface LetterFilter {
  readonly terms: readonly LetterTerm[];
}

/** A term whose key is one of dead letters. */
export type LetterTerm = FilterTerm & { readonly key: LetterKey };

/** Reads a filter. Throws `field-invalid` of the field `filter`, with the place and what is allowed there. */
export function parseLetterFilter(text: string): LetterFilter {
  return { terms: readFilter(text, LETTER_LANGUAGE) as readonly LetterTerm[] };
}

/** True for a filter that selects everything there is, or everything of some states: whoever changes letters by it must ask twice. */
export function isEmpty({ terms }: LetterFilter): boolean {
  return selectsEverything(terms);
}

/** True where the filter says nothing of the state, or says "open" alone: every letter that fits is open. */
export function isOpenOnly({ terms }: LetterFilter): boolean {
  const states = terms.filter(({ key }) => key === 'state');
  if (states.length === 0) return true;
  return states.some(
    ({ isNegated, values }) =>
      !isNegated && values.every((value) => value.kind === 'text' && value.pieces[0] === 'open'),
  );
}

/**
 * The condition of a filter over the aliases `l` (dead_letters) and `f` (letter_facts, left joined on f.letter_id = l.id). Its
 * parameters are pushed onto `values`, encoded, and numbered from there. Never null in effect: what is negated fits where the
 * column is null.
 */
export function conditionOf(filter: LetterFilter, values: unknown[]): Sql {
  const add = adderTo(values);
  const condition = conditionOfTerms(filter.terms, (term) => conditionOfTerm(term, add));
  // The literal: partial indexes of open letters are found by it.
  return isOpenOnly(filter) ? sql`l.state = 'open' and ${condition}` : condition;
}

function conditionOfTerm({ key, path, values, isNegated }: LetterTerm, add: Add): Sql {
  switch (key) {
    case 'state':
      return conditionOfStates(of('text', values), add);
    case 'kind':
      return conditionOfNames(sql`l.kind`, of('text', values), add);
    case 'reason':
      return conditionOfNames(sql`l.reason`, of('text', values), add);
    case 'type':
      return conditionOfNames(sql`l.type`, of('text', values), add);
    case 'queue':
      return conditionOfNames(sql`l.queue`, of('text', values), add);
    case 'errorType':
      return conditionOfNames(sql`l.error_type`, of('text', values), add);
    case 'code':
      return conditionOfNames(sql`l.error_code`, of('text', values), add);
    case 'version':
      return conditionOfNames(sql`l.code_version`, of('text', values), add);
    case 'group':
      return conditionOfIds(sql`l.group_id`, of('text', values), add);
    case 'task':
      return conditionOfIds(sql`l.task_id`, of('text', values), add);
    case 'id':
      return conditionOfIds(sql`l.id`, of('text', values), add);
    case 'tag':
      return anyOf(of('text', values), (value) => conditionOfTag(sql`f.tags`, value.pieces, add));
    case 'error':
      return anyOf(of('text', values), ({ pieces }) => conditionOfText(sql`f.error_text`, pieces, add));
    case 'attempts':
      return anyOf(of('range', values), ({ range }) => conditionOfNumber(sql`l.attempt`, range, add));
    case 'age':
      return anyOf(of('range', values), ({ range }) => conditionOfDeathAge(range, !isNegated, add));
    case 'died':
      return anyOf(of('range', values), ({ range }) => conditionOfDeath(range, !isNegated, add));
    case 'input':
      return anyOf(values, (value) => conditionOfInput(sql`f.input`, { path, value, add }));
  }
}

/** `all` takes part in nothing: the term is there so that open letters are not the default. */
function conditionOfStates(values: readonly ValueOf<'text'>[], add: Add): Sql {
  const states = values.map(({ pieces }) => pieces[0] ?? '');
  return states.includes('all') ? sql`true` : conditionOfNames(sql`l.state`, values, add);
}

/**
 * What died longer ago died earlier. Ids are made when a letter is, so a range of time is a range of ids too, and lists walk by
 * id. Where somebody changed tables by hand the two can differ: a letter that had been lost counts from when it was written anew, one
 * whose task was revived and died again from its first death.
 */
function conditionOfDeathAge(range: FilterRange, byId: boolean, add: Add): Sql {
  const { from, to } = range;
  return joined(
    [
      conditionOfAge(sql`l.died_at`, range, add),
      ...(from === undefined || !byId ? [] : [sql`l.id < ${idOfAge(from.value - CLOCK_SLACK_MS, add)}`]),
      ...(to === undefined || !byId ? [] : [sql`l.id >= ${idOfAge(to.value + CLOCK_SLACK_MS, add)}`]),
    ],
    sql` and `,
  );
}

/** The smallest id of an instant so long ago, by the clock of Postgres: `idAtLeast` as SQL. */
function idOfAge(ms: number, add: Add): Sql {
  const since1970 = sql`greatest(extract(epoch from now()) * 1000 - ${add(ms)}::float8, 0)::bigint`;
  return sql`(lpad(to_hex(${since1970}), 12, '0') || '70008000000000000000')::uuid`;
}

function conditionOfDeath(range: FilterRange, byId: boolean, add: Add): Sql {
  const { from, to } = range;
  const id = (ms: number): Sql => sql`${add(idAtLeast(new Date(ms)))}::uuid`;
  return joined(
    [
      conditionOfInstant(sql`l.died_at`, range, add),
      ...(from === undefined || !byId ? [] : [sql`l.id >= ${id(from.value - CLOCK_SLACK_MS)}`]),
      ...(to === undefined || !byId ? [] : [sql`l.id < ${id(to.value + CLOCK_SLACK_MS)}`]),
    ],
    sql` and `,
  );
}
