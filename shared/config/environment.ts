/** The environment of the process, for programs that hand it on to what they start or call. */

/** A copy of the environment as it is now. */
export function readEnvironment(): Readonly<Record<string, string | undefined>> {
  return { ...process.env };
}
