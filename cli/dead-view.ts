/** Shows dead letters to people. */
import type { ApiAnswer } from './api.ts';
import type { CommandContext } from './context.ts';
import { escapeLines } from './escape.ts';
import { renderAge, renderFields, renderInstant, renderTable, stateCell } from './render.ts';
import { renderAttempts, renderError, shortenText } from './task-view.ts';
import { numberAt, rawMember, textAt, viewAt, viewsAt } from './view.ts';
import type { View } from './view.ts';

/** Lines of a stack that are shown. */
const SHOWN_STACK_LINES = 12;

/** A table of dead letters. */
export function renderDeadLetters(letters: readonly View[], { io, paint }: CommandContext): string {
  return renderTable(
    ['ID', 'STATE', 'KIND', 'DIED', 'TYPE', 'REASON', 'ERROR'],
    letters.map((letter) => [
      textAt(letter, 'id') ?? '',
      stateCell(textAt(letter, 'state') ?? ''),
      textAt(letter, 'kind') ?? '',
      renderAge(textAt(letter, 'diedAt') ?? '', io.clock.now()),
      textAt(letter, 'type') ?? '',
      textAt(letter, 'reason') ?? '',
      renderError(errorOf(letter)) ?? '',
    ]),
    { paint, columns: io.stdout.columns },
  );
}

/** Everything about one dead letter. */
export function renderDeadLetter(answer: ApiAnswer, context: CommandContext): string {
  const letter = answer.value;
  const { io, paint } = context;
  const error = errorOf(letter);
  const message = renderError(error);
  const instant = (name: string): string | undefined => {
    const at = textAt(letter, name);
    return at === undefined ? undefined : renderInstant(at, io.clock.now());
  };
  const json = (name: string): string | undefined =>
    letter[name] === null ? undefined : shortenText(rawMember(answer, name));
  const fields = renderFields(
    [
      ['dead letter', textAt(letter, 'id')],
      ['state', stateCell(textAt(letter, 'state') ?? 'unknown')],
      ['kind', textAt(letter, 'kind')],
      ['reason', textAt(letter, 'reason')],
      ['task', textAt(letter, 'taskId')],
      ['type', textAt(letter, 'type')],
      ['queue', textAt(letter, 'queue')],
      ['attempt', numberAt(letter, 'attempt')?.toString()],
      ['died', instant('diedAt')],
      ['closed', instant('closedAt')],
      ['closed by', textAt(letter, 'closedBy')],
      ['close reason', textAt(letter, 'closeReason')],
      ['error', message === undefined ? undefined : { text: message, paint: 'red' }],
      ['exchange', textAt(letter, 'exchange')],
      ['routing key', textAt(letter, 'routingKey')],
      ['replayed to', destinationOf(viewAt(letter, 'replayedTo'))],
      ['deaths', renderDeaths(viewsAt(letter, 'letters'))],
      ['input', json('input')],
      ['body', shortenText(textAt(letter, 'text') ?? textAt(letter, 'body'))],
      ['body bytes', numberAt(letter, 'bodyBytes')?.toString()],
      ['properties', json('properties')],
      ['headers', json('headers')],
      ['x-death', json('xDeath')],
    ],
    paint,
  );
  return fields + renderStack(error) + renderAttempts(viewsAt(letter, 'attempts'), context);
}

function renderStack(error: View): string {
  const stack = textAt(error, 'stack');
  if (stack === undefined) return '';
  const lines = escapeLines(stack).split('\n');
  const more =
    lines.length > SHOWN_STACK_LINES ? [`    … ${lines.length - SHOWN_STACK_LINES} lines more; --json shows all`] : [];
  return `\n${[...lines.slice(0, SHOWN_STACK_LINES), ...more].join('\n')}\n`;
}

/** The error of a letter; an empty view where it has none. */
function errorOf(letter: View): View {
  return viewAt(letter, 'error') ?? {};
}

function destinationOf(to: View | undefined): string | undefined {
  return to === undefined ? undefined : `${textAt(to, 'exchange') ?? ''}/${textAt(to, 'routingKey') ?? ''}`;
}

/** A task that died more than once says so. */
function renderDeaths(letters: readonly View[]): string | undefined {
  return letters.length > 1 ? `${letters.length} of this task` : undefined;
}
