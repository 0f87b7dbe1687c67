/** A replay in waves: what is sent when, what stops it, and what became of each item; also by runners that die all the time. */
import { describe, expect, test } from '@jest/globals';
import { newId } from '../../shared/tasks/ids.ts';
import { count, readTask, rows } from '../support/core.ts';
import { openReplayBench } from '../support/replays.ts';
import type { Dead, Fate, ReplayBench } from '../support/replays.ts';

const FATES: readonly Fate[] = ['undisturbed', 'killed'];
const idsOf = (dead: readonly Dead[]): string[] => dead.map(({ letterId }) => letterId);

async function states(bench: ReplayBench, id: string): Promise<Record<string, number>> {
  const counted: Record<string, number> = {};
  for (const { state } of await bench.items(id)) counted[state] = (counted[state] ?? 0) + 1;
  return counted;
}

describe.each(FATES)('with runners %s', (fate) => {
  test('waves of 1, 5, 25 follow each other when the first new attempt of each item has ended', async () => {
    await using bench = await openReplayBench(fate);
    const id = await bench.replay(idsOf(await bench.dead(40)), { waves: 'growing' });
    for (const sent of [1, 6, 31, 40]) {
      await bench.until(async () => expect(await count(bench.db, 'tasks', `generation = 2`)).toBe(sent));
      // Nothing more is sent while an attempt of the wave has not ended.
      for (let rounds = 0; rounds < 20; rounds += 1) await bench.round();
      expect(await count(bench.db, 'tasks', `generation = 2`)).toBe(sent);
      expect(await bench.show(id)).toMatchObject({ state: 'running', next_n: sent + 1 });
      await bench.work('succeed');
    }
    await bench.until(async () => expect(await bench.show(id)).toMatchObject({ state: 'finished', wave: 4 }));
    expect(await states(bench, id)).toEqual({ succeeded: 40 });
    expect(await count(bench.db, 'tasks', `state = 'succeeded' and generation = 2 and attempt = 2`)).toBe(40);
    expect(await count(bench.db, 'dead_letters', `state = 'replayed' and replay_id = '${id}'`)).toBe(40);
  });

  test('the same failure again stops it, the rest stays dead, and resuming goes on', async () => {
    await using bench = await openReplayBench(fate);
    const dead = await bench.dead(12);
    const id = await bench.replay(idsOf(dead), { waves: [2, 4], stopAfter: 2 });
    await bench.until(async () => expect((await bench.show(id)).next_n).toBe(3));
    await bench.work('succeed');
    await bench.until(async () => expect((await bench.show(id)).next_n).toBe(7));
    let n = 0;
    await bench.work(() => ((n += 1) <= 2 ? 'die' : 'succeed'));
    await bench.until(async () => expect((await bench.show(id)).state).toBe('stopped'));
    expect((await bench.show(id)).state_reason).toMatch(
      /^wave 2: 2 of 4 items failed of the same \(.*\), the limit is 2$/,
    );
    expect(await states(bench, id)).toEqual({ succeeded: 4, dead: 2, waiting: 6 });
    for (let rounds = 0; rounds < 20; rounds += 1) await bench.round();
    expect(await count(bench.db, 'dead_letters', `state = 'open'`)).toBe(8);

    await bench.steer(id, 'resume');
    await bench.until(async () => expect((await bench.show(id)).next_n).toBe(11));
    await bench.work('succeed');
    await bench.until(async () => expect((await bench.show(id)).next_n).toBe(13));
    await bench.work('succeed');
    await bench.until(async () => expect((await bench.show(id)).state).toBe('finished'));
    const died = (await bench.items(id)).filter(({ state }) => state === 'dead');
    for (const item of died) {
      expect(item).toMatchObject({ is_same: true, error_type: 'DiskFull', error_message: 'no space' });
      const [letter] = await rows<{ task_id: string }>(
        bench.db,
        `select task_id from dead_letters where id = $1 and state = 'open'`,
        item.new_letter_id,
      );
      expect(letter?.task_id).toBe(item.task_id);
    }
  });

  test('the next death is seen though the clock that made its letter is behind', async () => {
    await using bench = await openReplayBench(fate);
    const dead = await bench.dead(2);
    const id = await bench.replay(idsOf(dead), { waves: 'none', stopAfter: 2 });
    await bench.until(async () => expect((await bench.show(id)).next_n).toBe(3));
    await bench.work('die');
    await bench.db.query({
      text: `update dead_letters set id = overlay(id::text placing '00000000' from 1 for 8)::uuid where state = 'open'`,
    });
    await bench.until(async () => expect((await bench.show(id)).state).toBe('stopped'));
    await bench.until(async () => expect(await states(bench, id)).toEqual({ dead: 2 }));
  });

  test('an attempt that does not end within the time pauses it, and resuming goes on without it', async () => {
    await using bench = await openReplayBench(fate);
    const id = await bench.replay(idsOf(await bench.dead(3)), { waves: [1], waveTimeoutMs: 150 });
    await bench.until(async () => expect((await bench.show(id)).state).toBe('paused'));
    expect((await bench.show(id)).state_reason).toContain('wave 1: not every first new attempt ended within 150 ms');
    expect(await count(bench.db, 'tasks', 'generation = 2')).toBe(1);
    await bench.steer(id, 'resume');
    await bench.until(async () => expect((await bench.show(id)).next_n).toBe(3));
    await bench.work('succeed');
    await bench.until(async () => {
      await bench.work('succeed');
      expect((await bench.show(id)).state).toMatch(/paused|finished/);
    });
    await bench.until(async () => expect((await states(bench, id))['sent']).toBeUndefined());
  });

  test('paused it sends nothing more, resumed it goes on, cancelled it leaves the rest dead', async () => {
    await using bench = await openReplayBench(fate);
    const id = await bench.replay(idsOf(await bench.dead(6)), { waves: [2] });
    await bench.until(async () => expect((await bench.show(id)).next_n).toBe(3));
    await bench.steer(id, 'pause');
    await bench.work('succeed');
    await bench.until(async () => expect(await states(bench, id)).toEqual({ succeeded: 2, waiting: 4 }));
    for (let rounds = 0; rounds < 20; rounds += 1) await bench.round();
    expect(await bench.show(id)).toMatchObject({ state: 'paused', next_n: 3 });
    await bench.steer(id, 'resume');
    await bench.until(async () => expect((await bench.show(id)).next_n).toBe(5));
    await bench.steer(id, 'cancel');
    await bench.work('succeed');
    await bench.until(async () => expect(await states(bench, id)).toEqual({ succeeded: 4, waiting: 2 }));
    expect(await count(bench.db, 'dead_letters', `state = 'open'`)).toBe(2);
    await expect(bench.steer(id, 'resume')).rejects.toMatchObject({ code: 'replay-state-wrong' });
    const actions = await rows<{ action: string }>(
      bench.db,
      'select action from audit where target = $1 order by id',
      id,
    );
    expect(actions.map(({ action }) => action)).toEqual(
      ['create', 'pause', 'resume', 'cancel'].map((step) => `replay.${step}`),
    );
  });

  test('each item says what became of it, and why it was skipped', async () => {
    await using bench = await openReplayBench(fate);
    const dead = await bench.dead(6);
    const [ok, same, other, retried, cancelled, closed] = dead as [Dead, Dead, Dead, Dead, Dead, Dead];
    const id = await bench.replay(idsOf(dead), { stopAfter: 9 });
    await rows(
      bench.db,
      `update dead_letters set state = 'discarded', closed_at = now() where id = $1`,
      closed.letterId,
    );
    await bench.until(async () => expect((await bench.show(id)).next_n).toBe(7));
    await bench.work((taskId) => {
      if (taskId === same.taskId) return 'die';
      if (taskId === other.taskId) return { error: 'quite another fault', ends: 'die' };
      if (taskId === retried.taskId) return 'retry';
      return taskId === cancelled.taskId ? 'leave' : 'succeed';
    });
    await rows(bench.db, `update tasks set state = 'cancelled', finished_at = now() where id = $1`, cancelled.taskId);
    await bench.until(async () => expect((await bench.show(id)).state).toBe('finished'));
    const items = new Map((await bench.items(id)).map((item) => [item.letter_id, item]));
    expect(items.get(ok.letterId)).toMatchObject({ state: 'succeeded', task_id: ok.taskId, is_same: null });
    expect(items.get(same.letterId)).toMatchObject({ state: 'dead', is_same: true });
    expect(items.get(other.letterId)).toMatchObject({
      state: 'dead',
      is_same: false,
      error_message: 'quite another fault',
    });
    expect(items.get(cancelled.letterId)).toMatchObject({ state: 'ended' });
    expect(items.get(closed.letterId)).toMatchObject({ state: 'skipped', code: 'closed' });
    // Its first new attempt is judged; how it ends is found out later.
    expect(items.get(retried.letterId)).toMatchObject({ state: 'sent', is_same: true, judged_at: expect.any(Date) });
    await rows(bench.db, `update tasks set state = 'pending', run_at = null where id = $1`, retried.taskId);
    await bench.work('succeed');
    await rows(bench.db, `update replays set look_at = now() where id = $1`, id);
    await bench.until(async () => expect(await states(bench, id)).toMatchObject({ succeeded: 2 }));
  });

  test('the budget is full again, the history is kept, and queue and priority are as asked', async () => {
    await using bench = await openReplayBench(fate);
    const dead = await bench.dead(2, {
      deadline: `clock_timestamp() + interval '1 hour'`,
      lostAttempts: 2,
      priority: 7,
    });
    const plain = await bench.replay([dead[0]?.letterId ?? '']);
    const moved = await bench.replay([dead[1]?.letterId ?? ''], { queue: 'other', priority: 0 });
    for (const id of [plain, moved]) await bench.until(async () => expect((await bench.show(id)).next_n).toBe(2));
    const task = { state: 'pending', generation: 2, attempt: 1, failures: 0, lost_attempts: 0, deadline: null };
    expect(await readTask(bench.db, dead[0]?.taskId ?? '')).toMatchObject({ ...task, queue: 'default', priority: 7 });
    expect(await readTask(bench.db, dead[1]?.taskId ?? '')).toMatchObject({ ...task, queue: 'other', priority: 0 });
    expect(await count(bench.db, 'attempts')).toBe(2);
    // Each was invited by the statement that made it pending, and counted as revived.
    const outbox = await rows<{ queues: string[]; priorities: number[] }>(
      bench.db,
      'select queues, priorities from outbox order by queues',
    );
    expect(outbox).toEqual([
      { queues: ['default'], priorities: [7] },
      { queues: ['other'], priorities: [0] },
    ]);
    const [revived] = await rows(bench.db, `select sum(tasks)::int4 as n from ledger_entries where entry = 'revived'`);
    expect(revived).toEqual({ n: 2 });
  });

  test('invariant 5: replays that name the same letters replay each of them once', async () => {
    await using bench = await openReplayBench(fate);
    const dead = await bench.dead(30);
    const ids = idsOf(dead);
    const replays = [
      await bench.replay(ids, { waves: [7] }),
      await bench.replay(ids.toReversed(), { waves: 'none' }),
      await bench.replay(ids.slice(10, 20), { waves: [1] }),
    ];
    await bench.until(async () => {
      await bench.work('succeed');
      for (const id of replays) expect((await bench.show(id)).state).toBe('finished');
    });
    expect(await count(bench.db, 'tasks', `state = 'succeeded' and generation = 2 and attempt = 2`)).toBe(30);
    const items = (await Promise.all(replays.map(async (id) => await bench.items(id)))).flat();
    expect(items).toHaveLength(70);
    const done = items.filter(({ state }) => state === 'succeeded').map(({ letter_id: letterId }) => letterId);
    expect(done.toSorted()).toEqual(ids.toSorted());
    const others = items.filter(({ state }) => state !== 'succeeded');
    expect(new Set(others.map(({ state, code }) => `${state} ${code ?? ''}`))).toEqual(new Set(['skipped closed']));
  });

  test('the selection is frozen: what dies later is not part of it', async () => {
    await using bench = await openReplayBench(fate);
    const group = newId() as string;
    const before = await bench.dead(2);
    await rows(bench.db, 'update dead_letters set group_id = $1', group);
    const id = await bench.replay([], { selection: { kind: 'group', group } });
    await bench.dead(3);
    await rows(bench.db, 'update dead_letters set group_id = $1', group);
    await bench.until(async () => expect((await bench.show(id)).next_n).toBe(3));
    expect((await bench.items(id)).map(({ letter_id: letterId }) => letterId)).toEqual(idsOf(before));
    expect(await count(bench.db, 'dead_letters', `state = 'open'`)).toBe(3);
  });

  test('what waits for a version is sent when every live worker of its types has it', async () => {
    await using bench = await openReplayBench(fate);
    const dead = await bench.dead(1);
    const lease = async (host: string, version: string, types: string): Promise<void> =>
      void (await rows(
        bench.db,
        `insert into leases (worker, host, pid, code_version, queues, task_types, slots)
       values (gen_random_uuid(), $1, 1, $2, '{}', $3::text::text[], 1)`,
        host,
        version,
        types,
      ));
    const id = await bench.replay(idsOf(dead), { waitForVersion: '>=1.4.0' });
    // Nobody is live who takes it: its announcement counts.
    await bench.until(async () =>
      expect((await bench.show(id)).state_reason).toBe(
        'waits for >=1.4.0: no live worker takes test.noop, which was announced with 1.0.0',
      ),
    );
    await lease('old', '1.3.9', '{test.noop}');
    await lease('new', '1.4.0', '{test.noop}');
    await lease('elsewhere', 'dev', '{test.other}');
    await rows(bench.db, 'update replays set look_at = now()');
    await bench.until(async () =>
      expect((await bench.show(id)).state_reason).toBe('waits for >=1.4.0: 1 worker with 1.3.9 (old)'),
    );
    expect(await bench.show(id)).toMatchObject({ state: 'waiting', next_n: 1 });
    await rows(bench.db, `delete from leases where host = 'old'`);
    await rows(bench.db, 'update replays set look_at = now()');
    await bench.until(async () => expect((await bench.show(id)).next_n).toBe(2));
    await expect(bench.replay(idsOf(dead), { waitForVersion: 'soon' })).rejects.toMatchObject({
      code: 'field-invalid',
    });
  });

  test('the rate holds for all runners together', async () => {
    await using bench = await openReplayBench(fate);
    const id = await bench.replay(idsOf(await bench.dead(40)), { ratePerSecond: 20 });
    const over = new AbortController();
    const running = [bench.runner(), bench.runner()].map(async (runner) => {
      while (!over.signal.aborted) await (fate === 'killed' ? bench.round() : runner.round(over.signal));
    });
    await bench.until(async () => expect((await bench.show(id)).next_n).toBe(41));
    over.abort();
    await Promise.all(running);
    const sent = await rows<{ at: number }>(
      bench.db,
      `select extract(epoch from sent_at - (select created_at from replays where id = $1))::float8 as at
       from replay_items where replay_id = $1 order by sent_at`,
      id,
    );
    // The k-th goes at the earliest after k/20 s; a quarter of a second may be made up for.
    sent.forEach(({ at }, index) => expect(at).toBeGreaterThanOrEqual((index + 1) / 20 - 0.26));
    expect(sent.at(-1)?.at).toBeGreaterThan(1.7);
  });
});

test('two runners at once share replays of the same letters, and each letter runs once', async () => {
  await using bench = await openReplayBench();
  const ids = idsOf(await bench.dead(60));
  const replays = [await bench.replay(ids, { waves: [5] }), await bench.replay(ids.toReversed(), { waves: [3] })];
  const over = new AbortController();
  const running = [bench.runner(), bench.runner()].map(async (runner) => {
    while (!over.signal.aborted) await runner.round(over.signal);
  });
  await bench.until(async () => {
    await bench.work('succeed');
    for (const id of replays) expect((await bench.show(id)).state).toBe('finished');
  });
  over.abort();
  await Promise.all(running);
  expect(await count(bench.db, 'tasks', `state = 'succeeded' and generation = 2 and attempt = 2`)).toBe(60);
  const items = (await Promise.all(replays.map(async (id) => await bench.items(id)))).flat();
  expect(items.filter(({ state }) => state === 'succeeded')).toHaveLength(60);
  expect(items.filter(({ state }) => state === 'skipped')).toHaveLength(60);
});

test('who has seen another state than there is now is told so, and changes nothing', async () => {
  await using bench = await openReplayBench();
  const id = await bench.replay(idsOf(await bench.dead(1)));
  await bench.steer(id, 'pause', 1);
  await expect(bench.steer(id, 'cancel', 1)).rejects.toMatchObject({
    code: 'precondition-failed',
    facts: { version: 2, state: 'paused' },
  });
  await expect(bench.steer(newId(), 'pause')).rejects.toMatchObject({ code: 'replay-not-found' });
  expect(await bench.show(id)).toMatchObject({ state: 'paused', version: 2 });
});

test('an item that was given back after its replay had gone on is sent before the replay finishes', async () => {
  await using bench = await openReplayBench();
  const dead = await bench.dead(3);
  const id = await bench.replay(idsOf(dead));
  // As two runners leave it of which one was slow.
  await rows(bench.db, `update replays set wave = 1, wave_end = 3, next_n = 4, wave_sent_at = now() where id = $1`, id);
  await bench.until(async () => {
    await bench.work('succeed');
    expect((await bench.show(id)).state).toBe('finished');
  });
  expect(await states(bench, id)).toEqual({ succeeded: 3 });
});

test('the last of many items is judged, though no turn is long enough to look through all of them', async () => {
  await using bench = await openReplayBench();
  await rows(
    bench.db,
    `insert into tasks (id, state, max_attempts, attempt, priority, type, queue, input, finished_at)
     select uuid_v7(), 'dead', 3, 1, 4, 'test.noop', 'default', '{}', now() from generate_series(1, 2500)`,
  );
  const group = newId() as string;
  await rows(
    bench.db,
    `insert into dead_letters (id, kind, task_id, reason, attempt, group_id)
     select uuid_v7(), 'task', id, 'timeout', 1, $1 from tasks`,
    group,
  );
  const id = await bench.replay([], { selection: { kind: 'group', group } });
  const runner = bench.runner({}, { turnMs: 0 });
  const round = async (): Promise<boolean> => await runner.round(new AbortController().signal);
  while ((await bench.show(id)).next_n <= 2_500) await round();
  const [last] = (await bench.items(id)).slice(-1);
  await rows(bench.db, `update tasks set state = 'succeeded', finished_at = now() where id = $1`, last?.task_id);
  for (let rounds = 0; rounds < 10; rounds += 1) {
    await rows(bench.db, 'update replays set look_at = now()');
    await round();
  }
  expect((await bench.items(id)).filter(({ state }) => state === 'succeeded')).toMatchObject([{ n: 2_500 }]);
});

test('a replay of nothing is refused', async () => {
  await using bench = await openReplayBench();
  const group = newId() as string;
  await expect(bench.replay([], { selection: { kind: 'group', group } })).rejects.toMatchObject({
    code: 'selection-empty',
  });
  await expect(bench.replay([group])).rejects.toMatchObject({ code: 'dead-letter-not-found', facts: { id: group } });
  expect(await count(bench.db, 'replays')).toBe(0);
});
