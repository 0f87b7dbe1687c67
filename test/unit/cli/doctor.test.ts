/** What doctor says without a server. */
import { expect, test } from '@jest/globals';
import { WarrenError } from '../../../shared/errors/warren-error.ts';
import { failedFinding } from '../../../cli/doctor.ts';
import { describeDrift } from '../../../cli/drift.ts';
import { nodeFinding } from '../../../cli/examine.ts';

test.each([
  ['20.19.0', 'ok'],
  ['24.1.0', 'ok'],
  ['20.18.3', 'fail'],
  ['18.20.0', 'fail'],
])('Node %s is %s', (version, status) => {
  expect(nodeFinding(version).status).toBe(status);
});

test('a check that threw says where, why, and what to do', () => {
  const error = new WarrenError('broker-unavailable', {
    server: 'amqp://h:1/',
    reason: 'nothing listens at this address',
  });
  expect(failedFinding('rabbitmq', error)).toMatchObject({
    status: 'fail',
    message: 'amqp://h:1/: nothing listens at this address',
    hint: expect.stringContaining('AMQP_URL') as unknown,
  });
});

test('drift is said in a line', () => {
  expect(describeDrift({ kind: 'queue', name: 'q', problem: 'missing' })).toBe('queue q is missing');
  const differs = { kind: 'queue', name: 'q', problem: 'differs', argument: 'x-max-priority' } as const;
  expect(describeDrift({ ...differs, expected: '10', actual: '5' })).toBe('queue q: x-max-priority is 5, should be 10');
  expect(describeDrift({ ...differs, expected: '10' })).toBe('queue q: x-max-priority is none, should be 10');
});
