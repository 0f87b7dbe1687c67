/** However a step two flows deep ends, the flow around comes to the end that its policy says, and hears of it once. */
import { expect, test } from '@jest/globals';
import { call } from '../../scripts/call.ts';
import { eventually } from '../support/eventually.ts';
import { openFleet } from '../support/fleet.ts';
import type { Fleet } from '../support/fleet.ts';
import { ended, get, nestedOf, start, statesOf, stepOf } from '../support/flows.ts';
import type { Json } from '../support/flows.ts';
import { IS_LONG_RUN } from '../support/long-run.ts';

const type = 'flow.step';
const POLICIES = ['stop', 'continue', 'ignore', 'compensate'] as const;
type Policy = (typeof POLICIES)[number];
type Cause = 'dies' | 'is cancelled' | 'times out' | 'kills its worker';

const CAUSES: Readonly<Record<Cause, (journal: string) => Json>> = {
  dies: () => ({ type, input: { failures: 2 } }),
  'is cancelled': () => ({ type, input: { ms: 120_000 } }),
  'times out': (journal) => ({ type: 'fault.blocker', input: { journal } }),
  'kills its worker': (journal) => ({ type: 'fault.suicide', input: { journal } }),
};

/** A flow with a step that ends badly two flows down. What hears of a failure notes its name, and so does what is undone. */
function flowOf(journal: string, cause: Cause, policy: Policy): Json {
  const told = (where: string): Json => ({ type, input: { journal, name: `${where}: ${cause}, ${policy}` } });
  const leaf = {
    name: 'leaf',
    steps: { bad: CAUSES[cause](journal), later: { type, after: ['bad'] } },
    failureStep: told('leaf'),
  };
  const mid = {
    name: 'mid',
    steps: { deep: { flow: leaf }, joined: { type, after: ['deep'] } },
    failureStep: told('mid'),
  };
  return {
    name: 'outer',
    onFailure: policy === 'ignore' ? 'stop' : policy,
    steps: {
      before: { type, undo: told('undo') },
      settle: { flow: mid, after: ['before'], ...(policy === 'ignore' ? { onFailure: 'ignore' } : {}) },
      last: { type, after: ['settle'] },
    },
    failureStep: told('outer'),
  };
}

const ENDS: Readonly<Record<Policy, { readonly state: string; readonly last: string }>> = {
  stop: { state: 'failed', last: 'cancelled' },
  continue: { state: 'partial', last: 'cancelled' },
  ignore: { state: 'succeeded', last: 'succeeded' },
  compensate: { state: 'failed', last: 'cancelled' },
};

async function expectEnd(fleet: Fleet, id: string, cause: Cause, policy: Policy): Promise<void> {
  const { state, last } = ENDS[policy];
  const flow = await ended(fleet, id, 240_000);
  expect(flow).toMatchObject({ state, steps: { open: 0, failed: policy === 'ignore' ? 0 : 1 }, tasks: { open: 0 } });
  expect(statesOf(flow)).toMatchObject({ before: 'succeeded', settle: 'failed', last });
  const mid = await get(fleet, await nestedOf(fleet, id, 'settle'));
  expect(mid).toMatchObject({ state: 'failed', parent: { id, step: 'settle' } });
  expect(statesOf(mid)).toEqual({ deep: 'failed', joined: 'cancelled', failureStep: 'succeeded' });
  const leaf = await get(fleet, await nestedOf(fleet, id, 'settle', 'deep'));
  const bad = cause === 'is cancelled' ? 'cancelled' : 'dead';
  expect(statesOf(leaf)).toEqual({ bad, later: 'cancelled', failureStep: 'succeeded' });
  // By task: one that was lost with its worker starts again.
  const heard = (where: string): number =>
    new Set(fleet.entries().flatMap(({ note, taskId }) => (note === `${where}: ${cause}, ${policy}` ? [taskId] : [])))
      .size;
  expect(['leaf', 'mid', 'outer', 'undo'].map((where) => heard(where))).toEqual([
    1,
    1,
    policy === 'ignore' ? 0 : 1,
    policy === 'compensate' ? 1 : 0,
  ]);
}

/** Cancels the step two flows deep in each, once it runs. */
async function cancelAll(fleet: Fleet, ids: readonly string[]): Promise<void> {
  for (const id of ids) {
    const { taskId } = await eventually(async () => {
      const bad = await stepOf(fleet, await nestedOf(fleet, id, 'settle', 'deep'), 'bad');
      expect(bad.state).toBe('running');
      return bad;
    });
    const { status } = await call(fleet.producer().url, 'POST', `/v1/tasks/${taskId}/cancel`, {});
    expect(status).toBe(202);
  }
}

test('a step two flows deep that dies, is cancelled or times out ends its flow by each policy, which is told of once', async () => {
  await using fleet = await openFleet({ tasks: ['steps', 'ill-behaved'], workers: 2, deadLetterHandlers: 1 });
  const cases: { readonly id: string; readonly cause: Cause; readonly policy: Policy }[] = [];
  for (const cause of ['is cancelled', 'dies', 'times out'] as const) {
    for (const policy of POLICIES) {
      cases.push({ id: await start(fleet, flowOf(fleet.journal, cause, policy)), cause, policy });
    }
    if (cause === 'is cancelled') {
      await cancelAll(
        fleet,
        cases.map(({ id }) => id),
      );
    }
  }
  for (const { id, cause, policy } of cases) await expectEnd(fleet, id, cause, policy);
  const books = await fleet.ended();
  expect(books['accepted']).toBe(books['succeeded'] + books['dead'] + books['dropped']);
}, 120_000);

/** Each takes five workers, one after another. */
const WITH_KILLS: readonly Policy[] = IS_LONG_RUN ? POLICIES : ['compensate'];

test('a step two flows deep that kills its workers until it is dead ends its flow by its policy, which is told of once', async () => {
  const cause = 'kills its worker';
  await using fleet = await openFleet({ tasks: ['steps', 'ill-behaved'], workers: 2, deadLetterHandlers: 1 });
  const supervised = new AbortController();
  const supervisor = replaceTheDead(fleet, supervised.signal);
  try {
    for (const policy of WITH_KILLS) {
      await expectEnd(fleet, await start(fleet, flowOf(fleet.journal, cause, policy)), cause, policy);
    }
  } finally {
    supervised.abort();
    await supervisor;
  }
  expect((await fleet.deadLetters()).map(({ reason }) => reason)).toEqual(WITH_KILLS.map(() => 'worker_lost'));
}, 480_000);

/** Starts a worker for each that was killed, as whoever supervises them would. */
async function replaceTheDead(fleet: Fleet, signal: AbortSignal): Promise<void> {
  for (let replaced = 0; !signal.aborted;) {
    await eventually(
      () => {
        const dead = fleet.all('worker').filter(({ exitCode }) => exitCode === 'SIGKILL');
        if (!signal.aborted && dead.length <= replaced) throw new Error('all live');
      },
      { withinMs: 120_000 },
    );
    if (signal.aborted) return;
    fleet.start('worker');
    replaced += 1;
  }
}
