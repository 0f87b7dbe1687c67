/** Cancels and edits many tasks: those of a filter. */
import type { z } from 'zod';
import { WarrenError } from '../../../shared/errors/warren-error.ts';
import { selectsEverything } from '../../../shared/filter/read-filter.ts';
import type { Actor } from '../../../shared/http/auth.ts';
import { parseBody, rawBody } from '../../../shared/http/body.ts';
import { decodeCursor, encodeCursor } from '../../../shared/http/paging.ts';
import { sendJson } from '../../../shared/http/send-json.ts';
import { requireRole } from '../../../shared/http/server.ts';
import type { App } from '../../../shared/http/server.ts';
import type { Metrics } from '../../../shared/observability/metrics.ts';
import { isTerminal, TASK_STATES } from '../../../shared/tasks/state-machine.ts';
import type { TaskState } from '../../../shared/tasks/state-machine.ts';
import { cancelEach } from '../cancel.ts';
import { editEach } from '../edit.ts';
import type { EditDeps } from '../edit.ts';
import { doToMany, placeKey, previewMany } from '../many.ts';
import type { ManyDone, ManyRequest } from '../many.ts';
import { parseTaskFilter } from '../task-filter.ts';
import { changesOf, checkQueue } from './edit.routes.ts';
import type { CatalogOfEdits } from './edit.routes.ts';
import { cancelManyAnswer, cancelManyBody, editManyAnswer, editManyBody } from './many.schema.ts';
import { problem } from './tasks.schema.ts';
import { listedTaskOf } from './task-view.ts';

/** What the routes need. */
export interface ManyRoutesDeps extends EditDeps {
  readonly catalog: CatalogOfEdits;
  readonly metrics: Pick<Metrics, 'edits' | 'cancels'>;
}

/** Of the body of anything that is done to many. */
export const BODY_LIMITS = { maxBytes: 65_536, maxDepth: 4 } as const;
const problems = { 400: problem, 401: problem, 403: problem, 503: problem };
const OPEN = TASK_STATES.filter((state) => !isTerminal(state));
const WAITING = OPEN.filter((state) => state !== 'running');

/** Adds the routes. */
export function addManyRoutes(app: App, deps: ManyRoutesDeps): void {
  addCancelMany(app, deps);
  addEditMany(app, deps);
}

function addCancelMany(app: App, { db, metrics }: ManyRoutesDeps): void {
  app.post(
    '/v1/tasks/cancel',
    {
      ...requireRole('operator'),
      bodyLimit: BODY_LIMITS.maxBytes,
      schema: {
        summary: 'Cancel the tasks of a filter: at once where they wait, by aborting their attempts where they run',
        body: rawBody(cancelManyBody),
        response: { 200: cancelManyAnswer, ...problems },
      },
    },
    async ({ body, actor }, reply) => {
      const given = parseBody(body, cancelManyBody, BODY_LIMITS).value;
      const selection = selectionOf(given, OPEN);
      if (given.dryRun === true) return await sendJson(reply, renderPreview(await previewMany(db, selection)));
      const request = requestOf(selection, given, actor);
      const counts = { cancelled: 0, requested: 0, skipped: 0 };
      const done = await doToMany(db, request, {
        action: 'tasks.cancel',
        act: async (ids, operation) => {
          const results = await cancelEach(db, ids, { actor, reason: request.reason, operation });
          for (const { kind } of results.values()) {
            if (kind === 'ended') counts.skipped += 1;
            else {
              counts[kind] += 1;
              metrics.cancels.add(1, kind);
            }
          }
        },
      });
      return await sendJson(reply, renderDone(done, counts));
    },
  );
}

function addEditMany(app: App, deps: ManyRoutesDeps): void {
  app.post(
    '/v1/tasks/edit',
    {
      ...requireRole('operator'),
      bodyLimit: BODY_LIMITS.maxBytes,
      schema: {
        summary: 'Edit the tasks of a filter that wait: priority, queue, when they start',
        body: rawBody(editManyBody),
        response: { 200: editManyAnswer, ...problems, 422: problem },
      },
    },
    async ({ body, actor }, reply) => {
      const given = parseBody(body, editManyBody, BODY_LIMITS).value;
      const changes = changesOf(given.changes);
      await checkQueue(changes.queue, deps.catalog);
      const movesTime = changes.runAt !== undefined || changes.delayMs !== undefined;
      // A blocked task waits for no time.
      const selection = selectionOf(given, movesTime ? WAITING.filter((state) => state !== 'blocked') : WAITING);
      if (given.dryRun === true) return await sendJson(reply, renderPreview(await previewMany(deps.db, selection)));
      const request = requestOf(selection, given, actor);
      const counts = { edited: 0, skipped: 0 };
      const done = await doToMany(deps.db, request, {
        action: 'tasks.edit',
        detail: { changes: given.changes },
        act: async (ids, operation) => {
          const results = await editEach(deps, ids, { changes, actor, reason: request.reason, operation });
          for (const { kind } of results.values()) counts[kind === 'edited' ? 'edited' : 'skipped'] += 1;
        },
      });
      return await sendJson(reply, renderDone(done, counts));
    },
  );
}

type Selection = Pick<ManyRequest, 'filter' | 'text' | 'states'>;
type Given = z.output<typeof cancelManyBody>;

/** Throws `field-invalid` for what would select everything by mistake. */
function selectionOf({ filter: text = '', all }: Given, states: readonly TaskState[]): Selection {
  const filter = parseTaskFilter(text);
  if (selectsEverything(filter.terms) && all !== true) {
    throw new WarrenError('field-invalid', {
      field: 'filter',
      reason: 'selects every task that has not ended; if that is meant, add "all": true',
    });
  }
  return { filter, text, states };
}

function requestOf(selection: Selection, given: Given, actor: Actor): ManyRequest {
  return { ...selection, ...orderOf(given, actor) };
}

/** Who orders it, why, and where it goes on. Throws `field-invalid` without a reason, `cursor-invalid`. */
export function orderOf(
  { reason, cursor, withinMs }: Pick<Given, 'reason' | 'cursor' | 'withinMs'>,
  actor: Actor,
): Pick<ManyRequest, 'actor' | 'reason' | 'withinMs' | 'from'> {
  if (reason === undefined) throw new WarrenError('field-invalid', { field: 'reason', reason: 'is missing' });
  return { actor, reason, withinMs, from: decodeCursor(cursor, placeKey) };
}

/** The answer of a dry run. */
export function renderPreview({ selected, samples, isPartial }: Awaited<ReturnType<typeof previewMany>>): string {
  return JSON.stringify({ dryRun: true, selected, samples: samples.map((row) => listedTaskOf(row)), isPartial });
}

/** The answer where something was done. */
export function renderDone({ operation, place }: ManyDone, counts: Readonly<Record<string, number>>): string {
  const next = place === undefined ? {} : { nextCursor: encodeCursor(place) };
  return JSON.stringify({ dryRun: false, operation, ...counts, isPartial: place !== undefined, ...next });
}
