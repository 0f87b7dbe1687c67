/** Following a task: its states, attempts and progress as server-sent events. */
import { z } from 'zod';
import { WarrenError } from '../../../shared/errors/warren-error.ts';
import { requireRole } from '../../../shared/http/server.ts';
import type { App } from '../../../shared/http/server.ts';
import { isTerminal } from '../../../shared/tasks/state-machine.ts';
import type { Clock } from '../../../shared/time/clock.ts';
import type { Estimates } from '../estimates.ts';
import { parsePoint, renderPoint } from '../follow-point.ts';
import type { FollowPoint } from '../follow-point.ts';
import type { Change, FollowedRow, Follower } from '../follower.ts';
import { lookAt } from '../tasks.ts';
import { EventStreams } from './event-stream.ts';
import type { EventStream, EventStreamOptions } from './event-stream.ts';
import { idOf } from './ids.ts';
import { withoutNull } from '../without-null.ts';
import { attemptOf, progressOf } from './task-view.ts';
import { documented, problem } from './tasks.schema.ts';

/** What the route needs. */
export interface FollowRoutesDeps {
  readonly clock: Clock;
  readonly follower: Pick<Follower, 'find' | 'watch' | 'isFull'>;
  readonly estimates: Pick<Estimates, 'finishOf'>;
  /** How streams behave, where not as usual. */
  readonly streams?: EventStreamOptions;
}

const params = z.object({ id: z.string().max(100).describe('Id of the task.') });
const headers = z.looseObject({
  'last-event-id': z.string().max(100).optional().describe('Go on after this event: its id.'),
});
const events = z
  .string()
  .describe('text/event-stream: events `state`, `attempt` and `progress`, each with an id and a line of JSON.');

/** Adds the route. Its streams end when the server is about to close. */
export function registerFollowRoutes(app: App, deps: FollowRoutesDeps): void {
  const streams = new EventStreams(deps.clock, deps.streams);
  app.addHook('preClose', async () => {
    streams.close();
    await Promise.resolve();
  });
  const schema = {
    summary: 'Follow a task: its states, attempts and progress as server-sent events, until it has ended',
    params,
    headers,
    response: documented({
      200: events,
      204: z.null().describe('It has ended, and all was told before.'),
      '4xx': problem,
      503: problem,
    }),
  };
  app.get('/v1/tasks/:id/events', { ...requireRole('viewer'), schema }, async (request, reply) => {
    const taskId = idOf(request.params.id);
    const told = pointOf(request.headers['last-event-id']);
    const task = await deps.follower.find(taskId);
    if (task === undefined) throw new WarrenError('task-not-found', { taskId });
    // A browser comes again whenever its stream ends; only 204 tells it that there is no more.
    if (told !== undefined && isAllTold(task, told)) return await reply.code(204).send();
    if (deps.follower.isFull) throw new WarrenError('followers-full', { retryAfterSeconds: 5 });
    const stream = openStream(streams, taskId, told, deps);
    return await reply
      .type('text/event-stream; charset=utf-8')
      .headers({ 'cache-control': 'no-store', 'x-accel-buffering': 'no' })
      .send(stream.body);
  });
}

function openStream(
  streams: EventStreams,
  taskId: string,
  told: FollowPoint | undefined,
  { follower, estimates }: FollowRoutesDeps,
): EventStream {
  let unwatch: (() => void) | undefined;
  const stream = streams.open(() => unwatch?.());
  let last = told;
  unwatch = follower.watch({
    taskId,
    told,
    isReady: () => stream.isReady,
    onChange: (change) => {
      tell(stream, change, last, estimates);
      last = change.point ?? last;
    },
  });
  return stream;
}

/** Sends what is new: attempts that ended, then the state, then the progress. Each event's id is where all before it were told. */
function tell(
  stream: EventStream,
  { task, attempts, point }: Change,
  told: FollowPoint | undefined,
  estimates: FollowRoutesDeps['estimates'],
): void {
  if (task === undefined || point === undefined) return stream.end('the task is no longer kept');
  const before: FollowPoint = told ?? {
    ...point,
    state: 'pending',
    attempt: 0,
    generation: 0,
    endedAttempt: 0,
    progressMs: 0,
  };
  for (const row of attempts) {
    const id = renderPoint({ ...before, endedAttempt: row.attempt });
    stream.send({ id, event: 'attempt', data: { id: task.id, ...attemptOf(row) } });
  }
  const isNewState =
    told === undefined ||
    told.state !== point.state ||
    told.attempt !== point.attempt ||
    told.generation !== point.generation;
  if (isNewState) {
    const id = renderPoint({ ...point, progressMs: before.progressMs });
    stream.send({ id, event: 'state', data: stateOfTask(task) });
  }
  const progress = progressOf(task);
  if (progress !== undefined && point.progressMs > before.progressMs) {
    const estimatedFinish = estimates.finishOf(task.type, lookAt(task));
    const data = withoutNull({ id: task.id, attempt: task.attempt, ...progress, estimatedFinish });
    stream.send({ id: renderPoint(point), event: 'progress', data });
  }
  if (isTerminal(point.state)) stream.end('the task has ended');
}

function stateOfTask(task: FollowedRow): object {
  return withoutNull({
    id: task.id,
    state: task.state,
    attempt: task.attempt,
    failures: task.failures,
    generation: task.generation,
    runAt: task.run_at,
    startedAt: task.started_at,
    finishedAt: task.finished_at,
  });
}

function isAllTold(task: FollowedRow, told: FollowPoint): boolean {
  const { state, attempt, generation } = task;
  const isSame = state === told.state && attempt === told.attempt && generation === told.generation;
  return isSame && isTerminal(told.state) && told.endedAttempt >= attempt;
}

/** Where a client was told up to. Throws `field-invalid` for an id that is not of such a stream. */
function pointOf(header: string | undefined): FollowPoint | undefined {
  if (header === undefined || header === '') return undefined;
  const point = parsePoint(header);
  if (point !== undefined) return point;
  throw new WarrenError('field-invalid', {
    field: 'Last-Event-ID',
    reason: 'must be the id of an event of this stream',
  });
}
