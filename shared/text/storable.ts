/** What a text may hold that Postgres shall keep. */

/** False for a text that Postgres cannot keep: one with U+0000 or a lone surrogate. */
export function isStorableText(text: string): boolean {
  // oxlint-disable-next-line no-control-regex -- U+0000 is what is looked for
  return !/\u0000|\p{Surrogate}/u.test(text);
}
