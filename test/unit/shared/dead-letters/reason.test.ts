import { expect, test } from '@jest/globals';
import { reasonOfFault } from '../../../../shared/dead-letters/reason.ts';

test.each([
  ['task-type-unknown', 'unknown_type'],
  ['input-invalid', 'invalid_input'],
  ['id-conflict', 'id_conflict'],
  ['body-invalid', 'invalid_message'],
  ['header-unknown', 'invalid_message'],
  ['queue-unknown', 'invalid_message'],
] as const)('what the front door refuses as %s is a letter %s', (code, reason) => {
  expect(reasonOfFault(code)).toBe(reason);
});
