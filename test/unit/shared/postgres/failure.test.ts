import { expect, test } from '@jest/globals';
import { WarrenError } from '../../../../shared/errors/warren-error.ts';
import { classifyFailure, isConnectionSpent } from '../../../../shared/postgres/failure.ts';

const withCode = (code: string): Error => Object.assign(new Error('x'), { code });

test.each([
  [withCode('ECONNREFUSED'), 'unavailable'],
  [withCode('ECONNRESET'), 'unavailable'],
  [withCode('57P01'), 'unavailable'],
  [withCode('57P03'), 'unavailable'],
  [withCode('53300'), 'unavailable'],
  [withCode('08006'), 'unavailable'],
  [withCode('25006'), 'unavailable'],
  [withCode('57014'), 'unavailable'],
  [new Error('Connection terminated unexpectedly'), 'unavailable'],
  [new Error('timeout exceeded when trying to connect'), 'unavailable'],
  [new WarrenError('database-unavailable'), 'unavailable'],
  [new WarrenError('database-unavailable', {}, withCode('55P03')), 'lock-timeout'],
  [withCode('40P01'), 'conflict'],
  [withCode('40001'), 'conflict'],
  [withCode('55P03'), 'lock-timeout'],
  [withCode('21000'), 'bad-data'],
  [withCode('22P05'), 'bad-data'],
  [withCode('23505'), 'bad-data'],
  [withCode('42P01'), 'other'],
  [new Error('boom'), 'other'],
  [undefined, 'other'],
])('%p is %s', (thrown, kind) => {
  expect(classifyFailure(thrown)).toBe(kind);
});

test('a connection is spent when it broke or its server became read-only, not when a statement was refused', () => {
  expect(isConnectionSpent(withCode('25006'))).toBe(true);
  expect(isConnectionSpent(withCode('ECONNRESET'))).toBe(true);
  expect(isConnectionSpent(withCode('0A000'))).toBe(true);
  expect(isConnectionSpent(withCode('57014'))).toBe(false);
  expect(isConnectionSpent(withCode('55P03'))).toBe(false);
  expect(isConnectionSpent(withCode('23505'))).toBe(false);
});
