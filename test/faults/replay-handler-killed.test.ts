/** Handlers that die while they take replays forward: each letter still runs once, and the replay ends with a result for each. */
import { expect, test } from '@jest/globals';
import { call } from '../../scripts/call.ts';
import { eventually } from '../support/eventually.ts';
import { openFleet } from '../support/fleet.ts';
import type { Fleet } from '../support/fleet.ts';

const TASKS = 150;
const doomed = { input: { failures: 1 }, maxAttempts: 1 };

interface Shown {
  readonly state: string;
  readonly sent: number;
  readonly counts: Record<string, number>;
  readonly [member: string]: unknown;
}

test('invariant 5: replays go on where killed handlers left them, and each letter runs exactly once more', async () => {
  await using fleet = await openFleet({ deadLetterHandlers: 2, queues: 'default:20' });
  await fleet.submit(...Array.from({ length: TASKS }, () => doomed));
  await fleet.ended();
  const ids = (await fleet.deadLetters()).map(({ id }) => id);
  // One in growing waves and one at a rate, over the same letters.
  const waves = await create(fleet, 0, { ids, reason: 'waves' });
  const rated = await create(fleet, 1, { ids: ids.toReversed(), reason: 'rate', waves: 'none', rate: 60 });

  for (const [index, least] of [20, 70].entries()) {
    await eventually(async () => expect(await sent(fleet)).toBeGreaterThan(least), { withinMs: 30_000 });
    await fleet.deadLetterHandler(index).kill();
    await fleet.start('dead-letter-handler').ready();
  }

  for (const id of [waves, rated]) {
    await eventually(async () => expect(await show(fleet, id)).toMatchObject({ state: 'finished' }), {
      withinMs: 60_000,
    });
  }
  await eventually(async () => expect(await fleet.books()).toMatchObject({ dead: 0, succeeded: TASKS, outbox: 0 }));
  expect((await fleet.tasks()).map(({ attempt }) => attempt)).toEqual(Array(TASKS).fill(2));
  expect(fleet.entries().filter(({ event }) => event === 'started')).toHaveLength(2 * TASKS);
  expect((await fleet.deadLetters()).map(({ state }) => state)).toEqual(Array(TASKS).fill('replayed'));
  const shown = [await show(fleet, waves), await show(fleet, rated)];
  expect(shown.reduce((sum, { counts }) => sum + (counts['succeeded'] ?? 0), 0)).toBe(TASKS);
  expect(shown.reduce((sum, { counts }) => sum + (counts['skipped'] ?? 0), 0)).toBe(TASKS);
});

async function create(fleet: Fleet, handler: number, body: unknown): Promise<string> {
  const { status, body: made } = await call(fleet.deadLetterHandler(handler).url, 'POST', '/v1/replays', body);
  expect(status).toBe(201);
  return String(made['id']);
}

async function show(fleet: Fleet, id: string): Promise<Shown> {
  const { url } = fleet.all('dead-letter-handler').at(-1) ?? fleet.deadLetterHandler(0);
  return (await call(url, 'GET', `/v1/replays/${id}`)).body as unknown as Shown;
}

/** Letters that run again. */
async function sent(fleet: Fleet): Promise<number> {
  return (await fleet.deadLetters()).filter(({ state }) => state === 'replayed').length;
}
