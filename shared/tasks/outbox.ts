/**
 * The way from the outbox to the broker. Whoever committed an outbox row hands it to its Inviter; the row goes when the
 * broker has confirmed, and stays for the sweeper when it has not.
 */
import { setImmediate } from 'node:timers/promises';
import { toError } from '../errors/to-error.ts';
import { isWarrenError } from '../errors/warren-error.ts';
import type { Part } from '../lifecycle/part.ts';
import type { Logger } from '../observability/log.ts';
import { isWorthTelling } from '../observability/repeats.ts';
import type { Database } from '../postgres/pool.ts';
import { run } from '../postgres/statement.ts';
import type { Clock } from '../time/clock.ts';
import type { Invitation, OutboxRow } from './invitation.ts';
import { deleteOutbox, hastenOutbox, shrinkOutbox } from './outbox.sql.ts';

/** What an inviter needs. */
export interface InviterDeps {
  readonly db: Database;
  readonly clock: Clock;
  readonly log: Logger;
  /** Publishes one invitation, mandatory and persistent; resolves with the broker's confirm. Throws WarrenError. */
  readonly publish: (invitation: Invitation) => Promise<void>;
  /** Called with a queue that the broker does not have, so that somebody declares it before the next try. */
  readonly onQueueMissing: (queue: string) => void;
}

/** Bounds of an inviter. */
export interface InviterOptions {
  /** Invitations that await their confirm at once; further rows wait their turn. 1 or more. */
  readonly maxInFlight: number;
  /** Rows that wait their turn; what is beyond stays for the sweeper, so that a slow broker fills no memory. */
  readonly maxWaiting: number;
}

/**
 * Milliseconds for which confirmed rows are gathered before they are deleted. Nobody waits for it, and at 200 tasks a second
 * a delete for each cost every process beside it a tenth of its time; a row that a crash keeps is invited twice, harmlessly.
 */
const DELETE_AFTER_MS = 100;
const MOST_DELETED_AT_ONCE = 500;
/** Invitations of one row that are written before anything else has its turn. */
const SLICE = 200;
/** Milliseconds until an invitation that the broker refused is tried again by the sweeper. */
const RETRY_IN_MS = 2_000;
/** Rows remembered while RabbitMQ is away; after a longer absence the older rows are due anyway. */
const MOST_UNSENT = 10_000;

/** Publishes invitations and forgets their outbox rows. */
export class Inviter implements Part {
  readonly #deps: InviterDeps;
  readonly #options: InviterOptions;
  readonly #underWay = new Set<Promise<boolean>>();
  readonly #waiting: { readonly count: number; readonly begin: () => void }[] = [];
  #inFlight = 0;
  #confirmed: string[] = [];
  /** Rows of which nothing was sent, since RabbitMQ was away. */
  #unsent: string[] = [];
  #failuresInRow = 0;
  #deleting: Promise<void> | undefined;
  #cancelDelete: (() => void) | undefined;

  constructor(deps: InviterDeps, options: InviterOptions) {
    this.#deps = deps;
    this.#options = options;
  }

  async start(): Promise<void> {
    await Promise.resolve();
  }

  /** Waits for what is under way; rows that were not confirmed by the deadline stay for the sweeper. */
  async stop(deadlineMs: number): Promise<void> {
    const race = new AbortController();
    const late = this.#deps.clock.sleep(deadlineMs - this.#deps.clock.monotonicMs(), race.signal);
    await Promise.race([this.idle(), late]);
    race.abort();
  }

  /** Resolves when nothing is under way. */
  async idle(): Promise<void> {
    await Promise.all(this.#underWay);
    this.#cancelDelete?.();
    await this.#delete();
  }

  /**
   * Publishes what a row invites to, then has the row deleted, soon. True where all was confirmed. Never rejects: a row that stays
   * is no loss but work for the sweeper.
   */
  async invite(row: OutboxRow): Promise<boolean> {
    const running = this.#inTurn(row);
    this.#underWay.add(running);
    try {
      return await running;
    } finally {
      this.#underWay.delete(running);
    }
  }

  async #inTurn(row: OutboxRow): Promise<boolean> {
    const count = row.invitations.length;
    if (this.#waiting.length > 0 || !this.#hasRoom(count)) {
      if (this.#waiting.length >= this.#options.maxWaiting) return false;
      await new Promise<void>((resolve) => this.#waiting.push({ count, begin: resolve }));
    } else {
      this.#inFlight += count;
    }
    try {
      return await this.#invite(row);
    } finally {
      this.#inFlight -= count;
      for (let next = this.#waiting[0]; next !== undefined && this.#hasRoom(next.count); next = this.#waiting[0]) {
        this.#waiting.shift();
        this.#inFlight += next.count;
        next.begin();
      }
    }
  }

  /** A row larger than the bound goes alone. */
  #hasRoom(count: number): boolean {
    return this.#inFlight === 0 || this.#inFlight + count <= this.#options.maxInFlight;
  }

  async #invite(row: OutboxRow): Promise<boolean> {
    const failed: string[] = [];
    let failure: unknown;
    const publish = async (invitation: Invitation): Promise<void> => {
      try {
        await this.#deps.publish(invitation);
      } catch (thrown) {
        failed.push(invitation.taskId);
        failure = thrown;
        if (isWarrenError(thrown, 'unroutable')) this.#deps.onQueueMissing(invitation.queue);
      }
    };
    await this.#inSlices(row.invitations, publish);
    try {
      if (failed.length === 0) {
        this.#failuresInRow = 0;
        this.#forget(row.id);
        return true;
      }
      this.#failuresInRow += 1;
      if (isWorthTelling(this.#failuresInRow)) {
        this.#deps.log.warn('invitations not confirmed', {
          count: failed.length,
          of: row.invitations.length,
          failuresInRow: this.#failuresInRow,
          err: toError(failure),
        });
      }
      // While RabbitMQ is away every row waits until it is back; anything else is worth an early second try.
      if (failed.length === row.invitations.length && isWarrenError(failure, 'broker-unavailable')) {
        if (this.#unsent.length < MOST_UNSENT) this.#unsent.push(row.id);
      } else {
        await run(this.#deps.db, shrinkOutbox, row.id, failed, RETRY_IN_MS);
      }
    } catch (thrown) {
      this.#deps.log.warn('outbox row not shrunk', { outboxId: row.id, err: toError(thrown) });
    }
    return false;
  }

  /**
   * The first steps of a large flow are one row: all of it at once would find the publisher's buffer full, and nothing would leave, nor
   * anything else happen in this process, before the last is written.
   */
  async #inSlices(invitations: OutboxRow['invitations'], publish: (each: Invitation) => Promise<void>): Promise<void> {
    const size = Math.min(SLICE, this.#options.maxInFlight);
    const most = Math.floor(this.#options.maxInFlight / size);
    const slices: Promise<unknown>[] = [];
    for (let at = 0; at < invitations.length; at += size) {
      if (at > 0) await setImmediate();
      await slices[slices.length - most];
      slices.push(Promise.all(invitations.slice(at, at + size).map(async (each) => await publish(each))));
    }
    await Promise.all(slices);
  }

  /** Leaves what could not be sent to the sweeper at once: RabbitMQ takes messages again. Never rejects. */
  async hasten(): Promise<void> {
    const ids = this.#unsent;
    this.#unsent = [];
    if (ids.length === 0) return;
    try {
      await run(this.#deps.db, hastenOutbox, ids);
    } catch (thrown) {
      this.#deps.log.warn('outbox rows wait for their time', { count: ids.length, err: toError(thrown) });
    }
  }

  #forget(id: string): void {
    this.#confirmed.push(id);
    if (this.#confirmed.length >= MOST_DELETED_AT_ONCE) {
      void this.#delete(); // never rejects
    } else if (this.#confirmed.length === 1) {
      this.#cancelDelete = this.#deps.clock.after(DELETE_AFTER_MS, () => void this.#delete());
    }
  }

  async #delete(): Promise<void> {
    this.#deleting ??= this.#deleteAll().finally(() => {
      this.#deleting = undefined;
    });
    await this.#deleting;
  }

  async #deleteAll(): Promise<void> {
    while (this.#confirmed.length > 0) {
      const ids = this.#confirmed.splice(0, MOST_DELETED_AT_ONCE);
      try {
        await run(this.#deps.db, deleteOutbox, ids);
      } catch (thrown) {
        this.#deps.log.warn('outbox rows kept', { count: ids.length, err: toError(thrown) });
      }
    }
  }
}

/** The rows of a statement that made tasks pending. */
/** What a statement answers of a task that it made claimable. */
export interface InvitedRow {
  readonly type: string | null;
  readonly queue: string | null;
  readonly priority: number | null;
  readonly generation: number | null;
  readonly outbox_id: string | null;
}

/** Gathers what a statement answered into outbox rows; rows without an `outbox_id` invite to nothing. */
export function outboxRowsOf<Row extends InvitedRow>(
  rows: readonly Row[],
  taskIdOf: (row: Row) => string,
): OutboxRow[] {
  const byId = new Map<string, Invitation[]>();
  for (const row of rows) {
    const { type, queue, priority, generation } = row;
    if (row.outbox_id === null || type === null || queue === null || priority === null || generation === null) continue;
    const invitation = { taskId: taskIdOf(row), type, queue, priority, generation };
    const gathered = byId.get(row.outbox_id);
    if (gathered === undefined) byId.set(row.outbox_id, [invitation]);
    else gathered.push(invitation);
  }
  return [...byId].map(([id, invitations]) => ({ id, invitations }));
}
