/**
 * THE WAY OF ONE DELIVERY; read this first.
 *
 * RabbitMQ hands over an invitation, Postgres decides whether its task may run, and how the run ended; only then is
 * the delivery answered. Whatever dies in between, the row says the truth and the broker delivers again.
 */
import type { Delivery } from '../../shared/amqp/consumer.ts';
import { parseInvitation } from '../../shared/amqp/message.ts';
import { toError } from '../../shared/errors/to-error.ts';
import { isWarrenError } from '../../shared/errors/warren-error.ts';
import type { Logger } from '../../shared/observability/log.ts';
import type { TaskType } from '../../shared/tasks/define-task.ts';
import type { Outcome } from '../../shared/tasks/outcome.ts';
import { attemptFacts } from './attempt-facts.ts';
import type { AttemptSpans, AttemptTraces } from './attempt-traces.ts';
import type { Claim, ClaimAnswer } from './claims.ts';
import type { Isolation } from './isolation.ts';
import type { Settled } from './settles.ts';
import type { Slots } from './slots.ts';
import { judge } from './verdict.ts';
import type { Verdict } from './verdict.ts';

/** What an invitation names. */
interface Wanted {
  readonly taskId: string;
  readonly generation: number;
}

/** What the way of a delivery needs. */
export interface AttemptDeps {
  /** The task type of this name, where this worker has it. */
  readonly findType: (name: string) => TaskType | undefined;
  /** Puts a task of a type unknown here off, before any claim. Throws while Postgres is away. */
  readonly deferUnknown: (wanted: Wanted) => Promise<void>;
  readonly claim: (wanted: Wanted) => Promise<ClaimAnswer>;
  /** Of a worker that starts only so many attempts: what is left of them. One that is not started gives its place back. */
  readonly allowance?: Pick<Slots, 'take' | 'release'> | undefined;
  /** Who may run beside whom in this worker. */
  readonly isolation: Isolation;
  /** Writes down that an attempt starts alone; false where the claim is no longer this worker's. Throws while Postgres is away. */
  readonly markAlone: (claim: Claim) => Promise<boolean>;
  /** Handlers that ignored their abort and may still run in this worker, outside of any slot. */
  readonly abandonedHandlers: () => number;
  /** Runs the handler; never throws. */
  readonly run: (type: TaskType, claim: Claim) => Promise<Outcome>;
  readonly succeed: (claim: Claim, result: Buffer | undefined) => Promise<Settled>;
  readonly settle: (claim: Claim, verdict: Verdict) => Promise<Settled>;
  /** A task of this type has left its place under this key: the next may run. */
  readonly freePlace: (type: string, key: string) => void;
  /** Resolves once no transaction of the handler holds the task: see `Settles.whenDecided`. */
  readonly whenDecided: (claim: Claim) => Promise<void>;
  /** Invites a task that was not started anew, by a way that keeps its priority; false where that could not be done. */
  readonly inviteAgain: (wanted: Wanted) => Promise<boolean>;
  /**
   * Milliseconds that a delivery may stay unanswered. A type that may run longer has its delivery acked at the claim, since
   * RabbitMQ would take it back in the middle of the run; from then on the lease alone guards the task.
   */
  readonly mostUnansweredMs: number;
  /** True from SIGTERM on. */
  readonly isDraining: () => boolean;
  readonly random: () => number;
  readonly log: Logger;
  readonly observe: AttemptObserver;
  /** Makes spans; `undefined` where nobody wants any. */
  readonly traces?: Pick<AttemptTraces, 'begin'> | undefined;
}

/** Told what happens; counts it. */
export interface AttemptObserver {
  /** `lost`: somebody else decided; `held`: a limit is reached, or the queue is paused; `unknown_type`: this worker does not have it. */
  readonly claimRefused: (kind: 'lost' | 'held' | 'unknown_type') => void;
  readonly started: (type: TaskType, claim: Claim) => void;
  readonly ended: (type: TaskType, claim: Claim, outcome: Outcome) => void;
  readonly settled: (type: TaskType, claim: Claim, outcome: Outcome, settled: Settled) => void;
}

/**
 * The way of one delivery. Each exit answers the broker, or leaves it to the death of the channel; after the early ack of a long
 * task its answer does nothing.
 */
export async function handleDelivery(delivery: Delivery, slots: Slots, deps: AttemptDeps): Promise<void> {
  const invitation = parseInvitation(delivery.body);
  if (invitation === undefined) return delivery.reject(); // not ours: the dead-letter exchange keeps it

  try {
    const type = deps.findType(invitation.type);
    if (type === undefined) {
      await deps.deferUnknown(invitation);
      deps.observe.claimRefused('unknown_type');
      return delivery.ack();
    }

    if (deps.allowance !== undefined && (await deps.allowance.take(delivery.priority)) === 'given-back') {
      return await giveBack(delivery, invitation, deps);
    }
    const turn = slots.take(delivery.priority);
    if ((turn === 'slot' ? turn : await turn) === 'given-back') {
      deps.allowance?.release();
      return await giveBack(delivery, invitation, deps);
    }

    const run = await claimAndRun(delivery, type, invitation, slots, deps);
    if (run === 'given-back') return await giveBack(delivery, invitation, deps);
    if (run === undefined) return delivery.ack(); // a duplicate, stale, cancelled, held back: Postgres knows what becomes of it

    // A handler that settled in its own transaction may have committed it, whatever it did afterwards: then this settle wins
    // nothing, and finds the attempt succeeded. Where it was rolled back, what the handler did counts.
    if (run.outcome.mayBeSettled === true) await deps.whenDecided(run.claim);
    const isThrough = run.spans?.settling();
    const settled = await settleOutcome(run, deps); // Postgres first,
    isThrough?.(settled);
    deps.observe.settled(run.type, run.claim, run.outcome, settled);
    if (run.claim.concurrencyKey !== undefined) deps.freePlace(run.claim.type, run.claim.concurrencyKey);
    if (settled === 'dead') delivery.reject(); // then the broker: the DLX brings its evidence to the dead letter
    else delivery.ack();
  } catch (thrown) {
    // The worker stops while Postgres is away: nobody knows how it stands, so the broker delivers again.
    if (!isWarrenError(thrown, 'attempt-interrupted')) {
      deps.log.error('delivery failed', { taskId: invitation.taskId, taskType: invitation.type, err: toError(thrown) });
    }
    delivery.nack();
  }
}

interface Run {
  readonly type: TaskType;
  readonly claim: Claim;
  readonly outcome: Outcome;
  readonly spans?: AttemptSpans | undefined;
}

/** This worker cannot run it now: an invitation of another type named it, or Postgres went away. No attempt of the budget is spent. */
const NOT_HERE: Outcome = { kind: 'deferred', delayMs: 10_000, why: 'handler' };

/**
 * Lost attempts from which on a task is a suspect and runs alone. Not from the first: a large worker that is killed would leave
 * hundreds of innocent ones to be run one by one. Among those that were lost twice there are few.
 */
const SUSPECT_FROM = 2;

/** Holds the slot, and its place in this worker, from the claim to the end of the handler; the settle needs neither. */
async function claimAndRun(
  delivery: Delivery,
  invited: TaskType,
  invitation: Wanted,
  slots: Slots,
  deps: AttemptDeps,
): Promise<Run | 'given-back' | undefined> {
  let isInside = false;
  let isStarted = false;
  try {
    const entry = deps.isolation.enter();
    if ((entry === 'in' ? entry : await entry) === 'given-back') return 'given-back';
    isInside = true;
    // While it waited its channel may have died: then the broker has handed it to another.
    if (!delivery.isAlive) return undefined;
    const answer = await deps.claim(invitation);
    if (answer.kind !== 'won') {
      deps.observe.claimRefused(answer.kind);
      return undefined;
    }
    let { claim } = answer;
    // The row is believed, not the message: an invitation chooses no code.
    const type = claim.type === invited.name ? invited : deps.findType(claim.type);
    if (type === undefined) return { type: invited, claim, outcome: NOT_HERE };
    if (type.timeoutMs > deps.mostUnansweredMs) delivery.ack();
    const standing = claim.lostAttempts < SUSPECT_FROM ? undefined : await isolate(type, claim, deps);
    if (standing !== undefined) return { type, claim, outcome: standing };
    const spans = deps.traces?.begin(type, claim, delivery);
    if (spans !== undefined) ({ claim } = spans);
    isStarted = true;
    deps.observe.started(type, claim);
    const outcome = await (spans === undefined ? deps.run(type, claim) : spans.run(() => deps.run(type, claim)));
    deps.observe.ended(type, claim, outcome);
    spans?.ended(outcome);
    return { type, claim, outcome, spans };
  } finally {
    if (!isStarted) deps.allowance?.release();
    if (isInside) deps.isolation.leave();
    slots.release();
  }
}

/**
 * Waits until nothing else runs in this worker and says so in Postgres: only what is lost after that is this task's own doing.
 * Beside a handler that ignored its abort nothing is said: whose doing the loss is, nobody could tell.
 * An outcome instead where the attempt shall not start.
 */
async function isolate(type: TaskType, claim: Claim, deps: AttemptDeps): Promise<Outcome | undefined> {
  const { taskId, lostAttempts } = claim;
  const facts = attemptFacts(type.name, claim);
  deps.log.warn('attempt waits to run alone', { ...facts, lostAttempts });
  const turn = await deps.isolation.alone(taskId);
  if (turn !== 'alone') return { kind: 'interrupted', by: turn };
  try {
    if (deps.abandonedHandlers() === 0 && !(await deps.markAlone(claim))) return { kind: 'interrupted', by: 'lease' };
  } catch (thrown) {
    deps.log.warn('attempt put off', { ...facts, err: toError(thrown) });
    return NOT_HERE;
  }
  return deps.isDraining() ? { kind: 'interrupted', by: 'shutdown' } : undefined;
}

function settleOutcome({ type, claim, outcome }: Run, deps: AttemptDeps): Promise<Settled> {
  if (outcome.kind === 'succeeded') return deps.succeed(claim, outcome.result);
  const budget = { failures: claim.failures, maxAttempts: claim.maxAttempts, policy: type.retry };
  return deps.settle(claim, judge(outcome, budget, deps.random));
}

/**
 * Gives a delivery back that never started. A draining worker invites anew and acks: from RabbitMQ 4.3 on, what is nacked
 * comes first whatever its priority (rabbitmq.com, quorum queues).
 */
async function giveBack(delivery: Delivery, invitation: Wanted, deps: AttemptDeps): Promise<void> {
  if (deps.isDraining() && delivery.isAlive && (await deps.inviteAgain(invitation))) return delivery.ack();
  return delivery.nack();
}
