/** Replays over HTTP: make one of many letters, see how it goes, pause, resume and cancel it. */
import { z } from 'zod';
import { WarrenError } from '../../../shared/errors/warren-error.ts';
import { checkRole } from '../../../shared/http/auth.ts';
import type { Actor } from '../../../shared/http/auth.ts';
import { parseBody, rawBody } from '../../../shared/http/body.ts';
import type { ParsedBody } from '../../../shared/http/body.ts';
import { decodeCursor, pageOf } from '../../../shared/http/paging.ts';
import { etagOf, versionOf } from '../../../shared/http/etag.ts';
import { sendJson } from '../../../shared/http/send-json.ts';
import { requireRole } from '../../../shared/http/server.ts';
import type { App } from '../../../shared/http/server.ts';
import { sliceMember } from '../../../shared/tasks/json.ts';
import { dryRun } from '../dry-run.ts';
import type { DryRunDeps } from '../dry-run.ts';
import { isEmpty, parseLetterFilter } from '../letter-filter.ts';
import { findItems, findReplays, renderReplay } from '../replay-reader.ts';
import { createReplay, steer } from '../replays.ts';
import type { NewReplay, Steering } from '../replays.ts';
import type { Selection } from '../selection.ts';
import { problem } from './dead-letters.schema.ts';
import {
  dryRunAnswer,
  itemPage,
  listItemsQuery,
  listReplaysQuery,
  newReplayBody,
  replayPage,
  replayParams,
  replayView,
  steerBody,
  steerHeaders,
} from './replays.schema.ts';

/** Ten thousand ids, or a patch as large as an input. */
const BODY_LIMITS = { maxBytes: 1_048_576, maxDepth: 128 } as const;
const STEER_LIMITS = { maxBytes: 16_384, maxDepth: 4 } as const;
const problems = { 400: problem, 401: problem, 403: problem, 404: problem, 503: problem };

/** Adds the routes. */
export function addReplayRoutes(app: App, deps: DryRunDeps): void {
  addCreate(app, deps);
  addLooks(app, deps);
  for (const step of ['pause', 'resume', 'cancel'] as const) addStep(app, deps, step);
}

function addCreate(app: App, deps: DryRunDeps): void {
  app.post(
    '/v1/replays',
    {
      ...requireRole('operator'),
      bodyLimit: BODY_LIMITS.maxBytes,
      schema: {
        tags: ['replays'],
        summary: 'Replay many letters in waves, or say what that would do',
        body: rawBody(newReplayBody),
        response: { 200: dryRunAnswer, 201: replayView, ...problems, 422: problem },
      },
    },
    async ({ body, actor }, reply) => {
      const parsed = parseBody(body, newReplayBody, BODY_LIMITS);
      const asked = askedOf(parsed, actor);
      if (parsed.value.dryRun) return await sendJson(reply, await dryRun(asked, deps));
      // Changing inputs is a right of its own.
      if (asked.patch !== undefined) checkRole(actor, 'editor');
      const id = await createReplay(asked, deps);
      const made = await renderReplay(deps.db, id);
      if (made === undefined) throw new WarrenError('replay-not-found', { id });
      void reply.header('location', `/v1/replays/${id}`);
      return await sendJson(reply, made.text, { status: 201, etag: etagOf(made.version) });
    },
  );
}

function askedOf({ raw, value, members }: ParsedBody<z.output<typeof newReplayBody>>, actor: Actor): NewReplay {
  const span = members.get('patch');
  return {
    selection: selectionOf(value),
    waves: value.waves,
    stopAfter: value.stopAfter,
    waveTimeoutMs: value.waveTimeoutMs,
    ratePerSecond: value.rate,
    queue: value.queue,
    priority: value.priority,
    patch: span === undefined ? undefined : sliceMember(raw, span),
    waitForVersion: value.waitForVersion,
    reason: value.reason,
    actor,
  };
}

function selectionOf({ ids, group, filter: text = '', all }: z.output<typeof newReplayBody>): Selection {
  if (ids !== undefined) return { kind: 'ids', ids: [...new Set(ids.map((id) => id.toLowerCase()))] };
  if (group !== undefined) return { kind: 'group', group };
  const filter = parseLetterFilter(text);
  if (isEmpty(filter) && all !== true) {
    throw new WarrenError('field-invalid', {
      field: 'filter',
      reason: 'selects every open dead letter; if that is meant, add "all": true',
    });
  }
  return { kind: 'filter', text, filter };
}

function addLooks(app: App, { db }: DryRunDeps): void {
  app.get(
    '/v1/replays',
    {
      schema: {
        tags: ['replays'],
        summary: 'List replays, newest first',
        querystring: listReplaysQuery,
        response: { 200: replayPage, ...problems },
      },
    },
    async ({ query }, reply) => {
      const replays = await findReplays(db, {
        states: query.state === undefined ? undefined : [query.state].flat(),
        withSingle: query.single === 'true',
        before: decodeCursor(query.cursor, z.uuid()),
        limit: query.limit + 1,
      });
      await sendJson(reply, JSON.stringify(pageOf(replays, query.limit, ({ id }) => id)));
    },
  );

  app.get(
    '/v1/replays/:id',
    {
      schema: {
        tags: ['replays'],
        summary: 'Show a replay, with counts by state and by wave',
        params: replayParams,
        response: { 200: replayView, ...problems },
      },
    },
    async ({ params: { id } }, reply) => {
      const replay = await renderReplay(db, id);
      if (replay === undefined) throw new WarrenError('replay-not-found', { id });
      await sendJson(reply, replay.text, { etag: etagOf(replay.version) });
    },
  );

  app.get(
    '/v1/replays/:id/items',
    {
      schema: {
        tags: ['replays'],
        summary: 'List the items of a replay with what became of each',
        params: replayParams,
        querystring: listItemsQuery,
        response: { 200: itemPage, ...problems },
      },
    },
    async ({ params: { id }, query }, reply) => {
      if ((await renderReplay(db, id)) === undefined) throw new WarrenError('replay-not-found', { id });
      const items = await findItems(db, {
        replayId: id,
        states: query.state === undefined ? undefined : [query.state].flat(),
        wave: query.wave,
        after: decodeCursor(query.cursor, z.int().min(1)),
        limit: query.limit + 1,
      });
      await sendJson(reply, JSON.stringify(pageOf(items, query.limit, ({ n }) => n)));
    },
  );
}

const SUMMARIES = {
  pause: 'Send nothing more until it is resumed; what was sent is followed on',
  resume: 'Go on; after it paused or stopped by itself, without what it waited for',
  cancel: 'End it; what was not sent stays a dead letter',
} as const;

function addStep(app: App, deps: DryRunDeps, step: Steering['step']): void {
  app.post(
    `/v1/replays/:id/${step}`,
    {
      ...requireRole('operator'),
      bodyLimit: STEER_LIMITS.maxBytes,
      schema: {
        tags: ['replays'],
        summary: SUMMARIES[step],
        params: replayParams,
        headers: steerHeaders,
        body: rawBody(steerBody),
        response: { 200: replayView, ...problems, 409: problem, 412: problem },
      },
    },
    async ({ params: { id }, headers, body, actor }, reply) => {
      const { reason } = parseBody(body, steerBody, STEER_LIMITS).value;
      await steer({ id, step, actor, reason, version: versionOf(headers['if-match']) }, deps);
      const replay = await renderReplay(deps.db, id);
      if (replay === undefined) throw new WarrenError('replay-not-found', { id });
      await sendJson(reply, replay.text, { etag: etagOf(replay.version) });
    },
  );
}
