/**
 * Publishes what happens to tasks, where that is switched on: each transition as a CloudEvent on the topic exchange of events. The
 * table of tasks writes its transitions down in the transaction that makes them; a row goes once RabbitMQ has confirmed all of it. So
 * every event comes at least once, and the statements that move tasks are the same with and without.
 */
import type { Outgoing } from '../../shared/amqp/outgoing.ts';
import { isWarrenError } from '../../shared/errors/warren-error.ts';
import { Loop } from '../../shared/lifecycle/loop.ts';
import type { LoopDeps } from '../../shared/lifecycle/loop.ts';
import type { Metrics } from '../../shared/observability/metrics.ts';
import { traceHeaders } from '../../shared/observability/trace-context.ts';
import { execute, run } from '../../shared/postgres/statement.ts';
import type { Queryable, RowOf } from '../../shared/postgres/statement.ts';
import { forgetEvents, switchEvents, takeEvents } from './lifecycle-events.sql.ts';

/** What events need. */
export interface LifecycleEventsDeps extends Omit<LoopDeps, 'round'> {
  readonly db: Queryable;
  /** Name of the exchange. */
  readonly exchange: string;
  /** Publishes; resolves with the broker's confirm. */
  readonly publish: (message: Outgoing) => Promise<void>;
  readonly canPublish: () => boolean;
  readonly metrics: Pick<Metrics, 'published'>;
}

/** How events are published. */
export interface LifecycleEventsOptions {
  /** False: the table is told to write nothing down, and that is all. */
  readonly isEnabled: boolean;
  /** The prefix, as events name their source. */
  readonly installation: string;
}

type EventRow = RowOf<typeof takeEvents.columns>;

const EVERY_MS = 100;
const OFF_EVERY_MS = 60_000;
/** Each holds what one statement moved, up to 500 transitions. */
const ROWS_AT_ONCE = 4;
/** Milliseconds after which a row that was taken may be taken again; longer than a confirm may take. */
const RETRY_IN_MS = 15_000;
const CONTENT_TYPE = 'application/cloudevents+json; charset=UTF-8';

/** Makes the part. */
export function createLifecycleEvents(deps: LifecycleEventsDeps, options: LifecycleEventsOptions): Loop {
  const { db, log } = deps;
  let isSwitched = false;

  const round = async (): Promise<boolean> => {
    if (!isSwitched) {
      const [row] = await run(db, switchEvents, options.isEnabled);
      isSwitched = true;
      if (row?.was_on !== options.isEnabled) log.info('lifecycle events switched', { enabled: options.isEnabled });
    }
    // What was written down before events were switched off is published all the same.
    if (!deps.canPublish()) return false;
    const rows = await run(db, takeEvents, ROWS_AT_ONCE, RETRY_IN_MS);
    for (const row of rows) await publishRow(row, deps, options);
    await execute(
      db,
      forgetEvents,
      rows.map(({ id }) => id),
    );
    return rows.length === ROWS_AT_ONCE;
  };
  const intervalMs = options.isEnabled ? EVERY_MS : OFF_EVERY_MS;
  return new Loop({ ...deps, round }, { name: 'lifecycle events', intervalMs });
}

/** Publishes all of a row. Throws where one is not confirmed: then all of it comes again. */
async function publishRow(
  row: EventRow,
  { exchange, publish, metrics }: LifecycleEventsDeps,
  { installation }: LifecycleEventsOptions,
): Promise<void> {
  try {
    await Promise.all(row.task_ids.map(async (_taskId, n) => await publish(messageOf(row, n, exchange, installation))));
    metrics.published.add(row.task_ids.length, 'event', 'confirmed');
  } catch (thrown) {
    metrics.published.add(1, 'event', isWarrenError(thrown, 'confirm-late') ? 'late' : 'lost');
    throw thrown;
  }
}

/** One transition in the structured form of CloudEvents 1.0. Nobody need be bound: then it goes nowhere. */
function messageOf(row: EventRow, n: number, exchange: string, installation: string): Outgoing {
  const taskId = row.task_ids[n] ?? '';
  const type = row.types[n] ?? '';
  const state = row.states[n] ?? '';
  const id = `${row.id}-${n}`;
  const trace = row.traces?.[n];
  const event = {
    specversion: '1.0',
    id,
    source: `/warren/${installation}`,
    type: `warren.task.${state}`,
    subject: taskId,
    time: row.at,
    datacontenttype: 'application/json',
    data: { id: taskId, type, queue: row.queues[n], state, attempt: row.attempts[n] },
  };
  return {
    exchange,
    routingKey: `${type}.${state}`,
    body: Buffer.from(JSON.stringify(event)),
    properties: {
      contentType: CONTENT_TYPE,
      messageId: id,
      ...(trace === undefined || trace === null ? {} : { headers: traceHeaders(trace) }),
    },
    mandatory: false,
  };
}
