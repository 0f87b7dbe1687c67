/** THE topology: every exchange, queue and binding of Warren, as plain data. Pure; `topology-apply.ts` declares it. */
import { WarrenError } from '../errors/warren-error.ts';
import type { QueueType } from './capabilities.ts';

/** Names of all that Warren has on a broker, made from one prefix. */
export interface Names {
  /** Topic exchange, the public front door: routing key = task type. */
  readonly tasks: string;
  /** Queue behind the front door, drained by producers. */
  readonly ingress: string;
  /** Direct exchange of invitations: routing key = queue name without prefix. */
  readonly work: string;
  /** Name of the work queue for one queue name: `high` → `warren.q.high`. */
  readonly queue: (queue: string) => string;
  /** Dead-letter exchange of ingress and work queues. Other services may point their own queues at it. */
  readonly dlx: string;
  /** Queue of everything that died. */
  readonly dead: string;
  /** Topic exchange of lifecycle events. */
  readonly events: string;
}

/** One exchange. All are durable. */
export interface ExchangeSpec {
  readonly name: string;
  readonly type: 'topic' | 'direct';
}

/** One queue. All are durable. */
export interface QueueSpec {
  readonly name: string;
  readonly arguments: Readonly<Record<string, string | number>>;
}

/** One binding of a queue to an exchange. */
export interface BindingSpec {
  readonly exchange: string;
  readonly queue: string;
  readonly routingKey: string;
}

/** All that is declared. */
export interface Topology {
  readonly exchanges: readonly ExchangeSpec[];
  readonly queues: readonly QueueSpec[];
  readonly bindings: readonly BindingSpec[];
}

/** What the topology depends on. */
export interface TopologyOptions {
  /** Start of all names. Default `warren`. 1 to 60 characters of `a-z A-Z 0-9 . _ -`. */
  readonly prefix: string;
  /** Work queues, without prefix. Repeated names count once. */
  readonly queues: readonly string[];
  readonly queueType: QueueType;
}

/** Lowest, highest and usual priority of a task; 9 goes first. */
export const PRIORITY = { lowest: 0, highest: 9, usual: 4 } as const;

const NAME = /^[a-zA-Z0-9](?:[a-zA-Z0-9._-]*[a-zA-Z0-9])?$/;
const LONGEST_QUEUE_NAME = 100;
const LONGEST_PREFIX = 60;

/** True for a name that a queue of Warren may have: 1 to 100 letters, digits, `.`, `_`, `-`, not at the ends. */
export function isQueueName(name: string): boolean {
  return name.length <= LONGEST_QUEUE_NAME && NAME.test(name);
}

/** All names under `prefix`. Throws `field-invalid` for a prefix that cannot be one. */
export function namesOf(prefix: string): Names {
  if (prefix.length > LONGEST_PREFIX || !NAME.test(prefix)) {
    throw new WarrenError('field-invalid', {
      field: 'prefix',
      reason: `must be 1 to ${LONGEST_PREFIX} letters, digits, dots, underscores or dashes`,
    });
  }
  return {
    tasks: `${prefix}.tasks`,
    ingress: `${prefix}.ingress`,
    work: `${prefix}.work`,
    queue: (queue) => `${prefix}.q.${queue}`,
    dlx: `${prefix}.dlx`,
    dead: `${prefix}.dead`,
    events: `${prefix}.events`,
  };
}

/** True for the name of a queue that is Warren's own: nobody outside may have it written to by our hand. */
export function isOwnQueue(name: string, { ingress, dead, queue }: Pick<Names, 'ingress' | 'dead' | 'queue'>): boolean {
  return name === ingress || name === dead || name.startsWith(queue(''));
}

/** The topology. Throws `field-invalid` for a prefix or queue name that cannot be one. */
export function topologyOf(options: TopologyOptions): Topology {
  const names = namesOf(options.prefix);
  const queues = [...new Set(options.queues)];
  for (const queue of queues) {
    if (isQueueName(queue)) continue;
    throw new WarrenError('field-invalid', {
      field: 'queue',
      reason: `must be 1 to ${LONGEST_QUEUE_NAME} letters, digits, dots, underscores or dashes`,
      value: queue.slice(0, LONGEST_QUEUE_NAME),
    });
  }
  const working = workingArguments(options.queueType, names.dlx);
  return {
    exchanges: [
      { name: names.tasks, type: 'topic' },
      { name: names.work, type: 'direct' },
      // A topic exchange bound by '#' takes every routing key, as a fanout would (letters keep the key they died with),
      // and still lets an operator bind a queue of his own to a part of the letters, which a fanout would not.
      { name: names.dlx, type: 'topic' },
      { name: names.events, type: 'topic' },
    ],
    queues: [
      { name: names.ingress, arguments: working },
      ...queues.map((queue) => ({ name: names.queue(queue), arguments: working })),
      { name: names.dead, arguments: deadArguments(options.queueType) },
    ],
    bindings: [
      { exchange: names.tasks, queue: names.ingress, routingKey: '#' },
      ...queues.map((queue) => ({ exchange: names.work, queue: names.queue(queue), routingKey: queue })),
      { exchange: names.dlx, queue: names.dead, routingKey: '#' },
    ],
  };
}

function workingArguments(queueType: QueueType, dlx: string): QueueSpec['arguments'] {
  if (queueType === 'classic') {
    // 10 priorities, 0 to 9. Each costs the broker memory and a process, which is why not more.
    return { 'x-queue-type': 'classic', 'x-max-priority': 10, 'x-dead-letter-exchange': dlx };
  }
  return {
    // Quorum queues have 32 strict priorities from 4.3 on and refuse x-max-priority.
    'x-queue-type': 'quorum',
    'x-dead-letter-exchange': dlx,
    // Letters wait in their queue until the dead-letter queue has confirmed them; needs reject-publish.
    'x-dead-letter-strategy': 'at-least-once',
    'x-overflow': 'reject-publish',
    // Attempts are counted by claims. The broker's own limit of 20 would take away a long task of a fleet that restarts often.
    'x-delivery-limit': -1,
  };
}

/** The dead-letter queue has no dead-letter exchange: a letter that nobody can record must stay, not go round. */
function deadArguments(queueType: QueueType): QueueSpec['arguments'] {
  return queueType === 'classic' ? { 'x-queue-type': 'classic' } : { 'x-queue-type': 'quorum', 'x-delivery-limit': -1 };
}
