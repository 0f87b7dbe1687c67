/** How a benchmark says whether what it is for was reached. */

/** Prints `aim …: met` or `aim …: missed`; true where it is met. */
export function aim(what: string, value: number, isMet: (value: number) => boolean): boolean {
  console.log(`  aim ${what} (${value.toFixed(2)}): ${isMet(value) ? 'met' : 'missed'}`);
  return isMet(value);
}
