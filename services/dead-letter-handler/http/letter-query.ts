/** From query parameters to a filter: what both say must fit. */
import type { z } from 'zod';
import { parseInstant } from '../../../shared/amqp/message.ts';
import type { FilterValue } from '../../../shared/filter/values.ts';
import { parseLetterFilter } from '../letter-filter.ts';
import type { LetterFilter, LetterTerm } from '../letter-filter.ts';
import type { selectQuery } from './dead-letters.schema.ts';

/** The filter of a query. Throws `field-invalid`. */
export function filterOf(query: Partial<z.output<typeof selectQuery>>): LetterFilter {
  const { filter = '', state, kind, reason, type, queue, taskId, diedAfter, diedBefore } = query;
  return {
    terms: [
      ...parseLetterFilter(filter).terms,
      ...termOf('state', textsOf(state)),
      ...termOf('kind', textsOf(kind)),
      ...termOf('reason', textsOf(reason)),
      ...termOf('type', textsOf(type)),
      ...termOf('queue', textsOf(queue)),
      ...termOf('task', textsOf(taskId?.toLowerCase())),
      ...termOf('died', rangesOf(diedAfter, diedBefore)),
    ],
  };
}

function termOf(key: LetterTerm['key'], values: readonly FilterValue[]): readonly LetterTerm[] {
  return values.length === 0 ? [] : [{ key, path: [], isNegated: false, values }];
}

function textsOf(given: string | readonly string[] | undefined): readonly FilterValue[] {
  return given === undefined ? [] : [given].flat().map((text) => ({ kind: 'text', pieces: [text] }));
}

/** From the first instant on, and before the other. */
function rangesOf(after: string | undefined, before: string | undefined): readonly FilterValue[] {
  const from = parseInstant(after)?.getTime();
  const to = parseInstant(before)?.getTime();
  if (from === undefined && to === undefined) return [];
  const range = {
    ...(from === undefined ? {} : { from: { value: from, isInclusive: true } }),
    ...(to === undefined ? {} : { to: { value: to, isInclusive: false } }),
  };
  return [{ kind: 'range', range }];
}
