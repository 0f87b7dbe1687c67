/** Shows the history of a task, the lines of its attempts and what it did once, to people. */
import type { CommandContext } from './context.ts';
import { escapeLines, escapeText } from './escape.ts';
import { renderAge, renderTable, stateCell } from './render.ts';
import type { Painter } from './render.ts';
import { renderError, shortenText } from './task-view.ts';
import { numberAt, textAt, viewAt, viewsAt } from './view.ts';
import type { View } from './view.ts';

type Shown = Pick<CommandContext, 'io' | 'paint'>;

/** A line an entry. */
export function renderHistory(entries: readonly View[], { io, paint }: Shown): string {
  return renderTable(
    ['AT', 'WHAT', 'BY', 'MORE'],
    entries.map((entry) => [textAt(entry, 'at') ?? '', whatOf(entry), byOf(entry), moreOf(entry)]),
    { paint, columns: io.stdout.columns },
  );
}

function whatOf(entry: View): string {
  const kind = textAt(entry, 'kind') ?? '';
  const attempt = numberAt(entry, 'attempt');
  switch (kind) {
    case 'invited':
    case 'started':
    case 'ended':
      return `attempt ${attempt ?? '?'} ${kind === 'ended' ? (textAt(entry, 'outcome') ?? kind) : kind}`;
    case 'act':
      return textAt(entry, 'action') ?? kind;
    case 'finished':
      return textAt(entry, 'state') ?? kind;
    default:
      return kind;
  }
}

function byOf(entry: View): string {
  const by = textAt(entry, 'by') ?? '';
  const door = textAt(entry, 'door');
  if (door !== undefined) return by === '' ? door : `${by} over ${door}`;
  const worker = textAt(entry, 'worker');
  return by === 'worker' && worker !== undefined ? worker : by;
}

function moreOf(entry: View): string {
  const became = textAt(entry, 'became');
  const until = textAt(entry, 'until');
  const detail = viewAt(entry, 'detail');
  const letter = textAt(entry, 'letterId');
  const replay = textAt(entry, 'replayId');
  const hasLogs = entry['hasLogs'] === true;
  return [
    became === undefined || became === textAt(entry, 'outcome') ? undefined : `became ${became}`,
    until === undefined ? undefined : `waits until ${until}`,
    textAt(entry, 'reason'),
    letter === undefined ? undefined : `dead letter ${letter}`,
    replay === undefined ? undefined : `replay ${replay}`,
    renderError(viewAt(entry, 'error') ?? {}),
    detail === undefined ? undefined : JSON.stringify(detail),
    hasLogs ? 'has logs' : undefined,
  ]
    .filter((part) => part !== undefined)
    .join(', ');
}

/** The lines of an attempt, and a remark on what is not there. */
export function renderLogs(log: View, paint: Painter): { readonly text: string; readonly remark: string | undefined } {
  const lines = viewsAt(log, 'lines');
  const dropped = numberAt(log, 'dropped') ?? 0;
  const attempt = numberAt(log, 'attempt') ?? 0;
  const note = textAt(log, 'note');
  if (lines.length === 0) return { text: '', remark: `Attempt ${attempt} has no lines. ${escapeText(note ?? '')}\n` };
  const text = lines.map((line) => renderLine(line, paint)).join('');
  const remark = dropped === 0 ? undefined : `${dropped} lines between the first and the last were not kept.\n`;
  return { text, remark };
}

const LEVEL_PAINT = new Map([
  ['error', 'red'],
  ['warn', 'yellow'],
] as const);

function renderLine(line: View, paint: Painter): string {
  const level = textAt(line, 'level') ?? '';
  const levelPaint = level === 'error' || level === 'warn' ? LEVEL_PAINT.get(level) : undefined;
  const fields = viewAt(line, 'fields') ?? viewAt(line, 'cut');
  const said = [
    paint('dim', escapeText(textAt(line, 'at') ?? '')),
    paint(levelPaint, escapeText(level)),
    escapeLines(textAt(line, 'message') ?? ''),
    ...(fields === undefined ? [] : [paint('dim', escapeText(JSON.stringify(fields)))]),
  ];
  return `${said.join('  ')}\n`;
}

/** A table of side effects. */
export function renderOnceRuns(items: readonly View[], { io, paint }: Shown): string {
  return renderTable(
    ['KEY', 'STATE', 'ATTEMPT', 'BEGUN', 'RESULT'],
    items.map((item) => [
      textAt(item, 'key') ?? '',
      stateCell(textAt(item, 'state') ?? ''),
      String(numberAt(item, 'attempt') ?? ''),
      renderAge(textAt(item, 'startedAt') ?? '', io.clock.now()),
      item['result'] === undefined ? '' : (shortenText(JSON.stringify(item['result'])) ?? ''),
    ]),
    { paint, columns: io.stdout.columns },
  );
}
