import { describe, expect, test } from '@jest/globals';
import { Slots } from '../../../../services/worker/slots.ts';

/** Takes a slot of that priority and notes its name when it is had. */
function queueUp(slots: Slots, started: string[], name: string, priority: number): void {
  void Promise.resolve(slots.take(priority)).then((turn) => started.push(turn === 'slot' ? name : `${name} back`));
}

const turns = async (): Promise<void> => {
  for (let turn = 0; turn < 5; turn += 1) await Promise.resolve();
};

describe('slots', () => {
  test('are had at once while there are free ones', () => {
    const slots = new Slots(2, () => 0);
    expect([slots.take(0), slots.take(0)]).toEqual(['slot', 'slot']);
    expect(slots.take(9)).not.toBe('slot');
    expect([slots.taken, slots.waiting]).toEqual([2, 1]);
  });

  test('go to the highest priority that waits, and in it to the first that came', async () => {
    const slots = new Slots(1, () => 0);
    const started: string[] = [];
    expect(slots.take(4)).toBe('slot');
    for (const [name, priority] of [
      ['low', 0],
      ['usual 1', 4],
      ['usual 2', 4],
      ['high', 9],
      ['odd', 4.7],
      ['huge', 255],
      ['negative', -3],
    ] as const) {
      queueUp(slots, started, name, priority);
    }
    for (let ended = 0; ended < 7; ended += 1) slots.release();
    await turns();
    expect(started).toEqual(['high', 'huge', 'usual 1', 'usual 2', 'odd', 'low', 'negative']);
    expect([slots.taken, slots.waiting]).toEqual([1, 0]);
    slots.release();
    expect(slots.taken).toBe(0);
  });

  test('send away what waits, and keep what runs', async () => {
    const slots = new Slots(1, () => 0);
    const started: string[] = [];
    expect(slots.take(4)).toBe('slot');
    queueUp(slots, started, 'low', 1);
    queueUp(slots, started, 'high', 9);
    slots.giveBack();
    await turns();
    expect(started.toSorted()).toEqual(['high back', 'low back']);
    expect([slots.taken, slots.waiting, slots.longestWaitMs]).toEqual([1, 0, 0]);
    slots.release();
    expect(slots.take(4)).toBe('slot');
  });

  test('know how long the longest has waited', () => {
    let nowMs = 0;
    const slots = new Slots(1, () => nowMs);
    void slots.take(4);
    expect(slots.longestWaitMs).toBe(0);
    nowMs = 100;
    void slots.take(9);
    nowMs = 150;
    void slots.take(0);
    nowMs = 400;
    expect(slots.longestWaitMs).toBe(300);
    slots.release(); // the one that has waited for 300 ms
    expect(slots.longestWaitMs).toBe(250);
  });
});
