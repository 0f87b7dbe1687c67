import { expect, test } from '@jest/globals';
import { renderCurl, sampleOf } from '../../../../shared/http/reference-example.ts';
import { renderReferencePage } from '../../../../shared/http/reference-page.ts';

test('nothing of a document becomes markup', () => {
  const evil = '<img src=x onerror="alert(1)">&\'';
  const page = renderReferencePage({
    info: { title: evil },
    paths: {
      [`/v1/${evil}`]: {
        get: {
          summary: evil,
          description: evil,
          parameters: [{ name: evil, in: evil, description: evil, schema: { type: evil, format: evil } }],
          requestBody: {
            content: { [evil]: { schema: { properties: { [evil]: { description: evil, enum: [evil] } } } } },
          },
          responses: { [evil]: { content: { [evil]: { schema: { anyOf: [{ const: evil }] } } } } },
        },
      },
    },
  });
  expect(page).not.toMatch(/<img|onerror="/);
  expect(page).toContain('&lt;img src=x onerror=&quot;alert(1)&quot;&gt;&amp;&#39;');
});

test('members are shown with their types, bounds and whether they must be there, however deep', () => {
  const page = renderReferencePage({
    info: { title: 'Things' },
    paths: {
      '/v1/things': {
        post: {
          requestBody: {
            content: {
              'application/json': {
                schema: {
                  type: 'object',
                  required: ['outer'],
                  properties: {
                    outer: {
                      type: 'object',
                      properties: {
                        count: { type: 'integer', minimum: 0, maximum: 9, description: 'How `many`.' },
                        names: { type: 'array', maxItems: 3, items: { type: 'string', maxLength: 5 } },
                        any: { type: 'integer', minimum: Number.MIN_SAFE_INTEGER, maximum: Number.MAX_SAFE_INTEGER },
                      },
                    },
                  },
                },
              },
            },
          },
          responses: { 202: {}, '4XX': {} },
        },
      },
    },
  });
  const text = page.replaceAll(/<[^>]+>/g, '');
  expect(text).toContain('outer (required) object');
  expect(text).toContain('count integer, 0 to 9 How many.');
  expect(text).toContain('names array of string, at most 5 characters, at most 3 items');
  expect(text).toContain('any integer \n');
  expect(text).toContain('202 Accepted');
  expect(text).toContain('4xx the fault of the request');
});

test('an example is one command of a shell, with what must be given and nothing else', () => {
  const curl = renderCurl('POST', '/v1/things/{id}', {
    parameters: [
      { name: 'id', in: 'path', required: true, schema: { type: 'string', format: 'uuid' } },
      { name: 'since', in: 'query', required: true, schema: { type: 'string', format: 'date-time' } },
      { name: 'limit', in: 'query', schema: { type: 'integer' } },
    ],
    requestBody: {
      content: {
        'application/json': {
          schema: {
            type: 'object',
            required: ['name', 'is_new'],
            properties: { name: { const: "it's" }, is_new: { type: 'boolean' }, note: { type: 'string' } },
          },
        },
      },
    },
  });
  expect(curl).toBe(
    [
      'curl -sS -X POST "$WARREN_URL/v1/things/01890a5d-ac96-774b-bcce-b302099a8057?since=2030-01-31T12%3A00%3A00Z" \\',
      '  -H "authorization: Bearer $WARREN_TOKEN" \\',
      "  -H 'content-type: application/json' \\",
      `  -d '{"name":"it'\\''s","is_new":true}'`,
    ].join('\n'),
  );
});

test('a sample of a schema that holds itself ends', () => {
  const endless: { type: string; required: string[]; properties: Record<string, unknown> } = {
    type: 'object',
    required: ['again'],
    properties: {},
  };
  endless.properties['again'] = endless;
  expect(JSON.stringify(sampleOf(endless as never))).toBe(
    '{"again":{"again":{"again":{"again":{"again":{"again":{}}}}}}}',
  );
});
