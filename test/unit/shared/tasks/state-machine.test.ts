import { findStatementFiles } from '../../../support/product-statements.ts';
import { readFile } from 'node:fs/promises';
import { fileURLToPath } from 'node:url';
import { describe, expect, test } from '@jest/globals';
import {
  STATE_MEANINGS,
  TASK_STATES,
  TERMINAL_STATES,
  TRANSITIONS,
  isTerminal,
  isTransition,
} from '../../../../shared/tasks/state-machine.ts';
import type { TaskState } from '../../../../shared/tasks/state-machine.ts';

const source = async (path: string): Promise<string> =>
  await readFile(fileURLToPath(new URL(`../../../../${path}`, import.meta.url)), 'utf8');

/** Every way between states that the design allows, written down once more. */
const WAYS: Readonly<Record<TaskState | 'none', readonly TaskState[]>> = {
  none: ['pending', 'scheduled', 'blocked'],
  pending: ['running', 'scheduled', 'cancelled', 'expired'],
  scheduled: ['pending', 'cancelled', 'expired'],
  blocked: ['pending', 'scheduled', 'cancelled', 'expired'],
  running: ['succeeded', 'retrying', 'dead', 'cancelled', 'scheduled', 'pending'],
  retrying: ['pending', 'cancelled', 'expired'],
  succeeded: [],
  dead: ['pending'],
  cancelled: [],
  expired: [],
};

describe('the states of a task', () => {
  test('have the ways between them that the design names, and no other', () => {
    for (const [name, allowed] of Object.entries(WAYS)) {
      const before = name === 'none' ? undefined : (name as TaskState);
      const found = TASK_STATES.filter((after) => isTransition(before, after));
      expect([name, found.toSorted()]).toEqual([name, allowed.toSorted()]);
    }
  });

  test('invariant 6: each way has a cause that says who and when', () => {
    for (const { cause } of TRANSITIONS)
      expect(cause).toMatch(/^(producer|dispatcher|worker|reaper|dead-letter-handler): ./);
  });

  test('invariant 2: nothing leads out of an end but a replay of what is dead', () => {
    expect(TASK_STATES.filter((state) => isTerminal(state)).toSorted()).toEqual([...TERMINAL_STATES].toSorted());
    const ways = TRANSITIONS.filter(({ from }) => from !== undefined && isTerminal(from));
    expect(ways).toEqual([{ from: 'dead', to: 'pending', cause: 'dead-letter-handler: replay' }]);
  });

  test('can each be reached, and each that is no end can be left', () => {
    const reached = new Set<TaskState | undefined>([undefined]);
    for (let round = 0; round < TASK_STATES.length; round += 1) {
      for (const { from, to } of TRANSITIONS) if (reached.has(from)) reached.add(to);
    }
    expect(TASK_STATES.filter((state) => !reached.has(state))).toEqual([]);
    expect(
      TASK_STATES.filter((state) => !isTerminal(state) && !TRANSITIONS.some(({ from }) => from === state)),
    ).toEqual([]);
  });

  test('have a meaning each, and are those of the database', async () => {
    expect(Object.keys(STATE_MEANINGS).toSorted()).toEqual([...TASK_STATES].toSorted());
    const migration = await source('shared/postgres/migrations/0001_tasks.sql');
    const declared = /create type task_state as enum \(([^)]*)\)/.exec(migration)?.[1] ?? '';
    expect([...declared.matchAll(/'(\w+)'/g)].map(([, state]) => state)).toEqual(TASK_STATES);
  });
});

const statements = (await findStatementFiles()).flatMap((file) => file.statements);

/** Which states each statement writes to `tasks`, and from which. Beside every `update tasks` there is a guard of the state. */
const STATEMENTS: readonly (readonly [name: string, from: readonly TaskState[], to: readonly TaskState[]])[] = [
  ['claim_tasks', ['pending'], ['running']],
  ['claim_restricted', ['pending'], ['running']],
  ['defer_unknown', ['pending'], ['scheduled']],
  ['settle_succeeded', ['running'], ['succeeded']],
  ['hand_back_claims', ['running'], ['pending']],
];

describe('the statements', () => {
  test.each(STATEMENTS)('%s moves tasks along those ways', (name, from, to) => {
    const statement = statements.find((each) => each.name === name)?.text ?? '';
    for (const before of from) {
      expect(statement).toContain(`state = '${before}'`);
      for (const after of to) {
        expect(statement).toMatch(new RegExp(`set state = '${after}'`));
        expect(isTransition(before, after)).toBe(true);
      }
    }
  });
});
