/** Shows failure groups to people. */
import type { CommandContext } from './context.ts';
import { renderAge, renderFields, renderInstant, renderTable, stateCell } from './render.ts';
import { numberAt, textAt, textsAt, viewAt, viewsAt } from './view.ts';
import type { View } from './view.ts';

/** A table of groups. */
export function renderFailureGroups(groups: readonly View[], { io, paint }: CommandContext): string {
  const now = io.clock.now();
  return renderTable(
    ['ID', 'OPEN', 'EVER', 'STATE', 'LAST', '24 HOURS', 'TYPE', 'WHAT'],
    groups.map((group) => [
      textAt(group, 'id') ?? '',
      String(numberAt(group, 'openLetters') ?? ''),
      String(numberAt(group, 'letters') ?? ''),
      stateCell(textAt(group, 'state') ?? ''),
      renderAge(textAt(group, 'lastAt') ?? '', now),
      sparkline(hoursOf(group)),
      textAt(group, 'type') ?? '',
      whatOf(group),
    ]),
    { paint, columns: io.stdout.columns },
  );
}

/** Everything about one group. */
export function renderFailureGroup(group: View, { io, paint }: CommandContext): string {
  const now = io.clock.now();
  const instant = (name: string): string | undefined => {
    const at = textAt(group, name);
    return at === undefined ? undefined : renderInstant(at, now);
  };
  const listOf = (name: string): string | undefined => {
    const texts = textsAt(group, name) ?? [];
    return texts.length === 0 ? undefined : texts.join(', ');
  };
  const fields = renderFields(
    [
      ['failure group', textAt(group, 'id')],
      ['state', stateCell(textAt(group, 'state') ?? 'unknown')],
      ['what', whatOf(group)],
      ['kind', textAt(group, 'kind')],
      ['type', textAt(group, 'type')],
      ['frame', textAt(viewAt(group, 'error') ?? {}, 'frame')],
      ['rule', textAt(group, 'rule')],
      ['open letters', numberAt(group, 'openLetters')?.toString()],
      ['letters ever', numberAt(group, 'letters')?.toString()],
      ['24 hours', sparkline(hoursOf(group))],
      ['first', instant('firstAt')],
      ['last', instant('lastAt')],
      ['reopened', instant('reopenedAt')],
      ['queues', listOf('queues')],
      ['code versions', listOf('codeVersions')],
      ['assignee', textAt(group, 'assignee')],
      ['note', textAt(group, 'note')],
      ['changed', instant('changedAt')],
      ['changed by', textAt(group, 'changedBy')],
      ['version', numberAt(group, 'version')?.toString()],
    ],
    paint,
  );
  const youngest = viewsAt(group, 'youngest');
  if (youngest.length === 0) return fields;
  const table = renderTable(
    ['YOUNGEST', 'DIED', 'REASON', 'ERROR'],
    youngest.map((letter) => [
      textAt(letter, 'id') ?? '',
      renderAge(textAt(letter, 'diedAt') ?? '', now),
      textAt(letter, 'reason') ?? '',
      textAt(letter, 'message') ?? '',
    ]),
    { paint, columns: io.stdout.columns },
  );
  return `${fields}\n${table}`;
}

function whatOf(group: View): string {
  const error = viewAt(group, 'error') ?? {};
  return (
    textAt(group, 'rule') ??
    [textAt(error, 'type'), textAt(error, 'message')].filter((part) => part !== undefined).join(': ')
  );
}

function hoursOf(group: View): readonly number[] {
  const hours = group['lastHours'];
  return Array.isArray(hours) ? hours.filter((each): each is number => typeof each === 'number') : [];
}

const BARS = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/** A bar for each number, the highest for the greatest of them; `·` for none. */
export function sparkline(numbers: readonly number[]): string {
  const most = Math.max(...numbers, 1);
  return numbers.map((each) => (each <= 0 ? '·' : (BARS[Math.ceil((each / most) * BARS.length) - 1] ?? '█'))).join('');
}
