/** The lines of an attempt that are kept: the first and the last, within bounds, without secrets. */
import { expect, test } from '@jest/globals';
import fc from 'fast-check';
import { LogLines } from '../../../../services/worker/log-lines.ts';
import { silentLogger } from '../../../../shared/observability/silent-log.ts';
import { listLogger } from '../../../support/runner.ts';

interface Line {
  readonly at: string;
  readonly level: string;
  readonly message: string;
  readonly fields?: Record<string, unknown>;
  readonly cut?: { readonly characters: number; readonly start: string };
}

const clock = { now: () => new Date('2026-05-01T10:00:00.000Z') };
const open = (): LogLines => new LogLines(clock);
const linesOf = (lines: LogLines): readonly Line[] => JSON.parse(lines.close()?.json ?? '[]') as Line[];

test('a line keeps its instant, level, message and fields, also those of a child, and goes on to the log', () => {
  const written: Parameters<typeof listLogger>[0] = [];
  const lines = open();
  const log = lines.listen(listLogger(written));
  log.info('one');
  log.child({ part: 'a' }).warn('two', { n: 1 });
  log.debug('three');
  expect(linesOf(lines)).toEqual([
    { at: '2026-05-01T10:00:00.000Z', level: 'info', message: 'one' },
    { at: '2026-05-01T10:00:00.000Z', level: 'warn', message: 'two', fields: { part: 'a', n: 1 } },
    { at: '2026-05-01T10:00:00.000Z', level: 'debug', message: 'three' },
  ]);
  expect(written.map(({ message }) => message)).toEqual(['one', 'two', 'three']);
});

test('debug lines that are not written are not kept, others are whatever the level of the log', () => {
  const lines = open();
  const log = lines.listen(silentLogger);
  log.debug('not kept');
  log.info('kept');
  expect(linesOf(lines).map(({ message }) => message)).toEqual(['kept']);
});

test('what logs nothing keeps nothing, and what is said after the end is not heard', () => {
  const lines = open();
  const log = lines.listen(silentLogger);
  expect(lines.close()).toBeUndefined();
  log.info('late');
  expect(lines.close()).toBeUndefined();
});

test('of 1 000 lines the first 100 and the last 100 are kept, and the rest is counted', () => {
  const lines = open();
  const log = lines.listen(silentLogger);
  for (let n = 1; n <= 1_000; n += 1) log.info('line', { n });
  const kept = lines.close();
  const numbers = (JSON.parse(kept?.json ?? '[]') as Line[]).map(({ fields }) => fields?.['n']);
  const range = (from: number): number[] => Array.from({ length: 100 }, (_, index) => from + index);
  expect(numbers).toEqual([...range(1), ...range(901)]);
  expect(kept?.dropped).toBe(800);
});

test('secrets are left out, as in the log', () => {
  const lines = open();
  const log = lines.listen(silentLogger);
  log.info('to amqp://user:secret@host', {
    password: 'secret',
    url: 'postgres://u:secret@h/d',
    err: new Error('secret://a:secret@b'),
  });
  expect(JSON.stringify(linesOf(lines))).not.toContain('secret@');
  expect(linesOf(lines)[0]?.fields?.['password']).toBe('***');
});

test('a huge line is cut and says so; U+0000 and lone surrogates survive', () => {
  const lines = open();
  const log = lines.listen(silentLogger);
  log.info('x'.repeat(1_000_000));
  log.info('many', { list: Array.from({ length: 100 }, () => 'y'.repeat(8_000)) });
  log.info('a\0b \uD800', { '\0': '\0' });
  const [long, many, odd] = linesOf(lines);
  expect(long?.message).toHaveLength(1_000);
  expect(long?.cut?.characters).toBeGreaterThan(8_000);
  expect(many).toMatchObject({ message: 'many', cut: { start: expect.stringMatching(/^\{"list":\["yyy/) } });
  expect(odd).toMatchObject({ message: 'a\0b \uD800', fields: { '\0': '\0' } });
});

test('whatever is logged, at most 200 lines and 64 KiB are kept, and each line is kept or counted', () => {
  fc.assert(
    fc.property(
      fc.array(fc.tuple(fc.string(), fc.nat(20_000), fc.object({ maxDepth: 2 })), { maxLength: 500 }),
      (said) => {
        const lines = open();
        const log = lines.listen(silentLogger);
        for (const [message, repeat, fields] of said)
          log.warn(message.repeat(1 + (repeat % 50)), { ...fields, pad: 'p'.repeat(repeat % 9_000) });
        const kept = lines.close();
        const parsed = JSON.parse(kept?.json ?? '[]') as Line[];
        expect(parsed.length).toBeLessThanOrEqual(200);
        expect(Buffer.byteLength(kept?.json ?? '')).toBeLessThanOrEqual(65_537);
        expect(parsed.length + (kept?.dropped ?? 0)).toBe(said.length);
      },
    ),
    { numRuns: 30 },
  );
});
