import { expect, test } from '@jest/globals';
import { Isolation } from '../../../../services/worker/isolation.ts';

/** A gate whose answers are noted by name, in order. */
function open(): {
  gate: Isolation;
  told: string[];
  enter: (name: string) => void;
  alone: (name: string) => void;
  turn: () => Promise<void>;
  clock: { ms: number };
} {
  const clock = { ms: 0 };
  const gate = new Isolation(() => clock.ms);
  const told: string[] = [];
  return {
    gate,
    told,
    clock,
    enter: (name) => void Promise.resolve(gate.enter()).then((entry) => told.push(`${name} ${entry}`)),
    alone: (name) => void gate.alone(name).then((turn) => told.push(`${name} ${turn}`)),
    turn: async () => await new Promise((resolve) => setImmediate(resolve)),
  };
}

test('while no suspect is around entering needs no promise', () => {
  const { gate } = open();
  expect([gate.enter(), gate.enter(), gate.isClosed, gate.longestWaitMs]).toEqual(['in', 'in', false, 0]);
});

test('a suspect waits until the others have left, and whoever comes meanwhile waits until it has', async () => {
  const { gate, told, enter, alone, turn, clock } = open();
  for (const entry of [gate.enter(), gate.enter(), gate.enter()]) expect(entry).toBe('in');
  alone('suspect');
  enter('late');
  gate.leave();
  clock.ms = 70;
  await turn();
  expect([told, gate.isClosed, gate.longestWaitMs]).toEqual([[], true, 70]);
  gate.leave();
  await turn();
  expect([told, gate.isClosed]).toEqual([['suspect alone'], true]);
  gate.leave();
  await turn();
  expect([told, gate.isClosed]).toEqual([['suspect alone', 'late in'], false]);
});

test('a suspect with nothing beside it runs at once, and suspects run one after the other', async () => {
  const { gate, told, alone, turn } = open();
  expect([gate.enter(), gate.enter(), gate.enter()]).toEqual(['in', 'in', 'in']);
  for (const name of ['a', 'b', 'c']) alone(name);
  for (const expected of [['a alone'], ['a alone', 'b alone'], ['a alone', 'b alone', 'c alone']]) {
    await turn();
    expect(told).toEqual(expected);
    gate.leave();
  }
  expect([gate.isClosed, gate.enter()]).toEqual([false, 'in']);
});

test('a suspect that is cut off while it waits lets the others in, and keeps nobody out when it leaves', async () => {
  const { gate, told, enter, alone, turn } = open();
  expect([gate.enter(), gate.enter()]).toEqual(['in', 'in']);
  alone('suspect');
  enter('late');
  expect([gate.abort('other', 'cancel'), gate.abort('suspect', 'cancel'), gate.abort('suspect', 'cancel')]).toEqual([
    false,
    true,
    false,
  ]);
  await turn();
  expect(told).toEqual(['suspect cancel', 'late in']);
  for (let left = 3; left > 0; left -= 1) gate.leave();
  expect(gate.enter()).toBe('in');
  alone('next');
  await turn();
  expect(told.at(-1)).toBe('next alone');
});

test('a suspect cut off while another runs alone opens nothing', async () => {
  const { gate, told, enter, alone, turn } = open();
  expect([gate.enter(), gate.enter()]).toEqual(['in', 'in']);
  alone('first');
  alone('second');
  await turn();
  enter('late');
  gate.abortAll('lease');
  await turn();
  gate.leave();
  await turn();
  expect([told, gate.isClosed]).toEqual([['first alone', 'second lease'], true]);
  gate.leave();
  await turn();
  expect(told.at(-1)).toBe('late in');
});

test('what waits to enter can be sent away; when the worker stops nobody waits any more', async () => {
  const { gate, told, enter, alone, turn } = open();
  expect([gate.enter(), gate.enter(), gate.enter()]).toEqual(['in', 'in', 'in']);
  alone('first');
  enter('early');
  gate.giveBack();
  enter('late');
  gate.stop();
  alone('second');
  await turn();
  expect(told).toEqual(['early given-back', 'late given-back', 'first shutdown', 'second shutdown']);
});
