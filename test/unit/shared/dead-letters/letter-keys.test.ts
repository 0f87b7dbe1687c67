import { readFile } from 'node:fs/promises';
import { expect, test } from '@jest/globals';
import { LETTER_KEYS, LETTER_LANGUAGE } from '../../../../shared/dead-letters/letter-keys.ts';
import { parseFilter } from '../../../../shared/filter/filter.ts';

const guide = await readFile(new URL('../../../../docs/guides/dead-letters.md', import.meta.url), 'utf8');
const filters = guide.slice(guide.indexOf('## Filter'), guide.indexOf('## Export'));

test('the guide has a row for each key', () => {
  const rows = filters.slice(filters.indexOf('| key |')).split('\n');
  const told = rows.flatMap((row) => (row.split('|')[1] ?? '').match(/(?<=`)[a-zA-Z]+(?=[`.])/g) ?? []);
  expect(told.toSorted()).toEqual(Object.keys(LETTER_KEYS).toSorted());
});

test('every filter that the guide shows can be read', () => {
  const shown = [...filters.matchAll(/`(-?[a-zA-Z]+(?:\.[\w."]+)?:[^`]+)`/g)].map(([, text = '']) => text);
  const example = /```text\n(.*)\n```/.exec(filters)?.[1] ?? '';
  expect(shown.length).toBeGreaterThan(20);
  for (const text of [example, ...shown]) {
    expect({ text, parsed: parseFilter(text, LETTER_LANGUAGE) }).toMatchObject({ text, parsed: { kind: 'ok' } });
  }
});
