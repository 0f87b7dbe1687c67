/** One way of checking for every body and query: what is refused, where, and in which words. */
import { describe, expect, test } from '@jest/globals';
import { z } from 'zod';
import { checkBySchema, jsonObject } from '../../../../shared/tasks/check-by-schema.ts';
import type { SchemaFault } from '../../../../shared/tasks/check-by-schema.ts';

/** JSON text, since `__proto__` in a literal of TypeScript is something else. */
function check(schema: z.ZodType, json: string): readonly SchemaFault[] | 'ok' {
  const checked = checkBySchema(schema, JSON.parse(json));
  return checked.kind === 'ok' ? 'ok' : checked.faults;
}

const name = z.string().regex(/^[a-z]+$/, 'must be small letters');
const body = z.strictObject({
  count: z.int().min(1).max(9),
  who: z.string().min(1).max(20).optional(),
  rule: z.enum(['stop', 'go']).optional(),
  parts: z.record(name, z.strictObject({ input: jsonObject.optional(), after: z.array(name).optional() })).optional(),
  sizes: z.union([z.literal(['growing', 'none']), z.array(z.int().min(1)).min(1)]).optional(),
  at: z.iso.datetime({ offset: true }).nullable().optional(),
});

describe('nothing that was given is left out in silence', () => {
  test.each([
    ['a member of the body', '{"count":1,"__proto__":{"x":1}}', '__proto__'],
    ['an entry of a record', '{"count":1,"parts":{"__proto__":{}}}', 'parts.__proto__'],
    ['a member of an entry', '{"count":1,"parts":{"a":{"__proto__":1}}}', 'parts.a.__proto__'],
  ])('%s called __proto__ is refused by its name', (_what, json, field) => {
    expect(check(body, json)).toMatchObject([{ field }]);
  });

  test('what an object that is not strict would drop is refused', () => {
    const loose = z.object({ list: z.array(z.object({ a: z.int() })) });
    expect(check(loose, '{"list":[{"a":1},{"a":2,"b":3}]}')).toMatchObject([{ field: 'list[1].b' }]);
  });

  test('a free object may hold any name, and is given back as it is', () => {
    const given: unknown = JSON.parse('{"count":1,"parts":{"a":{"input":{"__proto__":{"x":1},"constructor":2}}}}');
    const checked = checkBySchema(body, given);
    expect(checked.kind).toBe('ok');
    expect(JSON.stringify(checked.kind === 'ok' && checked.value)).toBe(JSON.stringify(given));
  });

  test('defaults are no loss, and neither is what was made of a text', () => {
    const query = z.strictObject({
      limit: z.coerce.number().int().default(5),
      at: z.string().transform((text) => new Date(text)),
    });
    expect(checkBySchema(query, { at: '2030-01-31' })).toMatchObject({ kind: 'ok', value: { limit: 5 } });
  });
});

test.each([
  ['{}', 'count', 'is required'],
  ['{"count":null}', 'count', 'must be an integer from 1 to 9'],
  ['{"count":1e300}', 'count', 'must be an integer from 1 to 9'],
  ['{"count":0}', 'count', 'must be an integer from 1 to 9'],
  ['{"count":1,"odd":2}', 'odd', 'is not known here; allowed are count, who, rule, parts, sizes, at'],
  ['{"count":1,"who":""}', 'who', 'must be a text of 1 to 20 characters'],
  ['{"count":1,"rule":7}', 'rule', 'must be one of stop, go'],
  ['{"count":1,"at":"soon"}', 'at', 'must be an RFC 3339 instant with an offset, such as 2030-01-31T12:00:00Z'],
  ['{"count":1,"parts":[]}', 'parts', 'must be an object'],
  ['{"count":1,"parts":{"A B":{}}}', 'parts["A B"]', 'the name must be small letters'],
  ['{"count":1,"parts":{"a":3}}', 'parts.a', 'must be an object'],
  ['{"count":1,"parts":{"a":{"input":[]}}}', 'parts.a.input', 'must be an object'],
  ['{"count":1,"parts":{"a":{"afte":[]}}}', 'parts.a.afte', 'is not known here; allowed are input, after'],
  ['{"count":1,"parts":{"a":{"after":"b"}}}', 'parts.a.after', 'must be a list'],
  ['{"count":1,"sizes":"some"}', 'sizes', 'must be one of growing, none, or a list of 1 or more entries'],
  ['{"count":1,"sizes":[1,0]}', 'sizes[1]', 'must be an integer of 1 or more'],
  ['{"count":1,"sizes":[]}', 'sizes', 'must be a list of 1 or more entries'],
  ['[]', 'body', 'must be an object'],
])('%s is refused at %s: %s', (json, field, reason) => {
  expect(check(body, json)).toEqual([{ field, reason }]);
});

test('a misspelled name comes before what is missing because of it', () => {
  const fields = check(body, '{"cuont":1,"rule":7}');
  expect(fields).toMatchObject([{ field: 'cuont' }, { field: 'count' }, { field: 'rule' }]);
});
