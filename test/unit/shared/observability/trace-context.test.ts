import { expect, test } from '@jest/globals';
import {
  readTrace,
  spanIdOf,
  traceHeaders,
  traceIdOf,
  traceparentOf,
  tracestateOf,
} from '../../../../shared/observability/trace-context.ts';

const TRACE = '0af7651916cd43dd8448eb211c80319c';
const SPAN = 'b7ad6b7169203331';
const VALID = `00-${TRACE}-${SPAN}-01`;

test('a traceparent is kept, and its parts are found', () => {
  expect(readTrace(VALID)).toBe(VALID);
  expect(readTrace(` ${VALID}\t`)).toBe(VALID);
  expect(traceIdOf(VALID)).toBe(TRACE);
  expect(spanIdOf(VALID)).toBe(SPAN);
  expect(traceparentOf(`${VALID} a=1`)).toBe(VALID);
  expect(traceHeaders(VALID)).toEqual({ traceparent: VALID });
  expect(traceHeaders(null)).toEqual({});
});

test.each([
  ['no text', 7],
  ['a buffer', Buffer.from(VALID)],
  ['empty', ''],
  ['short', VALID.slice(0, -1)],
  ['upper case', VALID.toUpperCase()],
  ['version ff', VALID.replace(/^00/, 'ff')],
  ['no trace', `00-${'0'.repeat(32)}-${SPAN}-01`],
  ['no span', `00-${TRACE}-${'0'.repeat(16)}-01`],
  ['more than version 00 has', `${VALID}-what`],
  ['more without a dash', `01${VALID.slice(2)}what`],
  ['two of them', `${VALID}, ${VALID}`],
])('a traceparent that is not valid is ignored: %s', (_what, value) => {
  expect(readTrace(value, 'a=1')).toBeUndefined();
});

test('of a version that is yet to come the known parts are kept', () => {
  expect(readTrace(`cc${VALID.slice(2)}`)).toBe(VALID);
  expect(readTrace(`cc${VALID.slice(2)}-more`)).toBe(VALID);
});

test('a tracestate goes along where it is valid, and is left out where it is not', () => {
  const read = readTrace(VALID, 'congo=t61rcWkgMzE, rojo=00f067aa0ba902b7,,tenant@vendor=x y');
  expect(read).toBe(`${VALID} congo=t61rcWkgMzE,rojo=00f067aa0ba902b7,tenant@vendor=x y`);
  expect(traceHeaders(read)).toEqual({
    traceparent: VALID,
    tracestate: 'congo=t61rcWkgMzE,rojo=00f067aa0ba902b7,tenant@vendor=x y',
  });
  const faulty = ['=1', 'A=1', 'a', 'a=', 'a=b=c', 'a=\u00e9', 'a=1\nb', `a=${'x'.repeat(257)}`];
  for (const state of [...faulty, 7, '', Array.from({ length: 33 }, (_, n) => `k${n}=1`).join(',')]) {
    expect(tracestateOf(readTrace(VALID, state) ?? '')).toBeUndefined();
  }
  const long = Array.from({ length: 9 }, (_, n) => `k${n}=${'x'.repeat(60)}`).join(',');
  expect(readTrace(VALID, long)).toBe(VALID);
});
