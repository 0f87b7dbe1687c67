/** Names and types of files, as handlers say them and as browsers get them. */
import { expect, test } from '@jest/globals';
import fc from 'fast-check';
import { checkDescription, contentDisposition } from '../../../../shared/files/file-reference.ts';

test('a type that is not given is that of bytes', () => {
  expect(checkDescription({ name: 'a' })).toEqual({ name: 'a', contentType: 'application/octet-stream' });
});

test.each([
  ['name', ''],
  ['name', 'x'.repeat(256)],
  ['name', 'a/b'],
  ['name', 'a\\b'],
  ['name', '.'],
  ['name', '..'],
  ['name', 'a\u0000b'],
  ['name', 'a\r\nset-cookie: x'],
  ['name', '\ud800'],
  ['name', 7],
  ['contentType', 'text'],
  ['contentType', 'text/html\r\nset-cookie: x'],
  ['contentType', 'text/plain; a="\u0001"'],
  ['contentType', `text/${'x'.repeat(200)}`],
  ['contentType', ''],
])('%s %j is refused', (field, value) => {
  const given = { name: 'a', contentType: 'a/b', [field]: value } as { name: string; contentType: string };
  expect(() => checkDescription(given)).toThrow(
    expect.objectContaining({ code: 'field-invalid', facts: expect.objectContaining({ field }) }),
  );
});

test.each(['text/csv; charset=utf-8', 'application/vnd.api+json', 'multipart/mixed; boundary="a b"', 'image/svg+xml'])(
  'the type %s is taken',
  (contentType) => {
    expect(checkDescription({ name: 'a', contentType }).contentType).toBe(contentType);
  },
);

test('whatever a file is called, its header is one line of ASCII whose quotes are closed, and says the name', () => {
  fc.assert(
    fc.property(fc.string({ unit: 'grapheme', minLength: 1, maxLength: 50 }), (name) => {
      fc.pre(isTaken(name));
      const header = contentDisposition(name);
      expect(header).toMatch(
        /^attachment; filename="[\x20\x21\x23-\x5b\x5d-\x7e]*"; filename\*=UTF-8''[A-Za-z0-9!._~%-]*$/,
      );
      const [, encoded = ''] = /''(.*)$/.exec(header) ?? [];
      expect(decodeURIComponent(encoded)).toBe(name.replaceAll(/\p{Bidi_Control}/gu, ''));
    }),
  );
});

function isTaken(name: string): boolean {
  try {
    return checkDescription({ name }).name === name;
  } catch {
    return false; // refused, which is another test's
  }
}
