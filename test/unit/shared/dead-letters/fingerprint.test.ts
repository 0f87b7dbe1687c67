import { describe, expect, test } from '@jest/globals';
import fc from 'fast-check';
import { fingerprintOf, generalize, topFrame } from '../../../../shared/dead-letters/fingerprint.ts';
import type { Failure } from '../../../../shared/dead-letters/fingerprint.ts';

const aFailure = (changes: Partial<Failure> = {}): Failure => ({
  kind: 'task',
  type: 'mail.send',
  reason: 'attempts_exhausted',
  errorType: 'Error',
  errorCode: null,
  errorMessage: 'connect ECONNREFUSED 10.0.0.7:25',
  errorStack: null,
  ...changes,
});
const idOf = (changes: Partial<Failure>): string => fingerprintOf(aFailure(changes)).id;

describe('a message without its variable parts', () => {
  test.each([
    ['connect ECONNREFUSED 10.0.0.7:25', 'connect ECONNREFUSED <address>'],
    ['connect ECONNREFUSED ::1:5432', 'connect ECONNREFUSED <address>'],
    ['connect ETIMEDOUT [fe80::1:2:3:4]:443', 'connect ETIMEDOUT <address>'],
    ['order 4711 of user 12 not found', 'order <n> of user <n> not found'],
    ['order-4711 not found', 'order<n> not found'],
    [`no user "somebody else"`, 'no user <text>'],
    [`relation 'orders' does not exist`, 'relation <text> does not exist'],
    [`it doesn't fit and can't be made to`, `it doesn't fit and can't be made to`],
    ["ENOENT: no such file or directory, open '/srv/in/a b.csv'", 'ENOENT: no such file or directory, open <text>'],
    ['cannot read /srv/in/a.csv or C:\\in\\b.csv', 'cannot read <path> or <path>'],
    ['missing: /srv/my files/in/a.csv', 'missing: <path>'],
    ['missing: node_modules/data/in/a.csv', 'missing: <path>'],
    ['application/json is not text/html', 'application/json is not text/html'],
    ['and/or either/or', 'and/or either/or'],
    ['task 0198f3a4-0b52-7e6f-8c1d-4a9e7b3f2c60 gone', 'task <id> gone'],
    ['object 507f1f77bcf86cd799439011 gone', 'object <id> gone'],
    ['session sess_Zk3Lw9Qx7Vb2Nm5Tr8Yp gone', 'session <id> gone'],
    ['at 2026-01-31T10:20:30.123Z and 10:20:30', 'at <time> and <time>'],
    ['GET https://api.example.org/v1/users/7?x=1 answered 503', 'GET <url> answered <n>'],
    ['mail to who.ever+tag@example.org bounced', 'mail to <address> bounced'],
    ['pointer 0xdeadBEEF', 'pointer <id>'],
    ['took 1,234.5 ms', 'took <n> ms'],
    ['two\n  lines\tand more', 'two lines and more'],
    ['decade of facade', 'decade of facade'],
    ['internationalization misunderstandings', 'internationalization misunderstandings'],
    ['文件 12 不存在', '文件 <n> 不存在'],
  ])('%j', (message, general) => {
    expect(generalize(message)).toBe(general);
  });

  test('is made in no time, whatever the text', () => {
    fc.assert(fc.property(fc.string({ maxLength: 3_000, unit: 'binary' }), (text) => generalize(text).length <= 300));
    const worst = [
      'a'.repeat(100_000),
      '1:'.repeat(50_000),
      '/a'.repeat(50_000),
      `"${'\\'.repeat(50_000)}`,
      'a@'.repeat(50_000),
    ];
    const startedMs = performance.now();
    for (const text of worst) generalize(text);
    expect(performance.now() - startedMs).toBeLessThan(2_000);
  });
});

describe('the top frame of own code', () => {
  test.each([
    ['Error: x\n    at send (/app/dist/tasks/mail.js:10:5)', 'send@tasks/mail.js'],
    ['Error: x\n    at async send (file:///app/tasks/mail.ts:10:5)', 'send@tasks/mail.ts'],
    ['Error: x\n    at file:///app/tasks/mail.ts:10:5', '@tasks/mail.ts'],
    ['Error: x\n    at Object.run (/app/tasks/mail.ts:10:5)', 'run@tasks/mail.ts'],
    ['Error: x\n    at new Sender (/app/tasks/mail.ts:10:5)', 'Sender@tasks/mail.ts'],
    ['Error: x\n    at Sender.send [as run] (C:\\app\\tasks\\mail.js:10:5)', 'Sender.send@tasks/mail.js'],
    [
      'Error: x\n    at connect (node:net:1:2)\n    at q (/app/node_modules/pg/lib/a.js:1:2)\n    at fire (file:///warren/dist/services/worker/main.js:160:9)\n    at <anonymous>\n    at f (/app/a.js:1:1)',
      'f@app/a.js',
    ],
    ['Error: x\n    at connect (node:net:1:2)', null],
    ['Error: at home (nobody)', null],
    ['', null],
  ])('%j', (stack, frame) => {
    expect(topFrame(stack)).toBe(frame);
  });
});

describe('a fingerprint', () => {
  test('is the same for what differs only in variable parts', () => {
    expect(idOf({ errorMessage: 'connect ECONNREFUSED 10.0.0.9:2525' })).toBe(idOf({}));
    const stack = (line: number): string => `Error: x\n    at send (/app/tasks/mail.ts:${line}:5)`;
    expect(idOf({ errorStack: stack(1) })).toBe(idOf({ errorStack: stack(99) }));
    expect(idOf({ reason: 'timeout' })).toBe(idOf({}));
  });

  test.each<[string, Partial<Failure>]>([
    ['kind', { kind: 'refused' }],
    ['type', { type: 'mail.read' }],
    ['error type', { errorType: 'TypeError' }],
    ['message', { errorMessage: 'connect ECONNRESET 10.0.0.7:25' }],
    ['frame', { errorStack: 'Error: x\n    at read (/app/tasks/mail.ts:1:5)' }],
  ])('differs by %s', (_what, changes) => {
    expect(idOf(changes)).not.toBe(idOf({}));
  });

  test('without an error goes by the code, else by the reason', () => {
    const bare = { errorType: null, errorMessage: null } as const;
    expect(fingerprintOf(aFailure({ ...bare, errorCode: 'body-invalid' })).errorType).toBe('body-invalid');
    expect(fingerprintOf(aFailure({ ...bare, reason: 'expired' }))).toMatchObject({
      errorType: 'expired',
      message: null,
    });
  });

  test('by a rule is that of the rule, whatever failed', () => {
    const byRule = fingerprintOf(aFailure(), 'mail is down').id;
    expect(fingerprintOf(aFailure({ type: 'other', errorMessage: null }), 'mail is down').id).toBe(byRule);
    expect(fingerprintOf(aFailure(), 'another').id).not.toBe(byRule);
  });

  test('is a UUIDv8', () => {
    expect(idOf({})).toMatch(/^[0-9a-f]{8}-[0-9a-f]{4}-8[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/);
  });
});
