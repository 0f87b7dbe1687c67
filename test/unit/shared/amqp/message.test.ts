import { describe, expect, test } from '@jest/globals';
import fc from 'fast-check';
import {
  encodeInvitation,
  parseInstant,
  parseInvitation,
  parseSubmissionHeaders,
} from '../../../../shared/amqp/message.ts';
import { isStorableText } from '../../../../shared/text/storable.ts';

const TASK_ID = '01930000-0000-7000-8000-000000000001';

describe('an invitation', () => {
  test('is read as it was written, whatever its type is called', () => {
    const type = fc.string({ minLength: 1, maxLength: 200, unit: 'grapheme' }).filter((text) => text.length <= 200);
    fc.assert(
      fc.property(fc.uuid(), type, fc.integer({ min: 1, max: 2_147_483_647 }), (taskId, name, generation) => {
        const invitation = { taskId, type: name, generation };
        const body = encodeInvitation(invitation);
        expect(JSON.parse(body.toString())).toEqual(invitation);
        expect(body.length > 2_048 ? invitation : parseInvitation(body)).toEqual(invitation);
      }),
    );
  });

  const good = { taskId: TASK_ID, type: 'a.b', generation: 1 };
  test.each<[string, unknown]>([
    ['null', null],
    ['a number', 42],
    ['a text', 'x'],
    ['a list', [good]],
    ['an empty object', {}],
    ['a missing member', { taskId: TASK_ID, type: 'a' }],
    ['one member too many', { ...good, extra: 1 }],
    ['an id that is no UUID', { ...good, taskId: 'x' }],
    ['an id of upper case', { ...good, taskId: TASK_ID.replace('0193', '01AB') }],
    ['an id that is a list', { ...good, taskId: [TASK_ID] }],
    ['an empty type', { ...good, type: '' }],
    ['a type of 201 characters', { ...good, type: 'x'.repeat(201) }],
    ['generation 0', { ...good, generation: 0 }],
    ['generation 2^31', { ...good, generation: 2_147_483_648 }],
    ['generation 1.5', { ...good, generation: 1.5 }],
    ['generation "1"', { ...good, generation: '1' }],
  ])('is not read from %s', (_name, value) => {
    expect(parseInvitation(Buffer.from(JSON.stringify(value)))).toBeUndefined();
  });

  test.each(['', ' ', '{', '{}{}', '\ufeff{}', '\u0000', 'x'.repeat(3_000)])(
    'is not read from the bytes %j',
    (text) => {
      expect(parseInvitation(Buffer.from(text))).toBeUndefined();
    },
  );

  test('is never read with a throw', () => {
    fc.assert(
      fc.property(fc.uint8Array({ maxLength: 200 }), (bytes) => {
        expect(parseInvitation(Buffer.from(bytes))).toBeUndefined();
      }),
    );
  });
});

describe('the headers of a submission', () => {
  test('are all read', () => {
    const read = parseSubmissionHeaders({
      'warren-queue': 'high',
      'warren-delay-ms': 1_500,
      'warren-deadline': { '!': 'timestamp', value: 1_700_000_000 },
      'warren-max-attempts': 3,
      'warren-tags': 'a, b,a',
      'warren-business-key': 'order 7',
      'x-trace': 'passes',
      other: null,
    });
    expect(read).toEqual({
      ok: true,
      values: {
        queue: 'high',
        delayMs: 1_500,
        deadline: new Date('2023-11-14T22:13:20.000Z'),
        maxAttempts: 3,
        tags: ['a', 'b'],
        businessKey: 'order 7',
      },
    });
    expect(
      parseSubmissionHeaders({ 'warren-run-at': '2030-01-01T00:00:00+02:00', 'warren-tags': ['x'] }),
    ).toMatchObject({
      values: { runAt: new Date('2029-12-31T22:00:00.000Z'), tags: ['x'] },
    });
    expect(parseSubmissionHeaders({})).toEqual({ ok: true, values: {} });
  });

  test.each<[string, unknown, string]>([
    ['warren-quee', 'high', 'header-unknown'],
    ['Warren-Queue', 'high', 'header-unknown'],
    ['warren-', 1, 'header-unknown'],
    ['warren-__proto__', 1, 'header-unknown'],
    ['warren-queue', 'a b', 'field-invalid'],
    ['warren-queue', 7, 'field-invalid'],
    ['warren-queue', '', 'field-invalid'],
    ['warren-delay-ms', -1, 'field-invalid'],
    ['warren-delay-ms', 1e15, 'field-invalid'],
    ['warren-delay-ms', 'abc', 'field-invalid'],
    ['warren-delay-ms', '5', 'field-invalid'],
    ['warren-delay-ms', 1.5, 'field-invalid'],
    ['warren-delay-ms', null, 'field-invalid'],
    ['warren-run-at', 'tomorrow', 'field-invalid'],
    ['warren-run-at', '2030-02-30T00:00:00Z', 'field-invalid'],
    ['warren-run-at', '2030-01-01T00:00:00', 'field-invalid'],
    ['warren-deadline', { '!': 'timestamp', value: 2 ** 60 }, 'field-invalid'],
    ['warren-deadline', 1_700_000_000, 'field-invalid'],
    ['warren-max-attempts', 0, 'field-invalid'],
    ['warren-max-attempts', 101, 'field-invalid'],
    ['warren-tags', { a: 1 }, 'field-invalid'],
    ['warren-tags', ['a', 1], 'field-invalid'],
    ['warren-tags', 'a,,b', 'field-invalid'],
    ['warren-tags', Array.from({ length: 21 }, (_, index) => `t${index}`), 'field-invalid'],
    ['warren-tags', ['a\u0000'], 'text-invalid'],
    ['warren-business-key', 'a\u0000b', 'text-invalid'],
    ['warren-business-key', 'x'.repeat(201), 'field-invalid'],
    ['warren-business-key', '😀'.repeat(201), 'field-invalid'],
    ['warren-unique-key', '', 'field-invalid'],
    ['warren-unique-key', 'a\u0000b', 'text-invalid'],
    ['warren-unique-while', 'running', 'field-invalid'],
    ['warren-unique-within-ms', '5', 'field-invalid'],
    ['warren-unique-within-ms', 0, 'field-invalid'],
    ['warren-on-conflict', 'constructor', 'field-invalid'],
  ])('are refused with %s = %j: %s', (name, value, code) => {
    expect(parseSubmissionHeaders({ [name]: value })).toMatchObject({ ok: false, fault: { field: name, code } });
  });

  test('are refused with a delay and an instant at once', () => {
    const headers = { 'warren-delay-ms': 1, 'warren-run-at': '2030-01-01T00:00:00Z' };
    expect(parseSubmissionHeaders(headers)).toMatchObject({ ok: false, fault: { field: 'warren-run-at' } });
  });

  test('of uniqueness need a key, and one way to hold it', () => {
    expect(parseSubmissionHeaders({ 'warren-unique-key': 'a', 'warren-unique-within-ms': 5 })).toEqual({
      ok: true,
      values: { uniqueKey: 'a', uniqueWithinMs: 5 },
    });
    const both = { 'warren-unique-key': 'a', 'warren-unique-while': 'waiting', 'warren-unique-within-ms': 5 };
    expect(parseSubmissionHeaders(both)).toMatchObject({ ok: false, fault: { field: 'warren-unique-within-ms' } });
    for (const alone of [{ 'warren-unique-while': 'waiting' }, { 'warren-on-conflict': 'reject' }]) {
      expect(parseSubmissionHeaders(alone)).toMatchObject({ ok: false, fault: { field: 'warren-unique-key' } });
    }
  });

  test('are refused beyond 16 KiB, foreign ones included, and however deep', () => {
    expect(parseSubmissionHeaders({ a: 'x'.repeat(16_384) })).toMatchObject({ fault: { code: 'headers-too-large' } });
    let deep: unknown = 1;
    for (let level = 0; level < 3_000; level += 1) deep = { a: deep };
    expect(parseSubmissionHeaders({ deep })).toMatchObject({ fault: { code: 'headers-too-large' } });
  });

  test('cannot be smuggled in through a prototype', () => {
    const headers = Object.create({ 'warren-queue': 'high' }) as Record<string, unknown>;
    expect(parseSubmissionHeaders(headers)).toEqual({ ok: true, values: {} });
  });
});

test.each<[unknown, string | undefined]>([
  ['2024-02-29T12:00:00Z', '2024-02-29T12:00:00.000Z'],
  ['2023-02-29T12:00:00Z', undefined],
  ['9999-12-31T23:59:59.999Z', '9999-12-31T23:59:59.999Z'],
  ['1969-12-31T23:59:59Z', undefined],
  ['2024-01-01', undefined],
  ['2024-13-01T00:00:00Z', undefined],
  [{ '!': 'timestamp', value: 0 }, '1970-01-01T00:00:00.000Z'],
  [{ '!': 'decimal', value: 0 }, undefined],
  [null, undefined],
])('the instant %j is read as %s', (value, iso) => {
  expect(parseInstant(value)?.toISOString()).toBe(iso);
});

test.each([
  ['plain', true],
  ['😀', true],
  ['a\u0000', false],
  ['\ud83d', false],
  ['\\u0000', true],
])('the text %j can be stored: %s', (text, storable) => {
  expect(isStorableText(text)).toBe(storable);
});
