/** Shows what went wrong: in plain words on a terminal, as one JSON document with `--json`. Always on stderr. */
import type { CliError, Problem } from './cli-error.ts';
import { escapeJson, escapeLines, escapeText } from './escape.ts';
import type { Painter } from './render.ts';

/** The JSON document for a failed command. */
export function renderProblemJson({ problem, exitCode }: CliError): string {
  return `${escapeJson(JSON.stringify({ ...problem, exitCode }, undefined, 2))}\n`;
}

/** Lines for people: what, where, why, what to do. */
export function renderProblem({ problem }: CliError, paint: Painter): string {
  const lines = [`${paint('red', 'error:')} ${escapeLines(problem.title)}${codeSuffix(problem, paint)}`];
  const faults = listOf(problem['faults'] ?? problem['errors']);
  const isList = faults.length > 1 || problem.reason === undefined;
  if (isList) for (const fault of faults) lines.push(`  - ${escapeText(fault)}`);
  const facts = factsOf(problem, faults.length > 1);
  const width = Math.max(...facts.map(([name]) => name.length), 0);
  for (const [name, value] of facts) lines.push(`  ${paint('dim', name.padEnd(width))}  ${escapeText(value)}`);
  if (problem.hint !== undefined) lines.push(escapeLines(problem.hint));
  return `${lines.join('\n')}\n`;
}

function codeSuffix({ code }: Problem, paint: Painter): string {
  return code === 'usage' || code === 'interrupted' ? '' : ` ${paint('dim', `(${escapeText(code)})`)}`;
}

/** Members that are shown elsewhere, or say nothing to a person. */
const NOT_FACTS = new Set([
  'code',
  'title',
  'type',
  'status',
  'instance',
  'hint',
  'stack',
  'faults',
  'errors',
  'exitCode',
]);

/** Field and reason are those of the first fault, and left out where the faults are listed. */
function factsOf(problem: Problem, areFaultsListed: boolean): readonly (readonly [string, string])[] {
  const { field, reason, detail, ...others } = problem;
  const first = areFaultsListed ? {} : { field, reason };
  // A service's detail often repeats field and reason, or the hint.
  const repeats =
    detail === problem.hint || (typeof reason === 'string' && typeof detail === 'string' && detail.endsWith(reason));
  return Object.entries({ ...first, detail: repeats ? undefined : detail, ...others })
    .filter(([name, value]) => !NOT_FACTS.has(name) && value !== undefined && value !== null && value !== problem.title)
    .map(([name, value]) => [escapeText(name), plain(value)] as const);
}

function listOf(value: unknown): readonly string[] {
  return Array.isArray(value) ? value.map((item) => plain(item)) : [];
}

function plain(value: unknown): string {
  if (typeof value === 'string') return value;
  if (typeof value === 'object' && value !== null && 'reason' in value) {
    const { field, reason } = value as { readonly field?: unknown; readonly reason: unknown };
    return field === undefined ? plain(reason) : `${plain(field)}: ${plain(reason)}`;
  }
  return JSON.stringify(value) ?? String(value);
}
