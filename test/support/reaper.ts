/** A reaper whose patience a test moves. */
import { createReaper } from '../../services/producer/reaper.ts';
import type { Database } from '../../shared/postgres/pool.ts';
import type { OutboxRow } from '../../shared/tasks/invitation.ts';
import { systemClock } from '../../shared/time/clock.ts';
import { openFaulty, partDeps } from './core.ts';
import type { FaultyDatabase } from './core.ts';
import { eventually } from './eventually.ts';

/** A running reaper. */
export interface TestReaper extends AsyncDisposable {
  /** Its way to Postgres. */
  readonly db: FaultyDatabase;
  /** Outbox rows that it would have published. */
  readonly invited: OutboxRow[];
  /** Moves its own clock forward at once: more than half a lease time is a gap between its rounds. */
  jump(ms: number): void;
  /** Resolves after the round under way and one more. */
  rounds(): Promise<void>;
  /** Lets so much time pass in steps that leave no gap. */
  wait(ms: number): Promise<void>;
}

/** Starts one that loses tasks at the third attempt lost alone. */
export async function openReaper(db: Database, lapseMs: number, intervalMs = 5): Promise<TestReaper> {
  const faulty = await openFaulty(db);
  const invited: OutboxRow[] = [];
  let aheadMs = 0;
  const clock = { ...systemClock, monotonicMs: () => systemClock.monotonicMs() + aheadMs };
  const invite = async (row: OutboxRow): Promise<boolean> => {
    invited.push(row);
    return await Promise.resolve(true);
  };
  const loop = createReaper({ ...partDeps, clock, db: faulty, invite }, { intervalMs, lapseMs, maxLostAlone: 3 });
  await loop.start();
  const asked = (): number => faulty.sent.filter((name) => name === 'read_uptime').length;
  const rounds = async (): Promise<void> => {
    const before = asked();
    await eventually(
      () => {
        if (asked() < before + 2) throw new RangeError('the reaper makes no rounds');
      },
      { everyMs: 2 },
    );
  };
  return {
    db: faulty,
    invited,
    rounds,
    jump: (ms) => {
      aheadMs += ms;
    },
    async wait(ms) {
      const step = lapseMs / 4;
      for (let left = ms; left > 0; left -= step) {
        await rounds();
        aheadMs += Math.min(step, left);
      }
      await rounds();
    },
    async [Symbol.asyncDispose]() {
      await loop.stop(clock.monotonicMs() + 2_000);
      await faulty[Symbol.asyncDispose]();
    },
  };
}
