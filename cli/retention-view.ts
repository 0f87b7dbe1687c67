/** Shows retention to people. */
import type { CommandContext } from './context.ts';
import { escapeText } from './escape.ts';
import { renderAge, renderDuration, renderTable } from './render.ts';
import { numberAt, textAt, textsAt, viewAt, viewsAt } from './view.ts';
import type { View } from './view.ts';

/** Rules, partitions, tables, and what comes next. */
export function renderRetention(view: View, { io, paint }: Pick<CommandContext, 'io' | 'paint'>): string {
  const columns = io.stdout.columns;
  const now = io.clock.now();
  const rules = renderTable(
    ['STATE', 'KEPT', 'TYPE'],
    viewsAt(view, 'rules').map((rule) => [
      textAt(rule, 'state') ?? '',
      renderDuration(numberAt(rule, 'keptMs') ?? 0),
      textAt(rule, 'type') ?? 'all others',
    ]),
    { paint, columns },
  );
  const partitions = renderTable(
    ['STATE', 'FROM', 'TO', 'ROWS', 'SIZE', 'PARTITION'],
    viewsAt(view, 'partitions').map((each) => {
      const state = textAt(each, 'state') ?? '';
      return [
        { text: state, paint: state === 'held' || state === 'due' ? 'yellow' : undefined },
        minuteOf(textAt(each, 'from')),
        minuteOf(textAt(each, 'to')),
        String(numberAt(each, 'rows') ?? 0),
        renderBytes(numberAt(each, 'bytes') ?? 0),
        textAt(each, 'name') ?? '',
      ];
    }),
    { paint, columns },
  );
  const tables = renderTable(
    ['TABLE', 'ROWS', 'SIZE', 'OLDEST', 'KEPT'],
    viewsAt(view, 'tables').map((each) => {
      const oldest = textAt(each, 'oldestAt');
      const keptMs = numberAt(each, 'keptMs');
      return [
        textAt(each, 'table') ?? '',
        String(numberAt(each, 'rows') ?? 0),
        renderBytes(numberAt(each, 'bytes') ?? 0),
        oldest === undefined ? '' : renderAge(oldest, now),
        `${keptMs === undefined ? '' : `${renderDuration(keptMs)} `}${textAt(each, 'kept') ?? ''}`,
      ];
    }),
    { paint, columns },
  );
  return [rules, partitions, tables, renderNext(view, now)].join('\n');
}

function renderNext(view: View, now: Date): string {
  const oldest = textAt(view, 'oldestTaskAt');
  const behindMs = numberAt(view, 'behindMs') ?? 0;
  const underWay = viewAt(view, 'underWay');
  const next = viewAt(view, 'next') ?? {};
  const lines = [
    oldest === undefined ? 'There is no task.' : `The oldest task was accepted ${renderAge(oldest, now)}.`,
    ...(behindMs === 0 ? [] : [`Behind by ${renderDuration(behindMs)}.`]),
    ...(underWay === undefined
      ? []
      : [
          `Under way: ${(textsAt(underWay, 'sources') ?? []).join(', ')}; so far ${numberAt(underWay, 'retired')} are over, ` +
            `${numberAt(underWay, 'kept')} stay.`,
        ]),
    `The next round makes ${namesOf(viewsAt(next, 'make').map((each) => textAt(each, 'name') ?? ''))}, ` +
      `retires ${namesOf(textsAt(next, 'retire') ?? [])}, drops ${namesOf(textsAt(next, 'drop') ?? [])}.`,
  ];
  return `${lines.map((line) => escapeText(line)).join('\n')}\n`;
}

function namesOf(names: readonly string[]): string {
  return names.length === 0 ? 'nothing' : names.join(', ');
}

/** `2030-01-31 18:00` of an instant. */
function minuteOf(iso: string | undefined): string {
  return iso === undefined ? '' : iso.slice(0, 16).replace('T', ' ');
}

function renderBytes(bytes: number): string {
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];
  let at = 0;
  let left = bytes;
  while (left >= 1_024 && at < units.length - 1) {
    left /= 1_024;
    at += 1;
  }
  return `${left < 10 && at > 0 ? left.toFixed(1) : Math.round(left)} ${units[at]}`;
}
