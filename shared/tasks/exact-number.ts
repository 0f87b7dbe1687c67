/** Which JSON numbers a double keeps. */

/**
 * Why a double would change this number literal. Fractions are rounded as everywhere; an integer must come out as it went
 * in, where "comes out" is how JavaScript writes it: the shortest text that reads as the same double.
 */
export function whyNotExact(literal: string): string | undefined {
  const value = Number(literal);
  if (!Number.isFinite(value)) return 'is larger than a number can be; send it as a string';
  const given = decimalOf(literal);
  if (value === 0) return given.digits === '' ? undefined : 'is smaller than a number can be; send it as a string';
  if (!/[.eE]/.test(literal)) {
    return Number.isSafeInteger(value) ? undefined : 'is an integer beyond 2^53-1; send it as a string';
  }
  if (given.digits.length <= 15 || given.power < 0) return undefined;
  const kept = decimalOf(String(value));
  return kept.digits === given.digits && kept.power === given.power
    ? undefined
    : 'is an integer of more digits than a number keeps; send it as a string';
}

/** A literal as `digits · 10^power`, without its sign and without zeros at either end of `digits`. */
function decimalOf(literal: string): { digits: string; power: number } {
  const [mantissa = '', exponent = '0'] = literal.split(/[eE]/);
  const [whole = '', fraction = ''] = mantissa.split('.');
  const all = (whole + fraction).replace(/^-?0*/, '');
  const digits = withoutTrailingZeros(all);
  return { digits, power: Number(exponent) - fraction.length + all.length - digits.length };
}

/** By hand: the regular expression for it takes quadratic time on zeros in the middle. */
function withoutTrailingZeros(digits: string): string {
  let end = digits.length;
  while (digits.charCodeAt(end - 1) === 0x30) end -= 1;
  return digits.slice(0, end);
}
