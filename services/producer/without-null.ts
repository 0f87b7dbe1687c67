/** Answers leave out what there is none of. */

/** The members that have a value. */
export function withoutNull(members: Readonly<Record<string, unknown>>): Record<string, unknown> {
  const present: Record<string, unknown> = {};
  for (const name of Object.keys(members)) {
    const value = members[name];
    if (value !== null && value !== undefined) present[name] = value;
  }
  return present;
}
