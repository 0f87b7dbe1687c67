/** Rules that say which failure group a failure belongs to, where its fingerprint would say something else. */
import type { GroupRule } from '../config/format.ts';
import { WarrenError } from '../errors/warren-error.ts';
import { parseFilter } from '../filter/filter.ts';
import type { FilterKeys, FilterTerm } from '../filter/filter.ts';
import type { FilterValue, KeyKind } from '../filter/values.ts';
import type { Failure } from './fingerprint.ts';
import { ALERT_TYPE } from './alert.ts';
import { LETTER_KEYS } from './letter-keys.ts';

/** What a rule may ask: of the keys of dead letters those that a failure has. */
const KEYS = ['kind', 'reason', 'type', 'errorType', 'code', 'error'] as const;
type RuleKey = (typeof KEYS)[number];

const RULE_LANGUAGE: FilterKeys = {
  kinds: new Map<string, KeyKind>(KEYS.map((key) => [key, LETTER_KEYS[key]])),
  bareWord: 'error',
};

/** Gives the group of the first rule that a failure fits, if any; of alerts none. Throws `config-invalid` with every rule that cannot be read. */
export function compileGroupRules(rules: readonly GroupRule[]): (failure: Failure) => string | undefined {
  const faults: string[] = [];
  const compiled = rules.map(({ group, filter }, index) => {
    const parsed = parseFilter(filter, RULE_LANGUAGE);
    if (parsed.kind === 'fault') {
      faults.push(`deadLetters.groupRules: rule ${index + 1}, at character ${parsed.position + 1}: ${parsed.reason}`);
      return { group, terms: [] };
    }
    if (parsed.terms.length === 0) faults.push(`deadLetters.groupRules: rule ${index + 1} fits everything`);
    return { group, terms: parsed.terms };
  });
  if (faults.length > 0) throw new WarrenError('config-invalid', { faults });
  return (failure) => {
    // A group that a rule makes has no type, by which what died of delivering an alert is kept from raising one.
    if (failure.type === ALERT_TYPE) return undefined;
    return compiled.find(({ terms }) => terms.every((term) => fits(failure, term)))?.group;
  };
}

function fits(failure: Failure, { key, values, isNegated }: FilterTerm): boolean {
  const text = textOf(failure, key as RuleKey);
  const isIt = text !== null && values.some((value) => fitsOne(text, value, key === 'error'));
  return isIt !== isNegated;
}

function textOf(failure: Failure, key: RuleKey): string | null {
  switch (key) {
    case 'kind':
      return failure.kind;
    case 'reason':
      return failure.reason;
    case 'type':
      return failure.type;
    case 'errorType':
      return failure.errorType;
    case 'code':
      return failure.errorCode;
    case 'error':
      return failure.errorMessage;
  }
}

/** As the search compares: names whole, errors in part and without regard to case. */
function fitsOne(text: string, value: FilterValue, isPart: boolean): boolean {
  if (value.kind !== 'text') return false;
  const pieces = isPart ? ['', ...value.pieces.map((piece) => piece.toLowerCase()), ''] : value.pieces;
  return isLike(isPart ? text.toLowerCase() : text, pieces);
}

/** True where the pieces come in this order, the first at the beginning and the last at the end. */
function isLike(text: string, pieces: readonly string[]): boolean {
  const [first = '', ...rest] = pieces;
  const last = rest.pop();
  if (last === undefined) return text === first;
  if (!text.startsWith(first)) return false;
  let from = first.length;
  for (const piece of rest) {
    const at = text.indexOf(piece, from);
    if (at < 0) return false;
    from = at + piece.length;
  }
  return text.length - last.length >= from && text.endsWith(last);
}
