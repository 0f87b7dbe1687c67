/** Filters as people hand them in: what cannot be read is told with its place, and what would select everything is seen. */
import { WarrenError } from '../errors/warren-error.ts';
import { parseFilter } from './filter.ts';
import type { FilterKeys, FilterTerm } from './filter.ts';
import type { FilterValue } from './values.ts';

/** Reads a filter. Throws `field-invalid` of the field `filter`, with the place and what is allowed there. */
export function readFilter(text: string, language: FilterKeys): readonly FilterTerm[] {
  const parsed = parseFilter(text, language);
  if (parsed.kind === 'ok') return parsed.terms;
  const { position, reason } = parsed;
  throw new WarrenError('field-invalid', {
    field: 'filter',
    reason: `at character ${position + 1}: ${reason}`,
    position: position + 1,
  });
}

/** True for terms that select everything there is, or everything of some states: whoever changes things by them must ask twice. */
export function selectsEverything(terms: readonly FilterTerm[]): boolean {
  return terms.every(
    (term) => term.key === 'state' || (!term.isNegated && term.values.some((value) => isAnything(value))),
  );
}

function isAnything(value: FilterValue): boolean {
  return value.kind === 'text' && value.pieces.length > 1 && value.pieces.every((piece) => piece === '');
}
