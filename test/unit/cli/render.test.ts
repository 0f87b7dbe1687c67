/** What people see: tables, ages, and hostile data made harmless. */
import { expect, test } from '@jest/globals';
import { escapeJson, escapeLines, escapeText } from '../../../cli/escape.ts';
import { cut, painterFor, renderAge, renderDuration, renderFields, renderTable, widthOf } from '../../../cli/render.ts';

const plain = painterFor({ write: () => undefined, isTTY: false, columns: undefined }, {});
const terminal = { write: () => undefined, isTTY: true, columns: 80 };

test.each([
  ['\u001b[31mred\u001b[0m', String.raw`\u001b[31mred\u001b[0m`],
  ['\u009b2J', String.raw`\u009b2J`],
  ['a\rb\nc\td', String.raw`a\rb\nc\td`],
  ['\u0000\u007f', String.raw`\u0000\u007f`],
  ['\u202egnp.exe', String.raw`\u202egnp.exe`],
  ['a\u200bb\ufeff', String.raw`a\u200bb\ufeff`],
  ['\ud800 alone', String.raw`\ud800 alone`],
  ['tag \u{e0041}', String.raw`tag \udb40\udc41`],
  ['Grüße 日本 😀', 'Grüße 日本 😀'],
])('%j is shown as text that a terminal does not obey', (given, shown) => {
  expect(escapeText(given)).toBe(shown);
});

test('lines stay lines, and nothing else of a stack is obeyed', () => {
  expect(escapeLines('Error: x\u001b[2J\n\tat y\r\n  at z')).toBe('Error: x\\u001b[2J\n  at y\n  at z');
});

test('escaped JSON means the same', () => {
  const value = { 'k\u202e': 'c1 \u009b, del \u007f, line \u2028, tag \u{e0041}' };
  const shown = escapeJson(JSON.stringify(value, undefined, 2));
  expect(JSON.parse(shown)).toEqual(value);
  // oxlint-disable-next-line no-control-regex -- these are what must not be there
  expect(shown).not.toMatch(/[\u007f-\u009f\u2028\u202e]/);
});

test('a table is aligned by what is seen, and escapes every cell', () => {
  const table = renderTable(
    ['ID', 'NAME', 'X'],
    [
      ['1', '日本', 'a'],
      ['22', 'b\u001b[0m', { text: 'c', paint: 'red' }],
    ],
    { paint: plain },
  );
  expect(table).toBe('ID  NAME        X\n1   日本        a\n22  b\\u001b[0m  c\n');
});

test('the last column of a table is cut to the width of the terminal', () => {
  const table = renderTable(['ID', 'ERROR'], [['1', 'x'.repeat(100)]], { paint: plain, columns: 20 });
  expect(table.split('\n')[1]).toBe(`1   ${'x'.repeat(15)}…`);
});

test('fields without a value are left out', () => {
  expect(
    renderFields(
      [
        ['a', '1'],
        ['long name', undefined],
        ['bb', '2\n3'],
      ],
      plain,
    ),
  ).toBe('a   1\nbb  2\\n3\n');
});

test.each([
  [0, '0ms'],
  [999, '999ms'],
  [1_000, '1.0s'],
  [9_999, '9.9s'],
  [12_000, '12s'],
  [60_000, '1m'],
  [185_000, '3m 5s'],
  [7_800_000, '2h 10m'],
  [356_400_000, '4d 3h'],
])('%d ms is %s', (ms, shown) => {
  expect(renderDuration(ms)).toBe(shown);
});

test('an age is told from now, in both directions, and what is no instant stays as it is', () => {
  const now = new Date('2026-05-01T10:00:00Z');
  expect(renderAge('2026-05-01T09:58:00Z', now)).toBe('2m ago');
  expect(renderAge('2026-05-01T12:00:00Z', now)).toBe('in 2h');
  expect(renderAge('2026-05-01T10:00:00.400Z', now)).toBe('now');
  expect(renderAge('soon', now)).toBe('soon');
});

test('colours need a terminal, and yield to NO_COLOR and to a dumb terminal', () => {
  expect(painterFor(terminal, {})('red', 'x')).toBe('\u001b[31mx\u001b[0m');
  expect(painterFor(terminal, { NO_COLOR: '' })('red', 'x')).toBe('\u001b[31mx\u001b[0m');
  expect(painterFor(terminal, { NO_COLOR: '1' })('red', 'x')).toBe('x');
  expect(painterFor(terminal, { TERM: 'dumb' })('red', 'x')).toBe('x');
  expect(plain('red', 'x')).toBe('x');
});

test('wide characters take two columns, combining ones none', () => {
  expect(widthOf('日本')).toBe(4);
  expect(widthOf('e\u0301')).toBe(1);
  expect(cut('日本語', 4)).toBe('日…');
});
