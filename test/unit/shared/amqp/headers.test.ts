import { describe, expect, test } from '@jest/globals';
import fc from 'fast-check';
import {
  findHeaderFault,
  headersBytes,
  headersFromStored,
  headersToStored,
  withoutBrokerHeaders,
} from '../../../../shared/amqp/headers.ts';
import type { Headers, StoredHeaders } from '../../../../shared/amqp/headers.ts';

const text = fc.oneof(
  fc.string({ unit: 'grapheme' }),
  fc.constantFrom('', '\u0000', '$', '!', 'v', '\ud800', '__proto__'),
);
// A table with a member named ! comes back wrapped, so that amqplib takes it for no timestamp: see the tests below.
const name = fc
  .oneof(fc.string({ maxLength: 20 }), fc.constantFrom('$', 'v', 'constructor', 'a\u0000b'))
  .filter((text) => text !== '!');
const number = fc.oneof(
  fc.integer(),
  fc.double({ noDefaultInfinity: true }).filter((value) => !Object.is(value, -0)),
);
const special = fc.oneof(
  fc.nat().map((value) => ({ '!': 'timestamp', value })),
  fc.record({ places: fc.nat(255), digits: fc.nat() }).map((value) => ({ '!': 'decimal', value })),
);
const { table } = fc.letrec<{ value: unknown; table: Headers }>((tie) => ({
  value: fc.oneof(
    { depthSize: 'small' },
    text,
    number,
    fc.boolean(),
    fc.constant(null),
    special,
    fc.uint8Array({ maxLength: 10 }).map((bytes) => Buffer.from(bytes)),
    fc.array(tie('value'), { maxLength: 4 }),
    tie('table'),
  ),
  table: fc.dictionary(name, tie('value'), { maxKeys: 5, noNullPrototype: true }),
}));

describe('kept headers', () => {
  test('come back as they were, through JSON that jsonb takes', () => {
    fc.assert(
      fc.property(table, (headers) => {
        const json = JSON.stringify(headersToStored(headers));
        expect(json).not.toMatch(/(?<!\\)(\\\\)*\\u(0000|d[89a-f])/i);
        expect(headersFromStored(JSON.parse(json) as StoredHeaders)).toEqual(headers);
      }),
    );
  });

  test('stay readable where they are plain', () => {
    expect(headersToStored({ a: 'x', b: [1, { c: null }] })).toEqual({ a: 'x', b: [1, { c: null }] });
  });

  test('that nest without end are cut, not followed', () => {
    let deep: unknown = [];
    for (let level = 0; level < 5_000; level += 1) deep = [deep];
    expect(JSON.stringify(headersToStored({ deep }))).toContain('deeper');
  });

  test.each<[string, unknown]>([
    ['an unknown mark', { $: 'z', v: 1 }],
    ['a mark without value', { $: 's' }],
    ['a null', null],
  ])('of foreign make (%s) throw nothing', (_name, stored) => {
    expect(() => headersFromStored(stored as StoredHeaders)).not.toThrow();
  });
});

describe('headers to publish', () => {
  test('leave out what belongs to the broker, and what routes', () => {
    const headers = { 'x-death': [], 'X-Retry': 1, CC: ['a'], BCC: ['b'], cc: 1, mine: 2 };
    expect(withoutBrokerHeaders(headers)).toEqual({ cc: 1, mine: 2 });
  });

  test.each<[unknown, string | undefined]>([
    [1, undefined],
    [Number.NaN, 'NaN'],
    [{ a: [Number.NEGATIVE_INFINITY] }, 'infinite'],
    [() => 1, 'function'],
    [10n, 'bigint'],
    [{ '!': 'timestamp', value: 5 }, undefined],
    [{ '!': 'timestamp', value: -5 }, '!'],
    [{ '!': 'decimal', value: { places: 300, digits: 1 } }, '!'],
    [{ ['x'.repeat(256)]: 1 }, '255 bytes'],
  ])('with %p are at fault: %s', (value, words) => {
    const fault = findHeaderFault({ a: value });
    expect(words === undefined ? fault : fault?.includes(words)).toBe(words === undefined ? undefined : true);
  });

  test('are measured as they are on the wire, or a little above', () => {
    expect(headersBytes({})).toBe(4);
    expect(headersBytes({ a: 'xy' })).toBe(4 + 2 + 7);
    expect(headersBytes({ a: { b: null } })).toBe(4 + 2 + 1 + 4 + 2 + 1);
    expect(headersBytes({ a: undefined })).toBe(4);
  });
});
