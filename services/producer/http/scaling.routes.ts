/** What an autoscaler asks: how many workers a queue wants. */
import { WarrenError } from '../../../shared/errors/warren-error.ts';
import { requireRole } from '../../../shared/http/server.ts';
import type { App } from '../../../shared/http/server.ts';
import type { QueueMode } from '../../../shared/tasks/queue-mode.ts';
import { durationMs } from '../../../shared/time/duration.ts';
import type { Scaling } from '../scaling.ts';
import { scalingAnswer, scalingParams, scalingQuery } from './scaling.schema.ts';
import { problem } from './tasks.schema.ts';

/** What is taken where the query does not say: the group `scaling` of the configuration. */
export interface ScalingDefaults {
  readonly sloMs: number;
  readonly slots: number;
  readonly maxWorkers: number;
}

const LEAST_SLO_MS = 100;
const MOST_SLO_MS = 86_400_000;

/** Adds the route. */
export function registerScalingRoutes(app: App, scaling: Pick<Scaling, 'answer'>, defaults: ScalingDefaults): void {
  const schema = {
    summary: 'How many workers a queue wants, for an autoscaler: KEDA reads `workersWanted`',
    params: scalingParams,
    querystring: scalingQuery,
    response: { 200: scalingAnswer, '4xx': problem, 503: problem },
  };
  app.get('/v1/scaling/:queue', { ...requireRole('viewer'), schema }, async ({ params: { queue }, query }) => {
    const { slo, min = 0, max = Math.max(min, defaults.maxWorkers), slots: slotsPerWorker = defaults.slots } = query;
    if (min > max) throw new WarrenError('field-invalid', { field: 'min', reason: 'must not be above max' });
    const sloSeconds = sloMs(slo, defaults.sloMs) / 1_000;
    const found = await scaling.answer({ queue, sloSeconds, min, max, slotsPerWorker });
    const { figures, mode, ready, held, turns, draining, ending, workersWanted, slotsWanted, why } = found;
    const { waiting, running, meanRunSeconds, workers, mostRunning } = figures;
    return {
      queue,
      workersWanted,
      why,
      sloSeconds,
      min,
      max,
      mode: mode as QueueMode,
      slotsWanted,
      ...(waiting === undefined ? {} : { waiting }),
      ...(ready === undefined ? {} : { ready }),
      held,
      turns,
      running,
      arrivalPerSecond: rounded(figures.arrivalPerSecond),
      ...(meanRunSeconds === undefined ? {} : { meanRunSeconds: rounded(meanRunSeconds) }),
      slotsPerWorker: rounded(figures.slotsPerWorker),
      workers,
      draining,
      ending,
      ...(mostRunning === undefined ? {} : { mostRunning }),
    };
  });
}

/** Throws `field-invalid`. */
function sloMs(text: string | undefined, otherwise: number): number {
  if (text === undefined) return otherwise;
  const ms = durationMs(text);
  if (ms === undefined || ms < LEAST_SLO_MS || ms > MOST_SLO_MS) {
    throw new WarrenError('field-invalid', {
      field: 'slo',
      reason: 'must be a duration of 100ms to 1d, such as 30s or 5m',
    });
  }
  return ms;
}

const rounded = (value: number): number => Number(value.toPrecision(4));
