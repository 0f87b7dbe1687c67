import { describe, expect, test } from '@jest/globals';
import { Batcher } from '../../../../shared/resilience/batcher.ts';
import { eventually } from '../../../support/eventually.ts';

interface Flush {
  readonly items: readonly number[];
  readonly answer: () => void;
  readonly fail: (thrown: unknown) => void;
}

/** A batcher whose batches are answered by hand: each item by its double. */
function held(options: { readonly maxBatch: number; readonly lanes: number }): {
  readonly batcher: Batcher<number, number>;
  readonly flushes: Flush[];
} {
  const flushes: Flush[] = [];
  const batcher = new Batcher<number, number>(
    async (items) =>
      await new Promise((resolve, reject) => {
        flushes.push({ items, answer: () => resolve(items.map((item) => item * 2)), fail: reject });
      }),
    options,
  );
  return { batcher, flushes };
}

const batches = (flushes: readonly Flush[]): (readonly number[])[] => flushes.map(({ items }) => items);
const turn = async (): Promise<void> => await new Promise((resolve) => setImmediate(resolve));

describe('a batcher', () => {
  test('hands what one turn brings over together, in order, and answers each its own', async () => {
    const { batcher, flushes } = held({ maxBatch: 10, lanes: 1 });
    const answers = Promise.all([1, 2, 3].map(async (item) => await batcher.add(item)));
    await turn();
    expect(batches(flushes)).toEqual([[1, 2, 3]]);
    flushes[0]?.answer();
    expect(await answers).toEqual([2, 4, 6]);
  });

  test('sends a lone item at once, without a timer', async () => {
    const { batcher, flushes } = held({ maxBatch: 10, lanes: 1 });
    const answer = batcher.add(7);
    await turn();
    flushes[0]?.answer();
    expect(await answer).toBe(14);
  });

  test('gathers while a batch is under way, and never more than its bound', async () => {
    const { batcher, flushes } = held({ maxBatch: 2, lanes: 1 });
    const answers = Promise.all([1, 2, 3, 4, 5].map(async (item) => await batcher.add(item)));
    await turn();
    await turn();
    expect(batches(flushes)).toEqual([[1, 2]]);
    expect(batcher.waiting).toBe(3);
    for (let flush = 0; flush < 3; flush += 1) {
      await eventually(() => expect(flushes.length).toBe(flush + 1), { everyMs: 1 });
      flushes[flush]?.answer();
    }
    expect(await answers).toEqual([2, 4, 6, 8, 10]);
    expect(batches(flushes)).toEqual([[1, 2], [3, 4], [5]]);
  });

  test('keeps as many batches under way as it has lanes', async () => {
    const { batcher, flushes } = held({ maxBatch: 1, lanes: 2 });
    const answers = Promise.all([1, 2, 3].map(async (item) => await batcher.add(item)));
    await eventually(() => expect(flushes.length).toBe(2), { everyMs: 1 });
    await turn();
    expect(flushes.length).toBe(2);
    flushes[1]?.answer(); // the second may be done first
    await eventually(() => expect(flushes.length).toBe(3), { everyMs: 1 });
    flushes[2]?.answer();
    flushes[0]?.answer();
    expect(await answers).toEqual([2, 4, 6]);
  });

  test('fails all of a batch that fails, and none of the next', async () => {
    const { batcher, flushes } = held({ maxBatch: 2, lanes: 1 });
    const answers = Promise.allSettled([1, 2, 3].map(async (item) => await batcher.add(item)));
    await turn();
    flushes[0]?.fail(new RangeError('no'));
    await eventually(() => expect(flushes.length).toBe(2), { everyMs: 1 });
    flushes[1]?.answer();
    expect((await answers).map(({ status }) => status)).toEqual(['rejected', 'rejected', 'fulfilled']);
  });

  test('fails a batch that was not answered in full', async () => {
    const batcher = new Batcher<number, number>(async () => await Promise.resolve([1]), { maxBatch: 2, lanes: 1 });
    const answers = await Promise.allSettled([batcher.add(1), batcher.add(2)]);
    expect(answers.map(({ status }) => status)).toEqual(['rejected', 'rejected']);
  });

  test('goes on after a flush that throws at once', async () => {
    let calls = 0;
    const batcher = new Batcher<number, number>(
      (items) => {
        calls += 1;
        if (calls === 1) throw new RangeError('no');
        return Promise.resolve(items);
      },
      { maxBatch: 1, lanes: 1 },
    );
    const answers = await Promise.allSettled([batcher.add(1), batcher.add(2)]);
    expect(answers.map(({ status }) => status)).toEqual(['rejected', 'fulfilled']);
  });

  test('is idle once nothing waits and nothing is under way', async () => {
    const { batcher, flushes } = held({ maxBatch: 1, lanes: 1 });
    await batcher.idle();
    const order: string[] = [];
    const idle = (async () => {
      await Promise.all([
        batcher.add(1).then(() => order.push('first')),
        batcher.add(2).then(() => order.push('second')),
        batcher.idle().then(() => order.push('idle')),
      ]);
    })();
    for (let flush = 0; flush < 2; flush += 1) {
      await eventually(() => expect(flushes.length).toBe(flush + 1), { everyMs: 1 });
      flushes[flush]?.answer();
    }
    await idle;
    expect(order).toEqual(['first', 'second', 'idle']);
    await batcher.idle();
  });
});
