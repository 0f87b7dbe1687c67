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

test('where nobody reads, lines wait within bounds, errors the longest, and what was dropped is told once they are read', async () => {
  const lines: string[] = [];
  let go: (() => void) | undefined;
  const stream = new Writable({
    decodeStrings: false,
    write: (chunk, _encoding, done) => {
      lines.push(String(chunk));
      if (go === undefined) go = done;
      else done();
    },
  });
  const log = createLogger({ level: 'info', base: { service: 'test' }, stream });
  const text = 'x'.repeat(8_000);
  for (let n = 0; n < 2_000; n += 1) log.child({ n }).info('line', { text });
  expect(stream.writableLength).toBeLessThan(2_200_000);
  for (let n = 0; n < 2_000; n += 1) log.error('failure', { text });
  expect(stream.writableLength).toBeLessThan(4_300_000);
  const drained = new Promise((resolve) => stream.once('drain', resolve));
  go?.();
  await drained;
  log.info('afterwards');

  const parsed = lines.map((line) => JSON.parse(line) as { readonly message: string; readonly count?: number });
  const written = parsed.filter(({ message }) => message === 'line' || message === 'failure').length;
  const told = parsed.slice(written);
  expect(told).toMatchObject([
    { level: 'warn', message: 'log lines dropped', service: 'test', count: 4_000 - written },
    { message: 'afterwards' },
  ]);
});
