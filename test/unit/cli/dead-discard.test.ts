/** `warren dead discard`: asks before it closes many, and never where nobody can be asked. */
import { expect, test } from '@jest/globals';
import { answering, jsonAnswer, sleepingClock, warren } from '../../support/cli-io.ts';

const letter = {
  id: 'd1',
  state: 'open',
  kind: 'task',
  reason: 'timeout',
  type: 'mail',
  diedAt: '2026-05-01T09:00:00.000Z',
};
const preview = jsonAnswer({ dryRun: true, selected: 12, samples: [letter], isPartial: false });
const done = (discarded: number, isPartial = false): (() => Response) =>
  jsonAnswer({ dryRun: false, operation: 'o1', selected: 12, discarded, isPartial });
const MANY = ['dead', 'discard', '--filter', 'type:mail age:>1d', '--reason', 'too late'];

test('many are shown first, and closed where the answer is yes', async () => {
  const { fetch, seen } = answering(preview, done(12));
  const asked: string[] = [];
  const ask = async (question: string): Promise<string> => {
    asked.push(question);
    return await Promise.resolve(' Yes');
  };
  const run = await warren(MANY, { fetch, ask, clock: sleepingClock() });
  expect(run).toMatchObject({ exitCode: 0, stdout: '12 discarded.\n' });
  expect(run.stderr).toMatch(/^12 open dead letters fit, the newest of them:\nID[\s\S]*d1 +open +task +1h ago/);
  expect(asked).toEqual(['Discard them? [y/N] ']);
  expect(seen.map(({ url, body }) => [new URL(url).pathname, JSON.parse(body) as unknown])).toEqual([
    ['/v1/dead-letters/discard', { filter: 'type:mail age:>1d', dryRun: true }],
    ['/v1/dead-letters/discard', { filter: 'type:mail age:>1d', reason: 'too late' }],
  ]);
});

test.each(['', 'n', 'yes please'])('the answer %j changes nothing', async (answer) => {
  const { fetch, seen } = answering(preview);
  const run = await warren(MANY, { fetch, ask: async () => await Promise.resolve(answer) });
  expect(run).toMatchObject({ exitCode: 0, stdout: '' });
  expect(run.stderr).toMatch(/Nothing was done\.\n$/);
  expect(seen).toHaveLength(1);
});

test('where nobody can be asked it is refused, and nothing is sent', async () => {
  const { fetch, seen } = answering(done(12));
  const run = await warren(MANY, { fetch });
  expect({ exitCode: run.exitCode, sent: seen.length }).toEqual({ exitCode: 2, sent: 0 });
  expect(run.stderr).toContain('Add --yes, or --dry-run');
});

test('--yes asks nobody, and goes on until nothing is left', async () => {
  const { fetch, seen } = answering(done(10, true), done(2));
  const run = await warren([...MANY, '--yes', '--json'], { fetch });
  expect(run.exitCode).toBe(0);
  expect(run.json()).toEqual({ discarded: 12 });
  expect(seen).toHaveLength(2);
});

test('a service that closes nothing more is not asked for ever', async () => {
  const { fetch, seen } = answering(done(0, true));
  const run = await warren([...MANY, '--yes'], { fetch });
  expect(run).toMatchObject({ exitCode: 1, stdout: '0 discarded.\n' });
  expect(run.stderr).toContain('narrow the filter');
  expect(seen).toHaveLength(1);
});

test('--dry-run shows how many, and needs no reason', async () => {
  const { fetch, seen } = answering(jsonAnswer({ dryRun: true, selected: 40, samples: [letter], isPartial: true }));
  const run = await warren(['dead', 'discard', '--all', '--dry-run'], { fetch, clock: sleepingClock() });
  expect(run.exitCode).toBe(0);
  expect(run.stdout).toMatch(/^At least 40 open dead letters fit, the newest of them:\n/);
  expect(seen.map(({ body }) => JSON.parse(body) as unknown)).toEqual([{ filter: '', all: true, dryRun: true }]);
});

test.each([
  [['--reason', 'x']],
  [['d1', '--filter', 'type:a', '--reason', 'x']],
  [['d1', '--all', '--reason', 'x']],
  [['--filter', 'type:a', '--yes']],
])('%j is wrong use', async (args) => {
  const { fetch, seen } = answering(done(1));
  expect((await warren(['dead', 'discard', ...args], { fetch })).exitCode).toBe(2);
  expect(seen).toEqual([]);
});

test('one letter by its id is closed without a question', async () => {
  const { fetch, seen } = answering(jsonAnswer({ id: 'd1', state: 'discarded' }));
  expect(await warren(['dead', 'discard', 'd1', '--reason', 'x'], { fetch })).toMatchObject({
    exitCode: 0,
    stdout: 'Discarded.\n',
  });
  expect(new URL(seen[0]?.url ?? '').pathname).toBe('/v1/dead-letters/d1/discard');
});
