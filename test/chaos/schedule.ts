/** Which fault comes when: drawn by the seed, each lane from a pack that is shuffled anew when it is used up. */
import { toError } from '../../shared/errors/to-error.ts';
import { systemClock } from '../../shared/time/clock.ts';
import { seeded, shuffled } from '../support/seeded.ts';
import { ALL } from './faults.ts';
import type { Aim, Fault, FaultSite } from './faults.ts';
import type { Injected } from './figures.ts';

/** How faults are injected. */
export interface ScheduleOptions {
  readonly random: () => number;
  /** No fault begins after this, on the monotonic clock. */
  readonly untilMs: number;
  readonly tell: (line: string) => void;
  readonly signal?: AbortSignal;
}

/** One fault that is to come. */
export interface Planned extends Aim {
  readonly fault: Fault;
  /** Milliseconds of quiet before it. */
  readonly afterMs: number;
}

const LANES = ['services', 'links', 'servers', 'operators'] as const;
const QUIET_MS = { least: 300, most: 2_500 } as const;
/** An operator whose call must go through, however long no producer answers, would have the queue paused half of the time. */
const OPERATOR_QUIET_MS = { least: 8_000, most: 20_000 } as const;

/** Injects faults until the time is over; resolves when the last of them is mended. Never rejects for a fault that failed. */
export async function inject(
  site: FaultSite,
  faults: readonly Fault[],
  options: ScheduleOptions,
): Promise<readonly Injected[]> {
  const startMs = systemClock.monotonicMs();
  const injected: Injected[] = [];
  const lanes = LANES.map(async (lane) => {
    // A lane of its own source: how long a restart takes must not change what comes in the other lane.
    const plan = planOf(
      faults.filter((fault) => fault.lane === lane),
      seeded(Math.floor(options.random() * 2 ** 31)),
    );
    for (const planned of plan) {
      await systemClock.sleep(planned.afterMs, options.signal);
      if (options.signal?.aborted === true || systemClock.monotonicMs() >= options.untilMs) return;
      const seconds = ((systemClock.monotonicMs() - startMs) / 1_000).toFixed(1);
      const target = planned.fault.target(site, planned);
      const held = planned.holdMs === 0 ? '' : ` for ${(planned.holdMs / 1_000).toFixed(1)} s`;
      options.tell(
        `${seconds.padStart(6)} s  ${planned.fault.name}${target === ALL && planned.fault.lane !== 'links' ? '' : `: ${target}`}${held}`,
      );
      const done = await strike(site, planned, target);
      if (done.failed !== undefined) options.tell(`          could not be injected: ${done.failed}`);
      injected.push(done);
    }
  });
  await Promise.all(lanes);
  const restMs = options.untilMs - systemClock.monotonicMs();
  if (restMs > 0) await systemClock.sleep(restMs, options.signal);
  return injected;
}

/** Every fault of a lane once, in an order of chance, then again in another. Endless, unless there are no faults. */
export function* planOf(faults: readonly Fault[], random: () => number): Generator<Planned, void> {
  while (faults.length > 0) {
    for (const fault of shuffled(faults, random)) {
      const [least, most] = fault.holdMs;
      const quiet = fault.lane === 'operators' ? OPERATOR_QUIET_MS : QUIET_MS;
      const afterMs = quiet.least + random() * (quiet.most - quiet.least);
      yield { fault, afterMs, choice: random(), holdMs: least + random() * (most - least) };
    }
  }
}

async function strike(site: FaultSite, { fault, choice, holdMs }: Planned, target: string): Promise<Injected> {
  const beganAtMs = systemClock.now().getTime();
  let failed: string | undefined;
  try {
    await fault.strike(site, { choice, holdMs });
  } catch (thrown) {
    failed = toError(thrown).message;
  }
  const mendedAtMs = systemClock.now().getTime();
  const base = { name: fault.name, target, beganAtMs, mendedAtMs, hitsAll: target === ALL };
  return failed === undefined ? base : { ...base, failed };
}
