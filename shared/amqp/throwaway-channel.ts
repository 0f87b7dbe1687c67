/** Short-lived channels for questions that the broker may answer by closing the channel. */
import type { ConfirmChannel } from 'amqplib';
import { toError } from '../errors/to-error.ts';
import { WarrenError } from '../errors/warren-error.ts';
import type { Clock } from '../time/clock.ts';
import { closeQuietly } from './channel.ts';
import type { ChannelSource } from './channel.ts';

/** What a throwaway channel needs. */
export interface ThrowawayDeps {
  readonly connection: ChannelSource;
  readonly clock: Clock;
}

/** Milliseconds that a question to the broker may take. */
export const QUESTION_WITHIN_MS = 10_000;

/**
 * Runs `ask` on a channel of its own and closes it. Throws what `ask` throws, and `broker-unavailable` while not
 * connected or when `withinMs` has passed.
 */
export async function withChannel<T>(
  deps: ThrowawayDeps,
  ask: (channel: ConfirmChannel) => Promise<T>,
  withinMs: number = QUESTION_WITHIN_MS,
): Promise<T> {
  const { model } = deps.connection;
  if (model === undefined) throw new WarrenError('broker-unavailable', { reason: 'not connected' });
  const race = new AbortController();
  const asking = askOn(deps, ask);
  const late = deps.clock.sleep(withinMs, race.signal).then((): T => {
    throw new WarrenError('broker-unavailable', { reason: 'no answer in time', withinMs });
  });
  try {
    return await Promise.race([asking, late]);
  } finally {
    race.abort();
    // The race is over; nobody else hears the loser.
    late.catch(() => undefined);
    asking.catch(() => undefined);
  }
}

async function askOn<T>(deps: ThrowawayDeps, ask: (channel: ConfirmChannel) => Promise<T>): Promise<T> {
  const { model } = deps.connection;
  if (model === undefined) throw new WarrenError('broker-unavailable', { reason: 'not connected' });
  let channel: ConfirmChannel;
  try {
    channel = await model.createConfirmChannel();
  } catch (thrown) {
    throw new WarrenError('broker-unavailable', { reason: 'no channel' }, toError(thrown));
  }
  // The refusal also rejects the question itself; without a listener it would end the whole connection.
  channel.on('error', () => undefined);
  try {
    return await ask(channel);
  } finally {
    void closeQuietly(channel); // never rejects; nobody waits for the broker's answer to it
  }
}

/** AMQP's reply code of a refusal, or `undefined`: 404 not found, 406 precondition failed, 403, 405. */
export function replyCodeOf(thrown: unknown): number | undefined {
  if (typeof thrown !== 'object' || thrown === null || !('code' in thrown)) return undefined;
  return typeof thrown.code === 'number' ? thrown.code : undefined;
}

/** Ready messages and consumers of a queue, or `undefined` where there is no such queue. Throws `broker-unavailable`. */
export async function queueCounts(
  deps: ThrowawayDeps,
  queue: string,
  withinMs?: number,
): Promise<{ readonly ready: number; readonly consumers: number } | undefined> {
  return await withChannel(
    deps,
    async (channel) => {
      try {
        const { messageCount, consumerCount } = await channel.checkQueue(queue);
        return { ready: messageCount, consumers: consumerCount };
      } catch (thrown) {
        if (replyCodeOf(thrown) === 404) return undefined;
        throw new WarrenError('broker-unavailable', { queue }, toError(thrown));
      }
    },
    withinMs,
  );
}

/**
 * Messages of a queue that no consumer holds, by passive declare: no management plugin needed. `undefined` where there
 * is no such queue. Throws `broker-unavailable`.
 */
export async function readyCount(deps: ThrowawayDeps, queue: string, withinMs?: number): Promise<number | undefined> {
  return (await queueCounts(deps, queue, withinMs))?.ready;
}
