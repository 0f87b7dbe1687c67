/** How a worker lets go of its work, in the order that loses none of it. */
import { toError } from '../../shared/errors/to-error.ts';
import { Loop } from '../../shared/lifecycle/loop.ts';
import type { LoopDeps } from '../../shared/lifecycle/loop.ts';
import type { Part } from '../../shared/lifecycle/part.ts';
import type { Claims } from './claims.ts';
import type { Intake } from './intake.ts';
import type { RunHandler } from './run-handler.ts';
import type { Settles } from './settles.ts';

/** What drains. */
export interface DrainDeps extends Omit<LoopDeps, 'round'> {
  readonly intake: Intake;
  readonly runner: RunHandler;
  readonly claims: Claims;
  readonly settles: Settles;
}

const FORGET_EVERY_MS = 1_000;
/** Milliseconds kept back from the handlers for what comes after them: settles, answers, confirms. */
const AFTER_HANDLERS_MS = 3_000;

/**
 * Makes the part at the top of a worker. While it runs it deletes claims of which nothing runs any more. When it stops: no
 * new deliveries, and what was not started goes back · running attempts end, or are aborted and handed back · their settles
 * are written · their deliveries are answered.
 */
export function createDrain(deps: DrainDeps): Part {
  const { intake, runner, claims, settles, clock, log } = deps;
  const forgetting = new Loop(
    { ...deps, round: async () => await settles.forgetFinished() },
    { name: 'finished claims', intervalMs: FORGET_EVERY_MS },
  );
  return {
    start: async () => await forgetting.start(),
    stop: async (deadlineMs) => {
      await forgetting.stop(deadlineMs);
      await intake.drain(deadlineMs);
      log.info('worker draining', { running: runner.running });
      await runner.stop(Math.max(clock.monotonicMs(), deadlineMs - AFTER_HANDLERS_MS));
      // From here on nothing waits for a Postgres that is away: the lease lapses, and the attempts are repeated.
      const giveUp = clock.after(Math.max(0, deadlineMs - 1_000 - clock.monotonicMs()), () => {
        claims.giveUp();
        settles.giveUp();
      });
      const answered = intake.idle().then(async () => await settles.idle());
      await Promise.race([answered, clock.sleep(deadlineMs - clock.monotonicMs(), undefined, { unref: true })]);
      giveUp();
      const race = new AbortController();
      const forgotten = settles.forgetFinished().catch((thrown: unknown) => {
        log.debug('finished claims kept', { err: toError(thrown) }); // they name a worker that is gone: the reaper finds them
      });
      await Promise.race([forgotten, clock.sleep(deadlineMs - clock.monotonicMs(), race.signal)]);
      race.abort();
    },
  };
}
