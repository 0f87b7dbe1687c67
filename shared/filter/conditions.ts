/** Pieces of conditions: how each kind of value is compared. Values go in as parameters; the rest is text of the program. */
import { encodeParameter, sql } from '../postgres/statement.ts';
import type { Sql } from '../postgres/statement.ts';
import type { FilterTerm } from './filter.ts';
import type { Bound, FilterRange } from './ranges.ts';
import type { FilterValue } from './values.ts';

/** Adds a parameter and gives its place in the statement. */
export type Add = (value: unknown) => Sql;
/** Values of one kind. */
export type ValueOf<K extends FilterValue['kind']> = Extract<FilterValue, { readonly kind: K }>;

/** A column that is one of the texts, or like one of the patterns. */
export function conditionOfNames(column: Sql, values: readonly ValueOf<'text'>[], add: Add): Sql {
  const whole = values.flatMap(({ pieces }) => (pieces.length === 1 ? [pieces[0] ?? ''] : []));
  const patterns = values.flatMap(({ pieces }) => (pieces.length > 1 ? [pieces] : []));
  return joined(
    [
      ...(whole.length === 1 ? [sql`${column} = ${add(whole[0])}::text`] : []),
      ...(whole.length > 1 ? [sql`${column} = any(${add(whole)}::text[])`] : []),
      ...patterns.map((pieces) =>
        pieces.every((piece) => piece === '')
          ? sql`${column} is not null`
          : sql`${column} like ${add(patternOf(pieces))}::text`,
      ),
    ],
    sql` or `,
  );
}

/** A column of ids that is one of them. */
export function conditionOfIds(column: Sql, values: readonly ValueOf<'text'>[], add: Add): Sql {
  const ids = values.map(({ pieces }) => pieces[0] ?? '');
  return ids.length === 1 ? sql`${column} = ${add(ids[0])}::uuid` : sql`${column} = any(${add(ids)}::uuid[])`;
}

/** A column of tags that has one. */
export function conditionOfTag(column: Sql, pieces: readonly string[], add: Add): Sql {
  // "@>" of the index's own predicate: an index of tags that are there is used only where the statement says that they are.
  if (pieces.length === 1) return sql`${column} is not null and ${column} @> array[${add(pieces[0])}::text]`;
  return sql`exists (select from unnest(${column}) as one (tag) where one.tag like ${add(patternOf(pieces))}::text)`;
}

/** A text that holds one. */
export function conditionOfText(column: Sql, pieces: readonly string[], add: Add): Sql {
  if (pieces.every((piece) => piece === '')) return sql`${column} is not null`;
  return sql`${column} ilike ${add(`%${patternOf(pieces)}%`)}::text`;
}

/** A column between two bounds. */
export function conditionOfRange(column: Sql, { from, to }: FilterRange, valueOf: (value: number) => Sql): Sql {
  const lower = ({ isInclusive, value }: Bound): Sql =>
    sql`${column} ${isInclusive ? sql`>=` : sql`>`} ${valueOf(value)}`;
  const upper = ({ isInclusive, value }: Bound): Sql =>
    sql`${column} ${isInclusive ? sql`<=` : sql`<`} ${valueOf(value)}`;
  return joined([...(from === undefined ? [] : [lower(from)]), ...(to === undefined ? [] : [upper(to)])], sql` and `);
}

/** A column of numbers between two bounds. */
export function conditionOfNumber(column: Sql, range: FilterRange, add: Add): Sql {
  return conditionOfRange(column, range, (value) => sql`${add(value)}::float8`);
}

/** A column of instants between two bounds. */
export function conditionOfInstant(column: Sql, range: FilterRange, add: Add): Sql {
  return conditionOfRange(column, range, (ms) => sql`${add(new Date(ms))}::timestamptz`);
}

/** A column of instants so long ago, by the clock of Postgres: what is older happened earlier. */
export function conditionOfAge(column: Sql, { from, to }: FilterRange, add: Add): Sql {
  const ago = (ms: number): Sql => sql`now() - ${add(ms)}::float8 * interval '1 ms'`;
  return joined(
    [
      ...(from === undefined ? [] : [sql`${column} ${from.isInclusive ? sql`<=` : sql`<`} ${ago(from.value)}`]),
      ...(to === undefined ? [] : [sql`${column} ${to.isInclusive ? sql`>=` : sql`>`} ${ago(to.value)}`]),
    ],
    sql` and `,
  );
}

/** A value at the path, in a column of jsonb. */
export function conditionOfInput(
  column: Sql,
  { path, value, add }: { readonly path: readonly string[]; readonly value: FilterValue; readonly add: Add },
): Sql {
  switch (value.kind) {
    case 'any':
      return sql`${column} #> ${add(path)}::text[] is not null`;
    case 'json':
      return joined(
        value.texts.map((text) => sql`${column} @> ${add(nested(path, text))}::jsonb`),
        sql` or `,
      );
    case 'range':
      return sql`${column} @? ${add(`${jsonPathOf(path)} ? (${predicateOf(value.range)})`)}::jsonpath`;
    case 'text':
      return sql`false`; // no value of the input is one
  }
}

/** `{"a":{"b":42}}` of the path a, b. */
function nested(path: readonly string[], text: string): string {
  return path.toReversed().reduce((inner, step) => `{${JSON.stringify(step)}:${inner}}`, text);
}

/** A path as SQL/JSON writes it: JSON's quotes and escapes are its own. */
function jsonPathOf(path: readonly string[]): string {
  return `$${path.map((step) => `.${JSON.stringify(step)}`).join('')}`;
}

function predicateOf({ from, to }: FilterRange): string {
  return [
    ...(from === undefined ? [] : [`@ ${from.isInclusive ? '>=' : '>'} ${from.value}`]),
    ...(to === undefined ? [] : [`@ ${to.isInclusive ? '<=' : '<'} ${to.value}`]),
  ].join(' && ');
}

/** A pattern of LIKE in which only the wildcards are special. */
export function patternOf(pieces: readonly string[]): string {
  return pieces.map((piece) => piece.replaceAll(/[\\%_]/g, '\\$&')).join('%');
}

/** One of several. */
export function anyOf<V>(values: readonly V[], conditionOfOne: (value: V) => Sql): Sql {
  return joined(
    values.map((value) => sql`(${conditionOfOne(value)})`),
    sql` or `,
  );
}

/** Conditions with a word between them; `true` of none. */
export function joined(parts: readonly Sql[], by: Sql): Sql {
  return parts.length === 0 ? sql`true` : (parts.join(by) as Sql); // pieces of SQL alone
}

/** Pushes parameters, encoded, onto `values` and numbers them from there. */
export function adderTo(values: unknown[]): Add {
  return (value) => {
    values.push(encodeParameter(value));
    return `$${values.length}` as Sql; // a number and nothing else
  };
}

/** All conditions of the terms together. Never null in effect: what is negated fits where the column is null. */
export function conditionOfTerms<T extends FilterTerm>(terms: readonly T[], conditionOfTerm: (term: T) => Sql): Sql {
  const conditions = terms.map((term) => {
    const condition = conditionOfTerm(term);
    return term.isNegated ? sql`((${condition}) is not true)` : sql`(${condition})`;
  });
  return joined(conditions, sql` and `);
}

/** The values that are of a kind. */
export function valuesOf<K extends FilterValue['kind']>(
  kind: K,
  values: readonly FilterValue[],
): readonly ValueOf<K>[] {
  return values.filter((value): value is ValueOf<K> => value.kind === kind);
}
