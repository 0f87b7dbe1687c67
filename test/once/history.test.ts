/** The history of tasks and the lines of their attempts, as a fleet of real processes leaves them. */
import { expect, test } from '@jest/globals';
import { call } from '../../scripts/call.ts';
import { warren } from '../support/cli-io.ts';
import { eventually } from '../support/eventually.ts';
import { openFleet } from '../support/fleet.ts';
import type { Fleet } from '../support/fleet.ts';

type Json = Readonly<Record<string, unknown>>;

const get = async (fleet: Fleet, path: string): Promise<Json> =>
  (await call(fleet.producer().url, 'GET', path)).body as Json;
const logsOf = async (fleet: Fleet, id: string, attempt: number): Promise<Json> =>
  await get(fleet, `/v1/tasks/${id}/attempts/${attempt}/logs`);
/** Lines are written beside the settle, so a moment after it. */
const linesOf = async (fleet: Fleet, id: string, attempt: number): Promise<readonly Json[]> =>
  await eventually(async () => {
    const lines = (await logsOf(fleet, id, attempt))['lines'] as readonly Json[];
    expect(lines.length).toBeGreaterThan(0);
    return lines;
  });

test('what a task went through is shown from acceptance over deaths and replays to its end, with the lines of its attempts', async () => {
  await using fleet = await openFleet({
    tasks: ['talkative'],
    deadLetterHandlers: 1,
    env: { WARREN_WORKER_THREADS: '2' },
  });
  const [dies = '', thread = '', kept = '', plain = ''] = await fleet.submit(
    { type: 'fault.talk', input: { failures: 3, text: 'about to fail' } },
    { type: 'fault.talk.thread', input: { failures: 1, lines: 1_000 } },
    { type: 'fault.talk.kept', input: {} },
    { type: 'fault.talk', input: {} },
  );
  await fleet.ended();

  // Of an attempt that failed, redacted, on the loop and from a thread; of one that succeeded where its type asks for it.
  expect(await linesOf(fleet, dies, 1)).toMatchObject([
    { level: 'info', message: 'about to fail', fields: { line: 1, password: '***' } },
  ]);
  const said = await linesOf(fleet, thread, 1);
  expect(said[0]).toMatchObject({ fields: { odd: 'a\0b', password: '***' } });
  expect(said.map(({ fields }) => (fields as Json)['line'])).toEqual(
    Array.from({ length: 200 }, (_, index) => (index < 100 ? index + 1 : index + 801)),
  );
  expect(await logsOf(fleet, thread, 1)).toMatchObject({ dropped: 800, outcome: 'failed' });
  expect(await linesOf(fleet, kept, 1)).toMatchObject([{ message: 'line', fields: { odd: 'a\0b' } }]);
  expect(await logsOf(fleet, plain, 1)).toMatchObject({ lines: [], why: 'succeeded', outcome: 'succeeded' });

  // The letter shows the last lines of the attempt that it died of.
  const letterId = String((await get(fleet, `/v1/tasks/${dies}`))['deadLetterId']);
  const handler = fleet.deadLetterHandler().url;
  const letter = (await call(handler, 'GET', `/v1/dead-letters/${letterId}`)).body as Json;
  expect(letter['logs']).toMatchObject({ attempt: 3, before: 0, path: `/v1/tasks/${dies}/attempts/3/logs` });
  expect(letter['logs']).toMatchObject({ lines: [{ message: 'about to fail' }] });

  expect((await call(handler, 'POST', `/v1/dead-letters/${letterId}/replay`, { reason: 'mended' })).status).toBe(200);
  await fleet.ended();
  const history = (await get(fleet, `/v1/tasks/${dies}/history`))['items'] as readonly Json[];
  expect(
    history.map((entry) => [entry['kind'], entry['attempt'] ?? entry['action'] ?? entry['state'], entry['became']]),
  ).toEqual([
    ['accepted', undefined, undefined],
    ['started', 1, undefined],
    ['ended', 1, 'retrying'],
    ['invited', 2, undefined],
    ['started', 2, undefined],
    ['ended', 2, 'retrying'],
    ['invited', 3, undefined],
    ['started', 3, undefined],
    ['ended', 3, 'dead'],
    ['died', 3, undefined],
    ['replayed', undefined, undefined],
    ['started', 4, undefined],
    ['ended', 4, 'succeeded'],
    ['finished', 'succeeded', undefined],
  ]);
  expect(history[3]).toMatchObject({ by: 'dispatcher' });
  expect(history[10]).toMatchObject({ by: 'local', letterId, reason: 'mended', replayId: expect.any(String) });

  // The same on the command line.
  const env = { WARREN_URL: fleet.producer().url, WARREN_DEAD_LETTERS_URL: handler };
  const shown = await warren(['task', 'history', dies], { env });
  expect(shown).toMatchObject({ exitCode: 0, stderr: '' });
  expect(shown.stdout.split('\n').filter((line) => line !== '')).toHaveLength(15);
  const logs = await warren(['task', 'logs', thread, '--attempt', '1'], { env });
  expect(logs.stdout.split('\n').filter((line) => line !== '')).toHaveLength(200);
  expect(logs.stderr).toContain('800 lines between the first and the last were not kept');
  const last = await warren(['task', 'logs', thread], { env });
  expect(last).toMatchObject({ exitCode: 0, stdout: '', stderr: expect.stringContaining('Attempt 2 has no lines.') });
  expect((await warren(['dead', 'show', letterId], { env })).stdout).toContain('last lines of attempt 3');

  // What a killed worker had to say is gone with it, and the answer says so.
  const [lost = ''] = await fleet.submit({ type: 'fault.talk.kept', input: { ms: 2_000 } });
  await eventually(() => expect(fleet.entries(lost)).toHaveLength(1));
  await fleet.worker(0).kill();
  await fleet.start('worker').ready();
  await fleet.ended();
  expect(await logsOf(fleet, lost, 1)).toMatchObject({ lines: [], why: 'lost', outcome: 'lost' });
  expect(await linesOf(fleet, lost, 2)).toHaveLength(1);
  const ended = (await get(fleet, `/v1/tasks/${lost}/history`))['items'] as readonly Json[];
  expect(ended[2]).toMatchObject({ kind: 'ended', attempt: 1, by: 'reaper', outcome: 'lost', became: 'pending' });
}, 540_000);
