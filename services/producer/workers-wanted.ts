/**
 * From the figures of a queue to the number of workers it wants: a pure function. Any producer may be asked, so it keeps nothing
 * between two answers; what steadies it is how many workers there are, which all of them see.
 */

/** What is known of a queue. */
export interface ScalingFigures {
  /** Tasks that could start and wait: ready in RabbitMQ, held unstarted by workers, in line for their turn. `undefined`: RabbitMQ does not say. */
  readonly waiting: number | undefined;
  /** Attempts that hold a slot of a worker that stays, acked or not. */
  readonly running: number;
  /** Tasks accepted a second. */
  readonly arrivalPerSecond: number;
  /** Mean of a run in seconds, above 0; `undefined` where no type of the queue was measured. */
  readonly meanRunSeconds: number | undefined;
  /** Attempts of this queue that one worker runs at once, above 0. */
  readonly slotsPerWorker: number;
  /** Workers that take tasks of this queue now, without those on their way out. */
  readonly workers: number;
  /** Attempts that the limits of its task types let run at once in the whole fleet; `undefined` where they let any number. */
  readonly mostRunning: number | undefined;
  /** False where it is paused: nothing starts, whatever waits. */
  readonly starts: boolean;
}

/** What the workers are wanted for. */
export interface ScalingAim {
  /** 95 of 100 tasks shall wait at most so many seconds to be started. Above 0. */
  readonly sloSeconds: number;
  /** Seconds that a new worker takes to be asked for, scheduled and ready: so far ahead is looked. At least 0. */
  readonly startSeconds: number;
  /** Bounds of the answer, 0 <= min <= max. */
  readonly min: number;
  readonly max: number;
}

/** How many, and why. */
export interface WorkersWanted {
  readonly workersWanted: number;
  /** Slots that the figures ask for, before bounds and steadying. */
  readonly slotsWanted: number;
  /** One line. */
  readonly why: string;
}

interface Need {
  readonly slots: number;
  readonly why: string;
}

/** Of 100 tasks, those that may wait longer. */
const LATE_SHARE = 0.05;
/** What waits shall be started within what is left of the target once new workers have started, and in these shares of it: more comes meanwhile. */
const DRAIN_SHARE = { least: 0.25, most: 0.5 };
/** A smaller fleet must have this much more than it needs, or the larger one stays: figures that swing by less move nothing. */
const SPARE_TO_SHRINK = 1.15;

/**
 * How many workers keep the wait within the target. Never fewer slots than run now, so that a busy worker is not sent away by this figure
 * alone. Within `min` and `max`; never less where more waits, runs or arrives.
 */
export function workersWanted(figures: ScalingFigures, aim: ScalingAim): WorkersWanted {
  const { min, max } = aim;
  const { slotsPerWorker, workers, waiting } = figures;
  const need = slotsNeeded(figures, aim);
  const grown = Math.ceil(need.slots / slotsPerWorker);
  const shrunk = Math.ceil((need.slots * SPARE_TO_SHRINK) / slotsPerWorker);
  const bounded = (wanted: number, why: string): WorkersWanted => {
    const within = Math.min(Math.max(wanted, min), max);
    const bound = within < wanted ? `; at most ${max}` : within > wanted ? `; at least ${min}` : '';
    return { workersWanted: within, slotsWanted: Math.ceil(need.slots), why: why + bound };
  };
  if (grown > workers) return bounded(grown, need.why);
  if (waiting === undefined) return bounded(workers, 'RabbitMQ does not say what waits: no fewer than there are');
  if (shrunk < workers) return bounded(shrunk, need.why);
  return bounded(workers, shrunk === grown ? need.why : `${need.why}; one fewer would have less than 15% to spare`);
}

/** Slots that are needed, and what for. */
function slotsNeeded(figures: ScalingFigures, aim: ScalingAim): Need {
  const { waiting = 0, running, arrivalPerSecond: rate, meanRunSeconds: mean, mostRunning, starts } = figures;
  if (!starts) return { slots: running, why: `the queue is paused: slots for the ${running} that run` };
  const need = largest([
    { slots: running, why: running === 0 ? 'nothing waits, runs or arrives' : `${running} run` },
    ...(mean === undefined
      ? [
          {
            slots: waiting + running,
            why: `nobody knows how long runs take: a slot for each of ${waiting + running} tasks`,
          },
        ]
      : measuredNeeds({ waiting, running, rate, mean }, aim, aim.max * figures.slotsPerWorker)),
  ]);
  if (mostRunning === undefined || mostRunning >= need.slots) return need;
  const allowed = Math.max(mostRunning, running);
  return {
    slots: allowed,
    why: `limits of its task types let ${mostRunning} run at once: more workers would not help`,
  };
}

interface Load {
  readonly waiting: number;
  readonly running: number;
  readonly rate: number;
  readonly mean: number;
}

function measuredNeeds({ waiting, running, rate, mean }: Load, aim: ScalingAim, mostSlots: number): readonly Need[] {
  const { sloSeconds, startSeconds } = aim;
  // No more slots than there are tasks now, or will be by then: runs of hours that came in once are no steady load.
  const tasks = waiting + running + rate * startSeconds;
  const load = rate * mean;
  const steady = Math.min(slotsForLoad({ load, mean, sloSeconds }, mostSlots), tasks);
  // n slots start n at once, and then n a run: so many that what waits has started by then, behind what runs.
  const left = Math.max(sloSeconds - startSeconds, sloSeconds * DRAIN_SHARE.least);
  const drainSeconds = Math.min(left, sloSeconds * DRAIN_SHARE.most);
  const drain = Math.min(((waiting + running) * mean) / (mean + drainSeconds), tasks);
  return [
    {
      slots: steady,
      why: `${shown(rate)} tasks/s of ${shown(mean)} s each keep ${shown(load)} slots busy; the rest is for the wait`,
    },
    {
      slots: waiting === 0 ? 0 : drain,
      why: `${waiting} tasks of ${shown(mean)} s wait, to be started within ${shown(drainSeconds)} s`,
    },
  ];
}

/**
 * The fewest slots with which at most 5 of 100 tasks wait longer than the target, where tasks come in at random (M/M/c: Erlang's C formula,
 * https://en.wikipedia.org/wiki/Erlang_(unit)#Erlang_C_formula). At most `mostSlots`.
 */
function slotsForLoad(
  { load, mean, sloSeconds }: { readonly load: number; readonly mean: number; readonly sloSeconds: number },
  mostSlots: number,
): number {
  if (load <= 0) return 0;
  if (load >= mostSlots) return mostSlots;
  let blocked = 1; // Erlang's B for no slots, then for one more each round
  for (let slots = 1; slots <= mostSlots; slots += 1) {
    blocked = (load * blocked) / (slots + load * blocked);
    if (slots <= load) continue;
    const waits = (slots * blocked) / (slots - load * (1 - blocked));
    if (waits * Math.exp(-((slots - load) * sloSeconds) / mean) <= LATE_SHARE) return slots;
  }
  return mostSlots;
}

const largest = ([first, ...others]: readonly [Need, ...Need[]]): Need => {
  let most = first;
  for (const need of others) if (need.slots > most.slots) most = need;
  return most;
};

/** Two digits that mean something. */
const shown = (value: number): string => String(value >= 100 ? Math.round(value) : Number(value.toPrecision(2)));
