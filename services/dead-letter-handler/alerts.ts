/**
 * Finds what an operator should be told of, and hands it in as tasks: one for each alert and channel, through the front door. An alert
 * is a row before it is a message, and stays one until RabbitMQ has confirmed it for every channel. So a crash at any moment, and
 * RabbitMQ's absence, cost time alone; what is published twice has the same message id and is accepted once.
 */
import { JSON_CONTENT_TYPE, SUBMISSION_HEADERS } from '../../shared/amqp/message.ts';
import type { Outgoing } from '../../shared/amqp/publisher.ts';
import type { Names } from '../../shared/amqp/topology.ts';
import type { Config } from '../../shared/config/schema.ts';
import { ALERT_TYPE, NO_GROUP } from '../../shared/dead-letters/alert.ts';
import type { Alert, AlertGroup } from '../../shared/dead-letters/alert.ts';
import { toError } from '../../shared/errors/to-error.ts';
import { isWarrenError, WarrenError } from '../../shared/errors/warren-error.ts';
import { Loop } from '../../shared/lifecycle/loop.ts';
import type { LoopDeps } from '../../shared/lifecycle/loop.ts';
import type { Metrics } from '../../shared/observability/metrics.ts';
import { isWorthTelling } from '../../shared/observability/repeats.ts';
import type { Database } from '../../shared/postgres/pool.ts';
import { execute, run } from '../../shared/postgres/statement.ts';
import type { RowOf } from '../../shared/postgres/statement.ts';
import { newId } from '../../shared/tasks/ids.ts';
import { storableText } from '../../shared/tasks/outcome.ts';
import {
  addAlert,
  countRecentAlerts,
  findGrowingGroups,
  findNewGroups,
  findOldestLetter,
  forgetAlerts,
  markHandedIn,
  takeAlerts,
} from './alerts.sql.ts';

/** What alerts need. */
export interface AlertsDeps extends Omit<LoopDeps, 'round'> {
  readonly db: Database;
  readonly names: Pick<Names, 'tasks'>;
  readonly metrics: Pick<Metrics, 'alerts' | 'published'>;
  /** Publishes with confirm; see `Publisher.publish`. */
  readonly publish: (message: Outgoing) => Promise<void>;
  /** True while a publish would be tried. */
  readonly canPublish: () => boolean;
  /** False where RabbitMQ has no such exchange: a publish to it would close the channel. Throws `broker-unavailable`. */
  readonly hasExchange: (name: string) => Promise<boolean>;
}

/** What is worth an alert, and where alerts go. */
export interface AlertsOptions extends Omit<Config['alerts'], 'channels'> {
  /** The prefix, as alerts tell of which installation they are. */
  readonly installation: string;
  /** Milliseconds after which an alert that nobody marked is handed in again; longer than a confirm may take. */
  readonly againAfterMs: number;
}

const PER_ROUND = 20;
const FORGOTTEN_PER_ROUND = 500;
/** Who submits, as its tasks show. With it the front door tells a message id that comes again. */
const APP_ID = 'warren-dead-letter-handler';
const LONGEST_TEXT = 500;

type Found = Pick<Alert, 'kind' | 'group' | 'growth' | 'oldest' | 'openLetters'> & { readonly now: Date | null };
type GroupRow = Omit<RowOf<typeof findNewGroups.columns>, 'now'>;

/** Finds alerts and hands them in. */
export class Alerts {
  readonly #deps: AlertsDeps;
  readonly #options: AlertsOptions;
  #heldBackInRow = 0;

  constructor(deps: AlertsDeps, options: AlertsOptions) {
    this.#deps = deps;
    this.#options = options;
  }

  /** The loop. */
  loop(): Loop {
    const round = async (signal: AbortSignal): Promise<boolean> => {
      await this.find();
      await execute(this.#deps.db, forgetAlerts, FORGOTTEN_PER_ROUND);
      return await this.handIn(signal);
    };
    return new Loop({ ...this.#deps, round }, { name: 'alerts', intervalMs: this.#options.intervalMs });
  }

  /** Writes down what is worth an alert, as many as the hour still lets. Throws as `Queryable.query`. */
  async find(): Promise<void> {
    const { db, log, metrics } = this.#deps;
    const { quietMs, maxPerHour, installation } = this.#options;
    const found = await this.#look();
    if (found.length === 0) return;
    const [recent] = await run(db, countRecentAlerts);
    const room = Math.max(0, maxPerHour - (recent?.alerts ?? 0));
    this.#heldBackInRow = found.length > room ? this.#heldBackInRow + 1 : 0;
    if (found.length > room && isWorthTelling(this.#heldBackInRow)) log.warn('alerts held back', { maxPerHour });
    for (const { now, ...what } of found.slice(0, room)) {
      const id = newId<string>();
      const alert: Alert = { id, installation, foundAt: instantOf(now), ...what };
      const groupId = what.kind === 'oldest_letter' ? NO_GROUP : (what.group?.id ?? NO_GROUP);
      const added = await run(db, addAlert, id, what.kind, groupId, JSON.stringify(alert), quietMs);
      if (added.length === 0) continue; // another replica was faster
      metrics.alerts.add(1, what.kind);
      log.info('alert found', { alertId: id, kind: what.kind, groupId });
    }
  }

  /** Hands in what waits for it; true where there may be more. Throws as `Queryable.query`. */
  async handIn(signal?: AbortSignal): Promise<boolean> {
    const { db, log, canPublish } = this.#deps;
    const { sendTo, againAfterMs } = this.#options;
    const isPointless = (): boolean => sendTo.length > 0 && !canPublish();
    // What was taken waits for `againAfterMs`, so nothing is taken for nothing.
    if (isPointless()) return false;
    const taken = await run(db, takeAlerts, againAfterMs, PER_ROUND);
    for (const { id, alert } of taken) {
      if (signal?.aborted === true || isPointless()) return false;
      try {
        if (sendTo.length > 0) await this.#publish(id, alert);
      } catch (thrown) {
        log.warn('alert not handed in', { alertId: id, err: toError(thrown) });
        continue;
      }
      await execute(db, markHandedIn, id);
    }
    return taken.length === PER_ROUND;
  }

  /** What is worth an alert now, the most pressing of each kind first. */
  async #look(): Promise<readonly Found[]> {
    const { db } = this.#deps;
    const { quietMs, growthWindowMs: windowMs, growthLetters, oldestMs } = this.#options;
    const fresh = await run(db, findNewGroups, quietMs, PER_ROUND);
    const growing = await run(db, findGrowingGroups, windowMs, growthLetters, quietMs, PER_ROUND);
    const oldest = await run(db, findOldestLetter, oldestMs, quietMs);
    const common = { growth: null, oldest: null, openLetters: null };
    return [
      ...oldest.map((row) => foundOldest(row)),
      ...fresh.map(({ now, ...row }): Found => ({ ...common, kind: 'new_group', group: groupOf(row), now })),
      ...growing.map(({ now, grown_by: letters, ...row }): Found => ({
        ...common,
        kind: 'growing_group',
        group: groupOf(row),
        growth: { letters: Number(letters ?? 0), windowMs },
        now,
      })),
    ];
  }

  /** To every channel; resolves when RabbitMQ has confirmed all. The bytes are the same each time, since the row is. */
  async #publish(id: string, alert: unknown): Promise<void> {
    const { names, metrics, publish, hasExchange } = this.#deps;
    if (!(await hasExchange(names.tasks))) throw new WarrenError('unroutable', { exchange: names.tasks });
    for (const channel of this.#options.sendTo) {
      try {
        await publish({
          exchange: names.tasks,
          routingKey: ALERT_TYPE,
          body: Buffer.from(JSON.stringify({ channel, alert })),
          properties: {
            messageId: `${id}.${channel}`,
            appId: APP_ID,
            contentType: JSON_CONTENT_TYPE,
            headers: { [SUBMISSION_HEADERS.businessKey]: id },
          },
          mandatory: true,
        });
        metrics.published.add(1, 'alert', 'confirmed');
      } catch (thrown) {
        metrics.published.add(1, 'alert', answerOf(thrown));
        throw thrown;
      }
    }
  }
}

function groupOf(row: GroupRow): AlertGroup {
  return {
    id: row.id,
    kind: row.kind,
    type: row.type,
    rule: row.rule,
    errorType: bounded(row.error_type),
    errorMessage: bounded(row.error_message),
    state: row.state,
    letters: Number(row.letters),
    openLetters: Number(row.open_letters),
    firstAt: row.first_at.toISOString(),
    lastAt: row.last_at.toISOString(),
    queues: [...(row.queues ?? [])],
    codeVersions: [...(row.code_versions ?? [])],
  };
}

function foundOldest(row: RowOf<typeof findOldestLetter.columns>): Found {
  const { id, kind, state, first_at, last_at, now } = row;
  const hasGroup = id !== null && kind !== null && state !== null && first_at !== null && last_at !== null;
  const letters = { letters: row.letters ?? '0', open_letters: row.open_letters ?? '0' };
  return {
    kind: 'oldest_letter',
    group: hasGroup ? groupOf({ ...row, ...letters, id, kind, state, first_at, last_at }) : null,
    growth: null,
    oldest: {
      id: row.letter_id ?? NO_GROUP,
      type: row.letter_type,
      reason: row.reason ?? 'unknown',
      diedAt: instantOf(row.died_at),
    },
    openLetters: row.open_in_all === null ? null : Number(row.open_in_all),
    now,
  };
}

/** Never null: only Postgres does not say so of what it computes. */
function instantOf(at: Date | null): string {
  return (at ?? new Date(0)).toISOString();
}

/** A whole message of an error may be a page long; whoever wants all of it looks at the letter. */
function bounded(text: string | null): string | null {
  return text === null ? null : storableText(text, LONGEST_TEXT);
}

function answerOf(thrown: unknown): 'refused' | 'unroutable' | 'late' | 'lost' {
  if (isWarrenError(thrown, 'unroutable')) return 'unroutable';
  if (isWarrenError(thrown, 'confirm-late')) return 'late';
  return isWarrenError(thrown, 'publish-refused') ? 'refused' : 'lost';
}
