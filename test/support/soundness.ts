/** Compares what a fleet says of its tasks with what their handlers wrote down. */
import { expect } from '@jest/globals';
import type { Fleet } from './fleet.ts';
import { expectBalance } from './ledger.ts';

/**
 * Expects that no attempt started twice, that attempt numbers of each task rise without holes, that every attempt that did
 * not succeed is in the history once, that a task that succeeded ended in its last attempt alone, unless an earlier
 * attempt was lost after it was through, and that the ledger balances.
 */
export async function expectSoundHistory(fleet: Fleet): Promise<void> {
  const [tasks, attempts] = [await fleet.tasks(), await fleet.attempts()];
  const entries = fleet.entries();
  const faults: string[] = [];
  for (const { id, state, attempt: last } of tasks) {
    const started = entries.filter(({ taskId, event }) => taskId === id && event === 'started').map(numberOf);
    const history = attempts.filter(({ task_id: taskId }) => taskId === id);
    const recorded = history.map(numberOf);
    if (new Set(started).size !== started.length) faults.push(`${id}: an attempt started twice (${started.join()})`);
    const expected = Array.from({ length: state === 'succeeded' ? last - 1 : last }, (_, index) => index + 1);
    if (recorded.join() !== expected.join()) faults.push(`${id}: ${state} at ${last}, history ${recorded.join()}`);
    const ended = entries.filter(({ taskId, event }) => taskId === id && event === 'ended').map(numberOf);
    if (state === 'succeeded' && !ended.includes(last)) faults.push(`${id}: attempt ${last} succeeded without a run`);
    for (const attempt of ended.filter((each) => each !== last)) {
      const { outcome } = history.find((row) => row.attempt === attempt) ?? {};
      if (outcome !== 'lost' && outcome !== 'interrupted')
        faults.push(`${id}: ran twice, attempt ${attempt} ${outcome}`);
    }
  }
  expect(faults).toEqual([]);
  await expectBalance(fleet.database.database);
}

const numberOf = ({ attempt }: { readonly attempt: number }): number => attempt;
