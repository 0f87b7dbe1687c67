/** Letters that never were tasks inside a replay: what RabbitMQ does not take waits, and what a crash cut off is finished. */
import { expect, test } from '@jest/globals';
import { Replayer } from '../../services/dead-letter-handler/replayer.ts';
import type { Outgoing } from '../../shared/amqp/publisher.ts';
import { namesOf } from '../../shared/amqp/topology.ts';
import { WarrenError } from '../../shared/errors/warren-error.ts';
import { newId } from '../../shared/tasks/ids.ts';
import { partDeps, rows } from '../support/core.ts';
import { openReplayBench } from '../support/replays.ts';
import type { ReplayBench } from '../support/replays.ts';

interface Post {
  readonly bench: ReplayBench;
  readonly replayer: Replayer;
  readonly published: Outgoing[];
  failure: WarrenError | undefined;
  round(): Promise<void>;
}

async function openPost(bench: ReplayBench): Promise<Post> {
  const post: Post = {
    bench,
    published: [],
    failure: undefined,
    replayer: new Replayer(
      {
        ...partDeps,
        db: bench.db,
        names: namesOf('test'),
        invite: async () => await Promise.resolve(true),
        hasExchange: async () => await Promise.resolve(true),
        publish: async (message) => {
          if (post.failure !== undefined) throw post.failure;
          post.published.push(message);
          await Promise.resolve();
        },
      },
      { destinations: ['/there'], unfinishedAfterMs: 0 },
    ),
    round: async () =>
      void (await bench.runner({ db: bench.db, replayer: post.replayer }).round(new AbortController().signal)),
  };
  return await Promise.resolve(post);
}

async function letter(bench: ReplayBench, kind: 'refused' | 'foreign', routingKey: string): Promise<string> {
  const id = newId() as string;
  await rows(
    bench.db,
    `insert into dead_letters (id, kind, reason, recorded_at, exchange, routing_key, body, properties, headers)
     values ($1, $2, 'rejected', now(), '', $3, '{}', '{}', '{}')`,
    id,
    kind,
    routingKey,
  );
  return id;
}

const stateOf = async ({ db }: ReplayBench, id: string): Promise<string | undefined> =>
  (await rows<{ state: string }>(db, 'select state from dead_letters where id = $1', id))[0]?.state;

test('while RabbitMQ is away nothing is skipped: letters are open, items wait, and go when it is back', async () => {
  await using bench = await openReplayBench();
  const post = await openPost(bench);
  const ids = [await letter(bench, 'refused', 'mail.send'), await letter(bench, 'foreign', 'there')];
  const id = await bench.replay(ids);
  post.failure = new WarrenError('broker-unavailable', { reason: 'not connected' });
  await expect(post.round()).rejects.toMatchObject({ code: 'broker-unavailable' });
  expect((await bench.items(id)).map(({ state, code }) => [state, code])).toEqual([
    ['waiting', null],
    ['waiting', null],
  ]);
  expect(await Promise.all(ids.map(async (each) => await stateOf(bench, each)))).toEqual(['open', 'open']);
  post.failure = undefined;
  await rows(bench.db, 'update replays set look_at = now()');
  await post.round();
  expect((await bench.items(id)).map(({ state }) => state)).toEqual(['sent', 'returned']);
  expect(post.published).toHaveLength(2);
});

test('what RabbitMQ refuses for good, and where it may not go, is skipped with the reason and stays open', async () => {
  await using bench = await openReplayBench();
  const post = await openPost(bench);
  const ids = [await letter(bench, 'foreign', 'there'), await letter(bench, 'foreign', 'elsewhere')];
  const id = await bench.replay(ids);
  post.failure = new WarrenError('unroutable', {});
  await post.round();
  await post.round();
  expect(await bench.items(id)).toMatchObject([
    { state: 'skipped', code: 'not-sent', why: expect.stringMatching(/./) },
    { state: 'skipped', code: 'not-sent', why: expect.stringMatching(/./) },
  ]);
  expect(await Promise.all(ids.map(async (each) => await stateOf(bench, each)))).toEqual(['open', 'open']);
});

test('what was never a task is neither mended nor moved', async () => {
  await using bench = await openReplayBench();
  const post = await openPost(bench);
  const id = await bench.replay([await letter(bench, 'refused', 'mail.send')], { queue: 'other' });
  await post.round();
  expect(await bench.items(id)).toMatchObject([{ state: 'skipped', code: 'not-a-task' }]);
  expect(post.published).toEqual([]);
});

test('a letter that a crash cut off on its way is finished once, and its item says so', async () => {
  await using bench = await openReplayBench();
  const post = await openPost(bench);
  const letterId = await letter(bench, 'foreign', 'there');
  const id = await bench.replay([letterId]);
  // The handler dies between its two commits: the publish never answers, and no other statement follows.
  const { signal } = new AbortController();
  const cut = bench.runner({
    db: bench.db,
    replayer: {
      destinationOf: () => ({ exchange: '', routingKey: 'there' }),
      send: async () => await Promise.reject(new WarrenError('broker-unavailable', { reason: 'killed here' })),
    },
  });
  await expect(cut.round(signal)).rejects.toMatchObject({ code: 'broker-unavailable' });
  expect(await bench.items(id)).toMatchObject([{ state: 'sent' }]);
  expect(await stateOf(bench, letterId)).toBe('replaying');
  const loop = post.replayer.loop();
  await loop.start();
  await bench.until(async () => expect(await bench.items(id)).toMatchObject([{ state: 'returned' }]));
  await loop.stop(0);
  await rows(bench.db, 'update replays set look_at = now()');
  await bench.until(async () => expect((await bench.show(id)).state).toBe('finished'));
  expect(post.published).toHaveLength(1);
});
