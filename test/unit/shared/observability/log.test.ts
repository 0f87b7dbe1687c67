import { expect, test } from '@jest/globals';
import { Writable } from 'node:stream';
import { createLogger } from '../../../../shared/observability/log.ts';

test('no field of an event takes the place of its message, level or time', () => {
  const lines: string[] = [];
  const stream = new Writable({
    write: (chunk, _encoding, done) => {
      lines.push(String(chunk));
      done();
    },
  });
  const log = createLogger({ level: 'info', base: { service: 'test' }, stream });
  log.info('attempt ended', { message: 'from a handler', level: 'error', at: 'never', attempt: 1 });

  const [line = ''] = lines;
  expect(line).toMatch(/^\{"at":"\d{4}-/);
  expect(JSON.parse(line)).toMatchObject({ level: 'info', message: 'attempt ended', service: 'test', attempt: 1 });
});
