/** Tables, fields, ages and states for people. All data goes through `escapeText`. */
import { escapeText } from './escape.ts';
import type { CliIo, Output } from './io.ts';

/** How something is painted. */
export type Paint = 'red' | 'green' | 'yellow' | 'cyan' | 'dim' | 'bold';

/** Paints text, or leaves it where colours are off. */
export type Painter = (paint: Paint | undefined, text: string) => string;

const CODES: Readonly<Record<Paint, number>> = { red: 31, green: 32, yellow: 33, cyan: 36, dim: 2, bold: 1 };

/** Colours only on a terminal, without NO_COLOR (no-color.org: set and not empty) and where it is not a dumb one. */
export function painterFor(output: Output, env: CliIo['env']): Painter {
  const isOn = output.isTTY && (env['NO_COLOR'] ?? '') === '' && env['TERM'] !== 'dumb';
  return (paint, text) => (isOn && paint !== undefined ? `\u001b[${CODES[paint]}m${text}\u001b[0m` : text);
}

/** One cell: text, escaped when shown, with a paint or none. */
export type Cell = string | { readonly text: string; readonly paint: Paint | undefined };

/**
 * A table with a heading, columns two spaces apart. Where `columns` is given, the last column is cut to the line's end.
 */
export function renderTable(
  heading: readonly string[],
  rows: readonly (readonly Cell[])[],
  { paint, columns }: { readonly paint: Painter; readonly columns?: number | undefined },
): string {
  const shown = [heading.map((text) => ({ text, paint: 'dim' as const })), ...rows].map((row) =>
    row.map((cell) =>
      typeof cell === 'string'
        ? { text: escapeText(cell), paint: undefined }
        : { ...cell, text: escapeText(cell.text) },
    ),
  );
  const widths = heading.map((_, at) => Math.max(...shown.map((row) => widthOf(row[at]?.text ?? ''))));
  const before = widths.slice(0, -1).reduce((sum, width) => sum + width + 2, 0);
  const lastFits = columns === undefined ? undefined : Math.max(columns - before, 10);
  return shown
    .map((row) => {
      const line = row.map((cell, at) => {
        const isLast = at === row.length - 1;
        const text = isLast && lastFits !== undefined ? cut(cell.text, lastFits) : cell.text;
        return paint(cell.paint, text) + (isLast ? '' : ' '.repeat((widths[at] ?? 0) - widthOf(text) + 2));
      });
      return `${line.join('').trimEnd()}\n`;
    })
    .join('');
}

/** Names and values, one pair a line; a value of several lines is indented under the first. Empty ones are left out. */
export function renderFields(
  fields: readonly (readonly [name: string, value: Cell | undefined])[],
  paint: Painter,
): string {
  const given = fields.flatMap(([name, value]) => (value === undefined ? [] : [{ name, value }]));
  const width = Math.max(0, ...given.map(({ name }) => name.length));
  return given
    .map(({ name, value }) => {
      const cell = typeof value === 'string' ? { text: value, paint: undefined } : value;
      return `${paint('dim', name.padEnd(width))}  ${paint(cell.paint, escapeText(cell.text))}\n`;
    })
    .join('');
}

/** A state with its colour. */
export function stateCell(state: string): Cell {
  return { text: state, paint: STATE_PAINT.get(state) };
}

const STATE_PAINT: ReadonlyMap<string, Paint> = new Map<string, Paint>([
  ['running', 'cyan'],
  ['retrying', 'yellow'],
  ['succeeded', 'green'],
  ['replayed', 'green'],
  ['replaying', 'cyan'],
  ['dead', 'red'],
  ['waiting', 'yellow'],
  ['paused', 'yellow'],
  ['stopped', 'red'],
  ['failed', 'red'],
  ['partial', 'yellow'],
  ['blocked', 'dim'],
  ['planned', 'dim'],
  ['finished', 'green'],
  ['skipped', 'dim'],
  ['open', 'red'],
  ['active', 'green'],
  ['cancelled', 'dim'],
  ['expired', 'dim'],
  ['discarded', 'dim'],
]);

/** A duration in milliseconds in its two greatest units: `0.4s`, `12s`, `3m 5s`, `2h 10m`, `4d 3h`. */
export function renderDuration(ms: number): string {
  if (ms < 0) return `-${renderDuration(-ms)}`;
  if (ms < 1_000) return `${Math.round(ms)}ms`;
  if (ms < 10_000) return `${(Math.floor(ms / 100) / 10).toFixed(1)}s`;
  const seconds = Math.floor(ms / 1_000);
  const [great, greatUnit, small, smallUnit] =
    seconds < 60
      ? [seconds, 's', 0, '']
      : seconds < 3_600
        ? [Math.floor(seconds / 60), 'm', seconds % 60, 's']
        : seconds < 86_400
          ? [Math.floor(seconds / 3_600), 'h', Math.floor(seconds / 60) % 60, 'm']
          : [Math.floor(seconds / 86_400), 'd', Math.floor(seconds / 3_600) % 24, 'h'];
  return small === 0 ? `${great}${greatUnit}` : `${great}${greatUnit} ${small}${smallUnit}`;
}

/** An instant as `2026-05-01T10:00:00.000Z (3m 5s ago)`, or `(in 2h)`; what is no instant is shown as it is. */
export function renderInstant(iso: string, now: Date): string {
  const at = Date.parse(iso);
  return Number.isNaN(at) ? iso : `${iso} (${renderAge(iso, now)})`;
}

/** How long ago: `3m 5s ago`, `in 2h`, `now`. */
export function renderAge(iso: string, now: Date): string {
  const ageMs = now.getTime() - Date.parse(iso);
  if (Number.isNaN(ageMs)) return iso;
  if (Math.abs(ageMs) < 1_000) return 'now';
  return ageMs > 0 ? `${renderDuration(ageMs)} ago` : `in ${renderDuration(-ageMs)}`;
}

/** Columns that a text takes: two for East Asian wide characters and emoji, none for combining marks. */
export function widthOf(text: string): number {
  let width = 0;
  for (const character of text) {
    if (/\p{Mn}|\p{Me}|[\ufe00-\ufe0f]/u.test(character)) continue;
    width += WIDE.test(character) ? 2 : 1;
  }
  return width;
}

const WIDE =
  /[\u1100-\u115f\u2e80-\u303e\u3041-\ua4cf\uac00-\ud7a3\uf900-\ufaff\ufe30-\ufe6f\uff00-\uff60\uffe0-\uffe6]|\p{Emoji_Presentation}/u;

/** Cuts a text to `width` columns, with `…` where something is left out. */
export function cut(text: string, width: number): string {
  if (widthOf(text) <= width) return text;
  let result = '';
  let used = 0;
  for (const character of text) {
    used += widthOf(character);
    if (used > width - 1) break;
    result += character;
  }
  return `${result}…`;
}
