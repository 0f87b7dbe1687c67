/** Filters on the command line. Nothing is checked here: the service knows its keys, and tells them. */
import { LETTER_KEYS } from '../shared/dead-letters/letter-keys.ts';
import { TASK_KEYS } from '../shared/tasks/task-keys.ts';

/** The filter of the words that were given; `undefined` without any. */
export function filterOf(words: readonly string[]): string | undefined {
  return words.length === 0 ? undefined : words.join(' ');
}

/** What a filter can say, for the help of the commands that take one. */
function helpOf(
  keys: Readonly<Record<string, unknown>>,
  { instant, words }: { readonly instant: string; readonly words: string },
): string {
  const names = Object.entries(keys)
    .map(([key, kind]) => (kind === 'json' ? `${key}.<path>` : key))
    .join(', ');
  return `
Filter:
  Terms with a space between them; all must fit. Quote it for the shell: > and * mean something there.
  key:value             keys are ${names.replaceAll(/(.{55,68}?,) /g, '$1\n                        ')}
  key:a,b               one of these
  -key:value            not; where it is the first term, write -- before the filter
  key:a.*               * is anything, in names
  key:>=3 key:1..5      numbers; also ages (age:>1h, age:<30m) and instants (${instant}:>2026-01-31)
  words "in quotes"     searched in the ${words}`;
}

/** Of dead letters. */
export const FILTER_HELP = helpOf(LETTER_KEYS, { instant: 'died', words: 'error' });
/** Of tasks. An option takes a text that begins with a dash as it is. */
export const TASK_FILTER_HELP = helpOf(TASK_KEYS, { instant: 'accepted', words: 'input' }).replace(
  '; where it is the first term, write -- before the filter',
  '; where it is the first term, write --filter=-key:value',
);
