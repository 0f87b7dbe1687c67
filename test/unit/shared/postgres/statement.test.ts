import { describe, expect, test } from '@jest/globals';
import { encodeParameter, execute, run, sql, statement } from '../../../../shared/postgres/statement.ts';
import type { Query, Queryable } from '../../../../shared/postgres/statement.ts';

describe('encodeParameter', () => {
  test.each([
    [undefined, null],
    [null, null],
    ['a"b', 'a"b'],
    [1.5, '1.5'],
    [true, 'true'],
    [9_007_199_254_740_993n, '9007199254740993'],
    [new Date('2026-01-02T03:04:05.006Z'), '2026-01-02T03:04:05.006Z'],
    [new Date('+010000-01-01T00:00:00.000Z'), '10000-01-01T00:00:00.000Z'],
    [{ a: ['"'] }, '{"a":["\\""]}'],
    [[], '{}'],
    [['a', null, undefined, ''], '{"a",NULL,NULL,""}'],
    [['NULL', 'a,b', '{}', 'say "hi"', 'back\\slash'], '{"NULL","a,b","{}","say \\"hi\\"","back\\\\slash"}'],
    [[1, null, 2.5, -0.5, 1e21], '{1,NULL,2.5,-0.5,1e+21}'],
    [[Number.NaN, Number.POSITIVE_INFINITY], '{NaN,Infinity}'],
    [[true, false], '{"true","false"}'],
    [[Buffer.from([0, 255]), null], '{"\\\\x00ff",NULL}'],
    [[new Date(0)], '{"1970-01-01T00:00:00.000Z"}'],
  ])('%p becomes %p', (value, expected) => {
    expect(encodeParameter(value)).toEqual(expected);
  });

  test('a Buffer goes as it is', () => {
    const bytes = Buffer.from([0, 1, 2]);
    expect(encodeParameter(bytes)).toBe(bytes);
  });

  test.each([
    [() => 1, 'a function cannot'],
    [Symbol('x'), 'a symbol cannot'],
    [new Uint8Array(2), 'as a Buffer'],
    [new Date('-000001-01-01T00:00:00Z'), 'before year 0'],
  ])('%p is refused', (value, reason) => {
    expect(() => encodeParameter(value)).toThrow(reason);
  });
});

describe('statement', () => {
  test('a name stands for one text', () => {
    const declared = { name: 'unit_one', text: sql`select 1`, columns: {} } as const;
    statement<[]>()(declared);
    expect(() => statement<[]>()(declared)).not.toThrow();
    expect(() => statement<[]>()({ ...declared, text: sql`select 2` })).toThrow('two statements are named unit_one');
  });

  test('a name that Postgres would cut is refused', () => {
    expect(() => statement<[]>()({ name: 'a'.repeat(64), text: '', columns: {} })).toThrow('not allowed');
  });

  test('run and execute send name, text and encoded parameters', async () => {
    const sent: Query[] = [];
    const db: Queryable = {
      query: async (query) => {
        sent.push(query);
        return await Promise.resolve({ rows: [{ id: 'x' }], affected: 3, command: 'SELECT' });
      },
    };
    const find = statement<[ids: readonly string[]]>()({
      name: 'unit_find',
      text: sql`select id from t where id = any($1::text[])`,
      columns: { id: 'text' },
    });
    expect(await run(db, find, ['x'])).toEqual([{ id: 'x' }]);
    expect(await execute(db, find, ['x'])).toBe(3);
    expect(sent[0]).toEqual({ name: find.name, text: find.text, values: ['{"x"}'] });
  });
});
