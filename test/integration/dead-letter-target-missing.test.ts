/** The dead-letter exchange and queue are gone while tasks die: the rows know all the same, and work goes on. */
import { afterAll, beforeAll, expect, test } from '@jest/globals';
import { openDesk } from '../support/dead-letters.ts';
import type { DeadLetterDesk } from '../support/dead-letters.ts';
import { eventually } from '../support/eventually.ts';
import { IS_LONG_RUN } from '../support/long-run.ts';

/** After so long a quorum queue tries again what its target had not taken (measured on 4.3: 178 s). */
const TRIED_AGAIN_WITHIN_MS = 300_000;
const TASKS = 20;

let desk: DeadLetterDesk;
beforeAll(async () => {
  desk = await openDesk();
});
afterAll(async () => {
  await desk[Symbol.asyncDispose]();
});

test(
  'every task that dies meanwhile has its letter, and no work is held up',
  async () => {
    const { raw } = desk.door.broker;
    const { dead, dlx, work, queue } = desk.door.names;
    await raw.deleteQueue(dead);
    await raw.deleteExchange(dlx);
    for (let task = 0; task < TASKS; task += 1) await desk.rejectInvitation(await desk.deadTask());
    expect(await desk.letters(`state = 'open' and kind = 'task'`)).toHaveLength(TASKS);
    // What cannot leave the work queue does not stand in its way.
    await desk.publish(work, 'default', 'next');
    expect((await desk.nextInvitation()).content.toString()).toBe('next');
    expect((await raw.checkQueue(queue('default'))).messageCount).toBe(0);

    await using handler = await desk.handler();
    const after = await desk.deadTask();
    await desk.rejectInvitation(after);
    await desk.letter(`task_id = '${after}' and evidence_key is not null`);
    const [letter] = await desk.letters(`task_id <> '${after}'`);
    expect((await handler.post(`/v1/dead-letters/${letter?.id ?? ''}/replay`, {})).status).toBe(200);

    if (!IS_LONG_RUN || !(await isQuorum())) return;
    // At-least-once dead-lettering: the queue kept the messages, and their evidence comes now.
    await eventually(
      async () => expect(await desk.letters(`state = 'open' and evidence_key is not null`)).toHaveLength(TASKS),
      { withinMs: TRIED_AGAIN_WITHIN_MS, everyMs: 1_000 },
    );
  },
  TRIED_AGAIN_WITHIN_MS + 30_000,
);

async function isQuorum(): Promise<boolean> {
  const connection = await desk.door.broker.connect();
  return connection.capabilities?.queueType === 'quorum';
}
