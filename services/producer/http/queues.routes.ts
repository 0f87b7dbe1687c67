/** The API of queues: look, pause, drain, resume, make fair. */
import { z } from 'zod';
import { rawBody, parseBody } from '../../../shared/http/body.ts';
import { requireRole } from '../../../shared/http/server.ts';
import type { App } from '../../../shared/http/server.ts';
import type { Logger } from '../../../shared/observability/log.ts';
import type { Queryable } from '../../../shared/postgres/statement.ts';
import type { QueueMode } from '../../../shared/tasks/queue-mode.ts';
import type { TypeCatalog } from '../../../shared/tasks/type-catalog.ts';
import { DEFAULT_DEPTH, changeFairness, changeQueueMode, listQueues } from '../queues.ts';
import type { Fairness } from '../queues.ts';
import { fairnessAnswer, fairnessBody, modeAnswer, modeBody, queueList, unfairAnswer } from './queues.schema.ts';
import { problem } from './tasks.schema.ts';

/** What the routes need. */
export interface QueueRoutesDeps {
  readonly db: Queryable;
  readonly log: Logger;
  readonly catalog: Pick<TypeCatalog, 'types'>;
  /** Invitations that wait in RabbitMQ, as of the last reading; `undefined` before the first. */
  readonly readyOf: (queue: string) => number | undefined;
}

const BODY_LIMITS = { maxBytes: 4_096, maxDepth: 4 } as const;
const FAIRNESS_LIMITS = { maxBytes: 262_144, maxDepth: 4 } as const;
const NO_BODY = Buffer.from('{}');
const MODES: Readonly<Record<string, QueueMode>> = { pause: 'paused', drain: 'draining', resume: 'open' };
const SUMMARIES: Readonly<Record<string, string>> = {
  pause: 'Start no task of a queue any more; what runs goes on',
  drain: 'Run what a queue has, and hold back what comes in from now on',
  resume: 'Open a queue again',
};

const queueName = z.object({ name: z.string().max(100).describe('Name of the queue.') });
/** The body may be absent. */
const preValidation = async (request: { body: unknown }): Promise<void> => {
  request.body ??= { raw: NO_BODY };
  await Promise.resolve();
};

/** Adds the routes. */
export function registerQueueRoutes(app: App, deps: QueueRoutesDeps): void {
  const schema = {
    summary: 'Queues, with the task types that go there and how they stand',
    response: { 200: queueList, '4xx': problem },
  };
  app.get('/v1/queues', { ...requireRole('viewer'), schema }, async () => {
    const rows = await listQueues(deps.db);
    const types = deps.catalog.types();
    const items = rows.map((row) => {
      const ready = deps.readyOf(row.name);
      return {
        name: row.name,
        taskTypes: types.filter(({ queue }) => queue === row.name).map(({ name }) => name),
        mode: row.mode as QueueMode,
        ...(row.mode_reason === null ? {} : { modeReason: row.mode_reason }),
        ...(row.mode_by === null ? {} : { modeBy: row.mode_by }),
        ...(row.mode_since === null ? {} : { modeSince: row.mode_since.toISOString() }),
        running: row.running ?? 0,
        ...(ready === undefined ? {} : { ready }),
        holdsBack: row.holds_back,
        ...(row.fair_by === null
          ? {}
          : {
              fairness: {
                key: row.fair_by,
                weights: row.fair_weights as Fairness['weights'],
                depth: row.fair_depth,
                waiting: row.turns ?? 0,
              },
            }),
      };
    });
    return { items };
  });
  for (const verb of Object.keys(MODES)) addMode(app, deps, verb);
  addFairness(app, deps);
}

function addMode(app: App, { db, log }: QueueRoutesDeps, verb: string): void {
  const mode = MODES[verb] ?? 'open';
  const options = {
    ...requireRole('operator'),
    bodyLimit: BODY_LIMITS.maxBytes,
    schema: {
      summary: SUMMARIES[verb] ?? verb,
      params: queueName,
      body: rawBody(modeBody),
      response: { 200: modeAnswer, '4xx': problem, 503: problem },
    },
    preValidation,
  };
  app.post(`/v1/queues/:name/${verb}`, options, async ({ body, params: { name }, actor }) => {
    const { reason } = parseBody(body, modeBody, BODY_LIMITS).value;
    const was = await changeQueueMode(db, { queue: name, mode, actor, reason });
    log.info('queue mode set', { queue: name, mode, was, actor: actor.name, role: actor.role });
    return { name, mode, was: was as QueueMode };
  });
}

function addFairness(app: App, { db, log }: QueueRoutesDeps): void {
  const response = { '4xx': problem, 503: problem };
  const set = {
    ...requireRole('operator'),
    bodyLimit: FAIRNESS_LIMITS.maxBytes,
    schema: {
      summary: 'Let the values of a member of the input take turns in a queue',
      params: queueName,
      body: rawBody(fairnessBody),
      response: { 200: fairnessAnswer, ...response },
    },
  };
  app.post('/v1/queues/:name/fair', set, async ({ body, params: { name }, actor }) => {
    const { key, weights = {}, depth = DEFAULT_DEPTH, reason } = parseBody(body, fairnessBody, FAIRNESS_LIMITS).value;
    const fairness = { key, weights, depth };
    await changeFairness(db, { queue: name, fairness, actor, reason });
    log.info('queue made fair', { queue: name, key, depth, actor: actor.name, role: actor.role });
    return { name, fairness };
  });
  const unset = {
    ...requireRole('operator'),
    bodyLimit: BODY_LIMITS.maxBytes,
    schema: {
      summary: 'Serve a queue first come, first served again; what waits for its turn goes at once',
      params: queueName,
      body: rawBody(modeBody),
      response: { 200: unfairAnswer, ...response },
    },
    preValidation,
  };
  app.post('/v1/queues/:name/unfair', unset, async ({ body, params: { name }, actor }) => {
    const { reason } = parseBody(body, modeBody, BODY_LIMITS).value;
    await changeFairness(db, { queue: name, fairness: undefined, actor, reason });
    log.info('queue no longer fair', { queue: name, actor: actor.name, role: actor.role });
    return { name };
  });
}
