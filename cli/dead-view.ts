/** Shows dead letters to people. */
import type { ApiAnswer } from './api.ts';
import type { CommandContext } from './context.ts';
import { escapeLines, escapeText } from './escape.ts';
import { renderLogs } from './history-view.ts';
import { renderAge, renderFields, renderInstant, renderTable, stateCell } from './render.ts';
import { renderFile, renderAttempts, renderError, shortenText } from './task-view.ts';
import { numberAt, rawMember, textAt, textsAt, viewAt, viewsAt } from './view.ts';
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
      ['tags', tagsOf(letter)],
      ['group', textAt(letter, 'groupId')],
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
      ['replays', renderLetterReplays(viewsAt(letter, 'replays'))],
      ['input', json('input')],
      ['whole input', renderFile(viewAt(letter, 'task') ?? {}, 'inputFile')],
      ['input before', json('originalInput')],
      ['body', shortenText(textAt(letter, 'text') ?? textAt(letter, 'body'))],
      ['body bytes', numberAt(letter, 'bodyBytes')?.toString()],
      ['properties', json('properties')],
      ['headers', json('headers')],
      ['x-death', json('xDeath')],
    ],
    paint,
  );
  return (
    fields + renderStack(error) + renderTail(letter, context) + renderAttempts(viewsAt(letter, 'attempts'), context)
  );
}

/** The last lines of the attempt that it died of, and where the rest is. */
function renderTail(letter: View, { paint }: CommandContext): string {
  const logs = viewAt(letter, 'logs');
  const taskId = textAt(letter, 'taskId');
  if (logs === undefined || taskId === undefined) return '';
  const attempt = numberAt(logs, 'attempt') ?? 0;
  const before = numberAt(logs, 'before') ?? 0;
  const all = `warren task logs ${escapeText(taskId)} --attempt ${attempt}`;
  const more = before === 0 ? '' : `, ${before} lines before them: ${all}`;
  return `\nlast lines of attempt ${attempt}${more}\n${renderLogs(logs, paint).text}`;
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

/** The replays that had it, with what became of it there. */
function renderLetterReplays(items: readonly View[]): string | undefined {
  const shown = items.map((item) => {
    const why = textAt(item, 'why') ?? textAt(item, 'code');
    return `${textAt(item, 'replayId') ?? ''} ${textAt(item, 'state') ?? ''}${why === undefined ? '' : ` (${why})`}`;
  });
  return shown.length === 0 ? undefined : shown.join(', ');
}

function tagsOf(letter: View): string | undefined {
  const tags = textsAt(letter, 'tags') ?? [];
  return tags.length === 0 ? undefined : tags.join(', ');
}

/** A task that died more than once says so. */
function renderDeaths(letters: readonly View[]): string | undefined {
  return letters.length > 1 ? `${letters.length} of this task` : undefined;
}
