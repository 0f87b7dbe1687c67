import { describe, expect, test } from '@jest/globals';
import type { Failure } from '../../../../shared/dead-letters/fingerprint.ts';
import { compileGroupRules } from '../../../../shared/dead-letters/group-rules.ts';

const aFailure = (changes: Partial<Failure> = {}): Failure => ({
  kind: 'task',
  type: 'mail.send',
  reason: 'attempts_exhausted',
  errorType: 'MailError',
  errorCode: 'ECONNREFUSED',
  errorMessage: 'connect ECONNREFUSED 10.0.0.7:25',
  errorStack: null,
  ...changes,
});
const ruled = (filter: string, changes: Partial<Failure> = {}): boolean =>
  compileGroupRules([{ group: 'g', filter }])(aFailure(changes)) === 'g';

describe('a rule', () => {
  test.each([
    ['type:mail.send', true],
    ['type:mail', false],
    ['type:mail.*', true],
    ['type:*.send', true],
    ['type:m*l*d', true],
    ['type:m*x*d', false],
    ['type:mail.send*', true],
    ['type:sms,mail.*', true],
    ['error:econnrefused', true],
    ['econnrefused', true],
    ['error:"connect*"', false],
    ['error:connect*25', true],
    ['error:25*connect', false],
    ['code:ECONNREFUSED reason:attempts_exhausted errorType:MailError kind:task', true],
    ['-type:mail.send', false],
    ['-type:sms', true],
    ['type:mail.* -error:timeout', true],
  ])('%s', (filter, isIt) => {
    expect(ruled(filter)).toBe(isIt);
  });

  test('does not fit what a failure does not have, unless that is what it asks', () => {
    expect(ruled('code:*', { errorCode: null })).toBe(false);
    expect(ruled('-code:*', { errorCode: null })).toBe(true);
  });

  test('never fits what died of delivering an alert: its group must be known by its type', () => {
    expect(ruled('kind:task', { type: 'warren.alert' })).toBe(false);
    expect(ruled('-type:sms', { type: 'warren.alert' })).toBe(false);
  });

  test('an overlap of first and last piece is no match', () => {
    expect(ruled('type:aa*aa', { type: 'aaa' })).toBe(false);
  });
});

test('the first rule that fits counts', () => {
  const ruleOf = compileGroupRules([
    { group: 'mail is down', filter: 'type:mail.* ECONNREFUSED' },
    { group: 'mail', filter: 'type:mail.*' },
  ]);
  expect(ruleOf(aFailure())).toBe('mail is down');
  expect(ruleOf(aFailure({ errorMessage: 'bounced' }))).toBe('mail');
  expect(ruleOf(aFailure({ type: 'sms' }))).toBeUndefined();
});

test('every rule that cannot be read is named, with the place', () => {
  const compile = (): unknown =>
    compileGroupRules([
      { group: 'a', filter: 'colour:red' },
      { group: 'b', filter: 'type:x' },
      { group: 'c', filter: ' ' },
      { group: 'd', filter: 'age:>1h' },
    ]);
  expect(compile).toThrow(
    expect.objectContaining({
      code: 'config-invalid',
      facts: {
        faults: [
          expect.stringMatching(/rule 1, at character 1: .*colour.*kind, reason, type/),
          'deadLetters.groupRules: rule 3 fits everything',
          expect.stringMatching(/rule 4, at character 1: .*age/),
        ],
      },
    }),
  );
});
