/** Counts flows for the metrics, from their table: they are ended by whoever ends their last step, and that shall cost nothing. */
import { Loop } from '../../shared/lifecycle/loop.ts';
import type { LoopDeps } from '../../shared/lifecycle/loop.ts';
import type { FleetFigures } from '../../shared/tasks/fleet-figures.ts';
import type { Metrics } from '../../shared/observability/metrics.ts';
import type { Queryable } from '../../shared/postgres/statement.ts';
import { run } from '../../shared/postgres/statement.ts';
import { countOpenFlows, listEndedFlows, moveCountedTo, readCountedTo } from './flow-figures.sql.ts';

/** What counting needs. */
export interface FlowFiguresDeps extends Omit<LoopDeps, 'round'> {
  readonly db: Queryable;
  readonly metrics: Pick<Metrics, 'flowsEnded' | 'flowSeconds' | 'flowsOpen'>;
  /** Whether this process is the one that counts. */
  readonly figures: Pick<FleetFigures, 'areOurs' | 'name' | 'processId'>;
}

/** How it counts. */
export interface FlowFiguresOptions {
  /** Milliseconds between two rounds. Default 15 000, as often as metrics are usually scraped. */
  readonly intervalMs: number;
  /** Milliseconds after its end from which a flow is counted: one whose end takes longer to be committed is missed. Default 10 000. */
  readonly settleMs: number;
}

/** The default. */
export const DEFAULT_FLOW_FIGURES: FlowFiguresOptions = { intervalMs: 15_000, settleMs: 10_000 };

/** Flows of one statement. */
const MOST_LISTED = 2_000;
/** Beyond that it is no longer told how many are open. */
const MOST_COUNTED = 100_000;

type EndState = Parameters<Metrics['flowsEnded']['add']>[2];

/** Makes the loop. One producer counts, from where the last one came to; a flow that is retried ends again. */
export function createFlowFigures(deps: FlowFiguresDeps, options: FlowFiguresOptions = DEFAULT_FLOW_FIGURES): Loop {
  const { db, metrics, figures } = deps;
  let after: string | undefined;

  const round = async (): Promise<boolean> => {
    if (!figures.areOurs) {
      after = undefined;
      return false;
    }
    after ??= (await run(db, readCountedTo, figures.name))[0]?.at ?? undefined;
    if (after === undefined) return false;
    const ended = await run(db, listEndedFlows, after, options.settleMs, MOST_LISTED);
    const last: string = ended.at(-1)?.at ?? after;
    // First the mark: what two count is wrong for ever, what a crash keeps from being counted is gone with its counts.
    const [isOurs] = await run(db, moveCountedTo, figures.name, last, figures.processId);
    if (isOurs === undefined) return false;
    for (const { name, state, seconds } of ended) {
      metrics.flowsEnded.add(1, name, state as EndState);
      metrics.flowSeconds.observe(seconds ?? 0, name);
    }
    after = last;
    const [open] = await run(db, countOpenFlows, MOST_COUNTED);
    metrics.flowsOpen.set(open?.pending ?? 0, 'pending');
    metrics.flowsOpen.set(open?.running ?? 0, 'running');
    return ended.length === MOST_LISTED;
  };
  return new Loop({ ...deps, round }, { name: 'flow figures', intervalMs: options.intervalMs });
}
