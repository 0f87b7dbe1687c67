/** `docs/reference/errors.md`: every code of the catalogue under a heading of its own. */
import { CATALOGUE } from '../../shared/errors/catalogue.ts';
import type { CatalogueEntry } from '../../shared/errors/catalogue.ts';
import { exitCodeOf } from '../../shared/lifecycle/process-main.ts';
import { WarrenError } from '../../shared/errors/warren-error.ts';
import type { ErrorCode } from '../../shared/errors/catalogue.ts';
import { page } from './markdown.ts';

/** Prints the page. */
export function renderErrors(): string {
  const entries = Object.entries(CATALOGUE) as [ErrorCode, CatalogueEntry][];
  const codes = entries.toSorted(([a], [b]) => (a < b ? -1 : 1));
  return page(
    'Errors',
    'For whoever has met an error code: in the `type` of an HTTP answer, in the `code` of a log line, or from `warren`.',
    [
      'Codes are never renamed, so programs may compare them. An HTTP answer is a problem document (RFC 9457): `type` is the ' +
        'code, `title` is the sentence below, and further members such as `field`, `reason` and `faults` say what it is about. ' +
        'Exit codes of services and of `warren` are in [Exit codes](exit-codes.md).',
      ...codes.map(([name, entry]) => section(name, entry)),
    ],
  );
}

function section(name: ErrorCode, { status, title, retryable }: CatalogueEntry): string {
  const again = retryable ? 'Trying again can help.' : 'Trying again without a change does not help.';
  return `## ${name}\n\n${title} ${again} HTTP status ${status}${exitOf(name)}.`;
}

/** What can end the start of a service. RabbitMQ cannot: a service starts without it and goes on trying. */
const ENDS_STARTS: ReadonlySet<ErrorCode> = new Set([
  'config-invalid',
  'database-outdated',
  'database-unavailable',
  'migration-changed',
  'prefix-mismatch',
  'task-module-invalid',
]);

function exitOf(name: ErrorCode): string {
  if (!ENDS_STARTS.has(name)) return '';
  return `; a service that meets it while it starts exits with ${exitCodeOf(new WarrenError(name))}`;
}
