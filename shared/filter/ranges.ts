/** Ranges of numbers, ages and instants: `>=3`, `3..5`, `<30m`, `2026-01-31`. */

/** One end of a range. */
export interface Bound {
  readonly value: number;
  /** True where the value itself is inside. */
  readonly isInclusive: boolean;
}

/** What lies between two bounds; without one it is open at that side. */
export interface FilterRange {
  readonly from?: Bound;
  readonly to?: Bound;
}

/** A written value covers all from its first to its last instant: a day is not a point. */
interface Span {
  readonly from: Bound;
  readonly to: Bound;
  /** False where it makes sense only in a comparison: nobody means the letters that are exactly one hour old. */
  readonly standsAlone: boolean;
}

/** Reads one written value; `undefined` where it is none. */
export type ReadSpan = (text: string) => Span | undefined;

/** Reads `>a`, `>=a`, `<a`, `<=a`, `a..b`, `a..`, `..b` or `a`; `undefined` where it is none. */
export function rangeOf(text: string, read: ReadSpan): FilterRange | undefined {
  const [, operator, compared = ''] = /^(>=|<=|>|<)(.*)$/s.exec(text) ?? [];
  if (operator !== undefined) {
    const span = read(compared);
    return span === undefined ? undefined : compare(operator, span);
  }
  const middle = text.indexOf('..');
  if (middle >= 0) return between(text.slice(0, middle), text.slice(middle + 2), read);
  const span = read(text);
  return span?.standsAlone === true ? { from: span.from, to: span.to } : undefined;
}

function compare(operator: string, { from, to }: Span): FilterRange {
  if (operator === '>') return { from: { value: to.value, isInclusive: !to.isInclusive } };
  if (operator === '>=') return { from };
  if (operator === '<') return { to: { value: from.value, isInclusive: false } };
  return { to };
}

function between(first: string, last: string, read: ReadSpan): FilterRange | undefined {
  const low = first === '' ? undefined : read(first);
  const high = last === '' ? undefined : read(last);
  if (low === undefined && (first !== '' || last === '')) return undefined;
  if (high === undefined && last !== '') return undefined;
  return { ...(low === undefined ? {} : { from: low.from }), ...(high === undefined ? {} : { to: high.to }) };
}

const point = (value: number, standsAlone: boolean): Span => ({
  from: { value, isInclusive: true },
  to: { value, isInclusive: true },
  standsAlone,
});

/** A number, written plainly. */
export const readNumber: ReadSpan = (text) =>
  /^-?\d{1,15}(\.\d{1,15})?$/.test(text) ? point(Number(text), true) : undefined;

const UNIT_MS: Readonly<Record<string, number>> = { d: 86_400_000, h: 3_600_000, m: 60_000, s: 1_000 };
/** A hundred years: before that nothing died. */
const LONGEST_MS = 3_153_600_000_000;

/** Milliseconds of `30m`, `1.5h`, `1d12h`. */
export const readAge: ReadSpan = (text) => {
  if (!/^(\d{1,9}(\.\d{1,9})?[dhms])+$/.test(text)) return undefined;
  let ms = 0;
  for (const [, count, unit] of text.matchAll(/([\d.]+)([dhms])/g)) ms += Number(count) * (UNIT_MS[unit ?? ''] ?? 0);
  return ms > LONGEST_MS ? undefined : point(Math.round(ms), false);
};

const INSTANT = /^(\d{4})-(\d{2})-(\d{2})([Tt]\d{2}:\d{2}(:\d{2}(\.\d{1,9})?)?([Zz]|[+-]\d{2}:\d{2}))?$/;
const DAY_MS = 86_400_000;

/** An RFC 3339 instant with an offset, or a day in UTC. */
export const readInstant: ReadSpan = (text) => {
  const match = INSTANT.exec(text);
  if (match === null) return undefined;
  const [, year, month, day, time] = match;
  const ms = Date.parse(text.toUpperCase());
  // V8 reads 30 February as 1 March.
  const lastDay = new Date(Date.UTC(Number(year), Number(month), 0)).getUTCDate();
  if (Number.isNaN(ms) || ms < 0 || Number(day) > lastDay) return undefined;
  if (time !== undefined) return point(ms, false);
  return { from: { value: ms, isInclusive: true }, to: { value: ms + DAY_MS, isInclusive: false }, standsAlone: true };
};
