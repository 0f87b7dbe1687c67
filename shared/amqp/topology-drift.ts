/** Finds where a broker differs from the topology, by asking it; needs no management plugin. */
import { toError } from '../errors/to-error.ts';
import { WarrenError } from '../errors/warren-error.ts';
import type { Channel } from 'amqplib';
import { replyCodeOf, withChannel } from './throwaway-channel.ts';
import type { ThrowawayDeps } from './throwaway-channel.ts';
import type { ExchangeSpec, QueueSpec, Topology } from './topology.ts';

/** One difference. Bindings cannot be read over AMQP; `applyTopology` makes them anew, which does no harm. */
export interface Drift {
  readonly kind: 'queue' | 'exchange';
  readonly name: string;
  readonly problem: 'missing' | 'differs';
  /** Which argument or property differs: `x-max-priority`, `type`, `durable`. Absent where the thing is missing. */
  readonly argument?: string;
  /** What the topology wants; absent where it wants none. */
  readonly expected?: string;
  /** What the broker has, in its own words. */
  readonly actual?: string;
}

const MOST_ARGUMENTS = 12;

/** Compares each exchange and queue. Declares, changes and deletes nothing. Throws `broker-unavailable`. */
export async function findDrift(deps: ThrowawayDeps, topology: Topology): Promise<readonly Drift[]> {
  const found: Drift[] = [];
  for (const spec of topology.exchanges) found.push(...(await driftOfExchange(deps, spec)));
  for (const spec of topology.queues) found.push(...(await driftOfQueue(deps, spec)));
  return found;
}

/** The error that stands for one difference, for logs and exit messages. */
export function driftError(drift: Drift): WarrenError {
  return new WarrenError('topology-drift', {
    [drift.kind]: drift.name,
    problem: drift.problem,
    ...(drift.argument === undefined ? {} : { argument: drift.argument }),
    ...(drift.expected === undefined ? {} : { expected: drift.expected }),
    ...(drift.actual === undefined ? {} : { actual: drift.actual }),
  });
}

/** True where the thing exists. */
export async function exists(deps: ThrowawayDeps, kind: Drift['kind'], name: string): Promise<boolean> {
  const refusal = await refusalOf(deps, async (channel) => {
    await (kind === 'queue' ? channel.checkQueue(name) : channel.checkExchange(name));
  });
  if (refusal === undefined) return true;
  if (refusal.code === 404) return false;
  throw new WarrenError('broker-unavailable', { [kind]: name }, refusal.error);
}

async function driftOfExchange(deps: ThrowawayDeps, spec: ExchangeSpec): Promise<readonly Drift[]> {
  const { name } = spec;
  if (!(await exists(deps, 'exchange', name))) return [{ kind: 'exchange', name, problem: 'missing' }];
  const refusal = await refusalOf(deps, async (channel) => {
    await channel.assertExchange(name, spec.type, { durable: true });
  });
  if (refusal === undefined) return [];
  return [{ kind: 'exchange', name, problem: 'differs', ...readRefusal(refusal) }];
}

async function driftOfQueue(deps: ThrowawayDeps, spec: QueueSpec): Promise<readonly Drift[]> {
  const { name } = spec;
  if (!(await exists(deps, 'queue', name))) return [{ kind: 'queue', name, problem: 'missing' }];
  const found: Drift[] = [];
  const tried: Record<string, string | number> = { ...spec.arguments };
  // The broker names one difference at a time: take its word for that one and ask again.
  for (let round = 0; round < MOST_ARGUMENTS; round += 1) {
    const refusal = await refusalOf(deps, async (channel) => {
      await channel.assertQueue(name, { durable: true, arguments: tried });
    });
    if (refusal === undefined) return found;
    const read = readRefusal(refusal);
    const drift: Drift = { kind: 'queue', name, problem: 'differs', ...read };
    // A queue of another type has other arguments for that reason: the type is the difference to report.
    if (read.argument === 'x-queue-type') return [drift];
    found.push(drift);
    if (read.argument === undefined || !read.argument.startsWith('x-')) return found;
    const { value } = refusal;
    if (value === undefined) delete tried[read.argument];
    else tried[read.argument] = value;
  }
  return found;
}

interface Refusal {
  readonly code: number | undefined;
  readonly error: Error;
  readonly value?: string | number | undefined;
}

async function refusalOf(deps: ThrowawayDeps, ask: (channel: Channel) => Promise<void>): Promise<Refusal | undefined> {
  return await withChannel(deps, async (channel) => {
    try {
      await ask(channel);
      return undefined;
    } catch (thrown) {
      const error = toError(thrown);
      const code = replyCodeOf(error);
      // 405: held exclusively by another connection. 403: this user may not look.
      if (code === undefined) throw new WarrenError('broker-unavailable', { reason: 'no answer' }, error);
      return { code, error, value: currentValueIn(error.message) };
    }
  });
}

/** What the broker has instead, so that it can be asked with it: a text, a number, or `undefined` for none. */
function currentValueIn(words: string): string | number | undefined {
  const match = /current is (?:the value )?'([^']*)'(?: of type '(\w+)')?/.exec(words);
  if (match === null) return undefined;
  const [, value = '', type = 'longstr'] = match;
  return type === 'longstr' ? value : Number(value);
}

/** Reads `inequivalent arg 'x-max-priority' for queue '…' in vhost '/': received none but current is the value '10' of type 'signedint'`. */
function readRefusal(refusal: Refusal): { argument?: string; expected?: string; actual?: string } {
  const match = /inequivalent arg '([^']+)'.*?: received (.+?) but current is (.+?)(?:"|$)/s.exec(
    refusal.error.message,
  );
  if (match === null) return { actual: refusal.error.message.slice(0, 300) };
  const [, argument = '', expected = '', actual = ''] = match;
  return { argument, expected: valueIn(expected), actual: valueIn(actual) };
}

function valueIn(words: string): string {
  return /'([^']*)'/.exec(words)?.[1] ?? words.trim();
}
