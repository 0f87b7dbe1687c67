/** A connection that breaks just when a task has ended, so that its ack never arrives. */
import { expect, test } from '@jest/globals';
import { AMQP_URL } from '../support/broker.ts';
import { addTask, readTask } from '../support/core.ts';
import { eventually } from '../support/eventually.ts';
import { FaultyProxy } from '../support/faulty-proxy.ts';
import { inviteAnew, openIntake, succeeded } from '../support/intake.ts';
import { openWork } from '../support/work.ts';

test.each([
  ['succeeded', () => succeeded],
  [
    'dead',
    () => ({
      kind: 'failed' as const,
      reason: 'non_retryable' as const,
      retryable: false,
      error: { type: 'Error', message: 'no', causes: [] },
    }),
  ],
])('a task that is %s when the connection breaks before its ack is not run again', async (state, end) => {
  await using proxy = await FaultyProxy.open(AMQP_URL);
  await using work = await openWork({ amqpUrl: proxy.urlOf(AMQP_URL) });
  const runs: string[] = [];
  const open = await openIntake(work, {
    handlers: {
      'test.noop': ({ taskId }) => {
        runs.push(taskId);
        proxy.cut(); // the settle still goes through, the answer to the broker does not
        return end();
      },
    },
  });
  const ids: string[] = [];
  for (let task = 0; task < 5; task += 1) {
    await eventually(() => expect(work.backbone.publisher.isReady).toBe(true));
    const id = await addTask(work.db);
    await inviteAnew(work, id).catch(() => undefined); // the cut may come before the confirm
    ids.push(id);
    await eventually(() => expect(open.settled.get(id)).toBe(state), { withinMs: 20_000 });
    await eventually(() => expect(open.lost()).toBeGreaterThanOrEqual(ids.length), { withinMs: 20_000 }); // it came again
  }
  expect(runs).toEqual(ids);
  for (const id of ids) expect(await readTask(work.db, id)).toMatchObject({ state, attempt: 1 });
  await open[Symbol.asyncDispose]();
  expect(await work.take()).toEqual([]);
});
