/** The stack as environment variables, for processes and for shells. */
import type { StackUrls } from './stack.ts';

/** The variables that programs of ours read. */
export function environmentOf(urls: StackUrls): Record<string, string> {
  return {
    AMQP_URL: urls.amqpUrl,
    DATABASE_URL: urls.databaseUrl,
    WARREN_PREFIX: urls.prefix,
    ...(urls.managementUrl === undefined ? {} : { MANAGEMENT_URL: urls.managementUrl }),
  };
}

/** Lines for a POSIX shell; values are quoted, so that no character of a password means anything. */
export function renderExports(variables: Readonly<Record<string, string>>): string {
  return Object.entries(variables)
    .map(([name, value]) => `export ${name}='${value.replaceAll("'", `'\\''`)}'`)
    .join('\n');
}
