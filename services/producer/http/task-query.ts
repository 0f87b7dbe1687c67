/** From query parameters to a filter: what all of them say must fit. */
import type { z } from 'zod';
import { parseTaskFilter, termOf } from '../task-filter.ts';
import type { TaskFilter, TaskTerm } from '../task-filter.ts';
import type { listQuery } from './tasks.schema.ts';

/** The filter of a query. Throws `field-invalid`. */
export function filterOf(query: Omit<z.output<typeof listQuery>, 'limit' | 'cursor'>): TaskFilter {
  const { filter = '', state, type, queue, tag, businessKey, externalId, acceptedAfter, acceptedBefore } = query;
  const wanted = {
    state: state === undefined ? undefined : [state].flat(),
    type,
    queue,
    tag,
    key: businessKey,
    externalId,
  };
  const terms = Object.entries(wanted).flatMap(([key, given]) =>
    given === undefined ? [] : [termOf(key as keyof typeof wanted, [given].flat())],
  );
  return { terms: [...parseTaskFilter(filter).terms, ...terms, ...acceptedTerms(acceptedAfter, acceptedBefore)] };
}

/** From the first instant on, and before the other. */
function acceptedTerms(after: Date | undefined, before: Date | undefined): readonly TaskTerm[] {
  if (after === undefined && before === undefined) return [];
  const range = {
    ...(after === undefined ? {} : { from: { value: after.getTime(), isInclusive: true } }),
    ...(before === undefined ? {} : { to: { value: before.getTime(), isInclusive: false } }),
  };
  return [{ key: 'accepted', path: [], isNegated: false, values: [{ kind: 'range', range }] }];
}
