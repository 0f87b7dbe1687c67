/** Inputs that a replay mends: checked as at the front door, nothing changed that the patch does not name, the original kept. */
import { openInputs } from '../support/inputs.ts';
import { describe, expect, test } from '@jest/globals';
import { dryRun } from '../../services/dead-letter-handler/dry-run.ts';
import { count, partDeps, readTask, rows } from '../support/core.ts';
import { openReplayBench } from '../support/replays.ts';
import type { Fate } from '../support/replays.ts';
import { TypeCatalog } from '../../shared/tasks/type-catalog.ts';

const FATES: readonly Fate[] = ['undisturbed', 'killed'];

describe.each(FATES)('with runners %s', (fate) => {
  test('a patch mends each input that it fits, and what the schema refuses or it does not fit is skipped', async () => {
    await using bench = await openReplayBench(fate);
    const strict = { type: 'test.strict' };
    const original = '{"n":1.0,"10":9007199254740991,"2":1e2,"too":"ann", "z" : null}';
    const [fits] = await bench.dead(1, { ...strict, input: original });
    const [misfit] = await bench.dead(1, { ...strict, input: '{"other":true}' });
    const [refused] = await bench.dead(1, { ...strict, input: '{"too":5}' });
    const [unknown] = await bench.dead(1, { type: 'test.gone', input: '{"too":"x"}' });
    const letters = [fits, misfit, refused, unknown].map((dead) => dead?.letterId ?? '');
    const id = await bench.replay(letters, { patch: Buffer.from('[{"op":"move","from":"/too","path":"/to"}]') });
    await bench.until(async () => expect((await bench.show(id)).next_n).toBe(5));
    const items = new Map((await bench.items(id)).map((item) => [item.letter_id, item]));
    expect(letters.map((letterId) => items.get(letterId))).toMatchObject([
      { state: 'sent', code: null },
      { state: 'skipped', code: 'patch-misfit', why: 'operation 1 (move /to): there is nothing at /too' },
      { state: 'skipped', code: 'input-refused', why: expect.stringContaining('to: ') },
      { state: 'skipped', code: 'task-type-unknown' },
    ]);
    expect((await readTask(bench.db, fits?.taskId ?? '')).input.toString()).toBe(
      '{"n":1.0,"10":9007199254740991,"2":1e2,"z":null,"to":"ann"}',
    );
    const kept = await rows<{ input: Buffer }>(bench.db, 'select input from mended_inputs');
    expect(kept.map(({ input }) => input.toString())).toEqual([original]);
    for (const dead of [misfit, refused, unknown]) {
      const task = await readTask(bench.db, dead?.taskId ?? '');
      expect(task).toMatchObject({ state: 'dead', generation: 1 });
    }
    expect(await rows(bench.db, `select id from dead_letters where state = 'open'`)).toHaveLength(3);
  });

  test('what a patch would make too large is skipped with the reason, and stays open', async () => {
    await using bench = await openReplayBench(fate);
    const [small, large] = [await bench.dead(1, { input: '{"l":[]}' }), await bench.dead(1, { input: '{"l":[[1]]}' })];
    const copy = { op: 'copy', from: '/l', path: '/l/-' };
    const patch = [{ op: 'test', path: '/l', value: [[1]] }, ...Array.from({ length: 60 }, () => copy)];
    const id = await bench.replay(
      [...small, ...large].map(({ letterId }) => letterId),
      {
        patch: Buffer.from(JSON.stringify(patch)),
      },
    );
    await bench.until(async () => expect((await bench.show(id)).state).toBe('finished'));
    const [first, second] = await bench.items(id);
    expect(first).toMatchObject({ state: 'skipped', code: 'patch-misfit', why: expect.stringContaining('another') });
    expect(second).toMatchObject({
      state: 'skipped',
      code: 'patch-misfit',
      why: expect.stringMatching(/characters|levels/),
    });
    expect(await count(bench.db, 'dead_letters', `state = 'open'`)).toBe(2);
  });

  test('a merge patch mends all of a selection', async () => {
    await using bench = await openReplayBench(fate);
    const dead = await bench.dead(70, { input: '{"a":{"b":1},"c":[1]}' });
    const id = await bench.replay(
      dead.map(({ letterId }) => letterId),
      { patch: Buffer.from('{"a":{"b":null},"d":"x"}') },
    );
    await bench.until(async () => expect((await bench.show(id)).next_n).toBe(71));
    const inputs = await rows<{ input: Buffer }>(bench.db, `select input from tasks where state = 'pending'`);
    expect(inputs).toHaveLength(70);
    expect(new Set(inputs.map(({ input }) => input.toString()))).toEqual(new Set(['{"a":{},"c":[1],"d":"x"}']));
  });
});

test('a mended input counts under its own key towards the limits of its type, others keep theirs', async () => {
  await using bench = await openReplayBench();
  const dead = await bench.dead(2, { type: 'test.limited', input: '{"tenant":"a"}' });
  await rows(bench.db, `update tasks set concurrency_key = 'a'`);
  const [mended, asItWas] = dead;
  for (const [letter, patch] of [
    [mended, { patch: Buffer.from('{"tenant":"b"}') }],
    [asItWas, {}],
  ] as const) {
    const id = await bench.replay([letter?.letterId ?? ''], patch);
    await bench.until(async () => expect((await bench.show(id)).next_n).toBe(2));
  }
  const keys = await rows(bench.db, 'select id, concurrency_key as key, rate_key from tasks order by id');
  expect(keys).toEqual([
    { id: mended?.taskId, key: 'b', rate_key: null },
    { id: asItWas?.taskId, key: 'a', rate_key: null },
  ]);
});

test('a patch that is none is refused before anything is made', async () => {
  await using bench = await openReplayBench();
  const [dead] = await bench.dead(1);
  await expect(bench.replay([dead?.letterId ?? ''], { patch: Buffer.from('[{"op":"grow"}]') })).rejects.toMatchObject({
    code: 'field-invalid',
    facts: { field: 'patch', reason: expect.stringContaining('operation 1') },
  });
  expect(await rows(bench.db, 'select id from replays')).toEqual([]);
});

test('a dry run counts, shows ten samples of before and after, and changes nothing', async () => {
  await using bench = await openReplayBench();
  const good = await bench.dead(12, { type: 'test.strict', input: '{"to":"a","n":1.0}' });
  const bad = await bench.dead(2, { type: 'test.strict', input: '{"n":2}' });
  const [closed] = await bench.dead(1);
  await rows(
    bench.db,
    `update dead_letters set state = 'discarded', closed_at = now() where id = $1`,
    closed?.letterId ?? '',
  );
  const catalog = new TypeCatalog({ db: bench.db, ...partDeps });
  await catalog.refresh();
  const ids = [...good, ...bad, ...(closed === undefined ? [] : [closed])].map(({ letterId }) => letterId);
  const text = await dryRun(
    {
      selection: { kind: 'ids', ids },
      waves: 'growing',
      waveTimeoutMs: 1_000,
      patch: Buffer.from('{"m":1.50}'),
      actor: { name: 'ann', role: 'operator' },
    },
    {
      db: bench.db,
      clock: partDeps.clock,
      catalog,
      limits: { messageBytes: 262_144, depth: 64 },
      inputs: openInputs(bench.db),
      replayer: { destinationOf: () => ({ exchange: '', routingKey: '' }) },
      refreshTypes: async () => await catalog.refresh(),
      wake: () => undefined,
    },
  );
  expect(JSON.parse(text)).toMatchObject({
    dryRun: true,
    isPartial: false,
    letters: 15,
    replayed: 12,
    refused: 2,
    skipped: 3,
    reasons: [
      { code: 'input-refused', letters: 2 },
      { code: 'closed', letters: 1, why: 'it is discarded' },
    ],
  });
  const { samples } = JSON.parse(text) as { readonly samples: readonly unknown[] };
  expect(samples).toHaveLength(10);
  // Byte for byte.
  expect(text).toContain('"before":{"to":"a","n":1.0},"after":{"to":"a","n":1.0,"m":1.50}');
  expect(await rows(bench.db, 'select id from replays')).toEqual([]);
  expect(await rows(bench.db, `select id from tasks where state <> 'dead'`)).toEqual([]);
});
