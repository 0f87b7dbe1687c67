/** Values of options. */
import { expect, test } from '@jest/globals';
import {
  instantOrDuration,
  integerIn,
  oneOf,
  parseDestination,
  parseDuration,
  parseInstant,
} from '../../../cli/parse.ts';

test.each([
  ['0', 0],
  ['250ms', 250],
  ['10s', 10_000],
  ['1.5m', 90_000],
  ['2h', 7_200_000],
  ['1d', 86_400_000],
  ['1h30m', 5_400_000],
])('the duration %s is %d ms', (text, ms) => {
  expect(parseDuration(text)).toBe(ms);
});

test.each(['10', '-1s', '', 's', '1 s', '1w', '1e3s', '10s x', '1e15', '99999999999d', 'NaNs'])(
  '%j is no duration',
  (text) => {
    expect(() => parseDuration(text)).toThrow(/duration|longer/);
  },
);

test('an instant needs a zone', () => {
  expect(parseInstant('2030-01-31T18:00:00+02:00')).toBe('2030-01-31T16:00:00.000Z');
  expect(parseInstant('2030-01-31 18:00Z')).toBe('2030-01-31T18:00:00.000Z');
  for (const text of ['2030-01-31T18:00:00', 'tomorrow', '18:00Z', '2030-13-01T00:00Z', '1767225600']) {
    expect(() => parseInstant(text)).toThrow('ISO 8601');
  }
});

test('a duration in the place of an instant is counted from now', () => {
  const now = (): Date => new Date('2026-05-01T10:00:00Z');
  expect(instantOrDuration(now, 'ahead')('2h')).toBe('2026-05-01T12:00:00.000Z');
  expect(instantOrDuration(now, 'past')('2h')).toBe('2026-05-01T08:00:00.000Z');
  expect(instantOrDuration(now, 'past')('2026-01-01T00:00:00Z')).toBe('2026-01-01T00:00:00.000Z');
});

test.each(['10', '-1', '1.5', '5 ', '0x5', '', '1e0', '١'])('%j is no priority', (text) => {
  expect(() => integerIn(0, 9)(text)).toThrow('integer from 0 to 9');
});

test('words of a closed set are collected, also from one option with commas', () => {
  const parse = oneOf(['a', 'b', 'c']);
  expect(parse('c', parse('a,b', undefined))).toEqual(['a', 'b', 'c']);
  expect(() => parse('a,x', undefined)).toThrow('a, b, c');
});

test('a destination is an exchange and a routing key', () => {
  expect(parseDestination('orders/created/eu')).toEqual({ exchange: 'orders', routingKey: 'created/eu' });
  expect(parseDestination('/a-queue')).toEqual({ exchange: '', routingKey: 'a-queue' });
  expect(() => parseDestination('orders')).toThrow('exchange/routing-key');
});
