import { expect, test } from '@jest/globals';
import { plainAddress } from '../../../../shared/http/auth.ts';

test.each([
  ['127.0.0.1', '127.0.0.1'],
  ['::ffff:192.0.2.7', '192.0.2.7'],
  ['::FFFF:192.0.2.7', '192.0.2.7'],
  ['::1', '::1'],
  ['2001:db8::ffff:7', '2001:db8::ffff:7'],
])('%s is recorded as %s', (address, recorded) => {
  expect(plainAddress(address)).toBe(recorded);
});
