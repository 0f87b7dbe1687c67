/** Shows the ledger to people. */
import type { CommandContext } from './context.ts';
import { escapeText } from './escape.ts';
import { renderAge, renderTable } from './render.ts';
import type { Cell } from './render.ts';
import { numberAt, textAt, viewAt, viewsAt } from './view.ts';
import type { View } from './view.ts';

/** What lines are summed up by. */
export type LedgerGrouping = 'hour' | 'type';

const FIGURES = [
  ['ACCEPTED', 'accepted'],
  ['SUCCEEDED', 'succeeded'],
  ['DEAD', 'dead'],
  ['CANCELLED', 'cancelled'],
  ['EXPIRED', 'expired'],
  ['IN PROGRESS', 'inProgress'],
  ['DIFFERENCE', 'difference'],
] as const;
/** Lines with a difference that are explained. */
const SHOWN_DIFFERENCES = 20;

/** A table of the books with their sum, and what the tasks say where they differ. */
export function renderLedger(
  ledger: View,
  by: LedgerGrouping | undefined,
  { io, paint }: Pick<CommandContext, 'io' | 'paint'>,
): string {
  const items = viewsAt(ledger, 'items');
  if (items.length === 0) return 'Nothing was accepted in this time.\n';
  const lines = by === undefined ? items : sumBy(items, by);
  const rows = [
    ...lines.map((line) => ({ line, isTotal: false })),
    { line: viewAt(ledger, 'totals') ?? {}, isTotal: true },
  ];
  const figures = FIGURES.map(([heading, name]) => {
    const texts = rows.map(({ line }) => String(numberAt(line, name) ?? 0));
    const width = Math.max(heading.length, ...texts.map((text) => text.length));
    return { name, heading: heading.padStart(width), texts: texts.map((text) => text.padStart(width)) };
  });
  const table = renderTable(
    [...(by === 'type' ? [] : ['HOUR']), ...figures.map(({ heading }) => heading), ...(by === 'hour' ? [] : ['TYPE'])],
    rows.map(({ line, isTotal }, index) => [
      ...(by === 'type' ? [] : [isTotal ? 'total' : shortHour(textAt(line, 'hour') ?? '')]),
      ...figures.map(({ name, texts }): Cell => {
        const isFault = name === 'difference' && (numberAt(line, name) ?? 0) > 0;
        return { text: texts[index] ?? '', paint: isFault ? 'red' : isTotal ? 'bold' : undefined };
      }),
      ...(by === 'hour' ? [] : [isTotal ? (by === 'type' ? 'total' : '') : (textAt(line, 'type') ?? '')]),
    ]),
    { paint, columns: io.stdout.columns },
  );
  return `${table}\n${renderDifferences(items)}${renderCompared(ledger, io.clock.now())}`;
}

/** Sums of lines that have the same `name`, in the order in which they come. */
function sumBy(items: readonly View[], name: LedgerGrouping): readonly View[] {
  const sums = new Map<string, Record<string, string | number>>();
  for (const item of items) {
    const key = textAt(item, name) ?? '';
    const sum = sums.get(key) ?? { [name]: key };
    for (const [, figure] of FIGURES) sum[figure] = Number(sum[figure] ?? 0) + (numberAt(item, figure) ?? 0);
    sums.set(key, sum);
  }
  const lines = [...sums.values()];
  return name === 'hour' ? lines : lines.toSorted((a, b) => (String(a['type']) < String(b['type']) ? -1 : 1));
}

function renderDifferences(items: readonly View[]): string {
  const differing = items.filter((item) => (numberAt(item, 'difference') ?? 0) > 0);
  return differing
    .slice(0, SHOWN_DIFFERENCES)
    .map((item) => {
      const found = viewAt(item, 'found') ?? {};
      const said = FIGURES.flatMap(([heading, name]) => {
        const [counted, seen] = [numberAt(item, name), numberAt(found, name)];
        return seen === undefined || seen === counted ? [] : [`${heading.toLowerCase()} ${counted} but ${seen} found`];
      });
      return `${escapeText(`${shortHour(textAt(item, 'hour') ?? '')} ${textAt(item, 'type') ?? ''}`)}: ${said.join(', ')}\n`;
    })
    .join('');
}

function renderCompared(ledger: View, now: Date): string {
  const at = textAt(ledger, 'comparedAt');
  return at === undefined
    ? 'Not every line has been compared with the tasks yet.\n'
    : `Every line was compared with the tasks, the first of them ${escapeText(renderAge(at, now))}.\n`;
}

/** `2030-01-31 18:00` of an instant. */
function shortHour(iso: string): string {
  return iso.slice(0, 16).replace('T', ' ');
}
