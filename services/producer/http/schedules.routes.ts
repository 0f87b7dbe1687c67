/** The API of schedules: made, shown, changed, paused, run, taken away. */
import { z } from 'zod';
import { WarrenError } from '../../../shared/errors/warren-error.ts';
import type { Actor } from '../../../shared/http/auth.ts';
import { MOST_LEVELS } from '../../../shared/flows/flow-body.ts';
import { parseBody, rawBody } from '../../../shared/http/body.ts';
import type { RawBody } from '../../../shared/http/body.ts';
import { decodeCursor, pageOf } from '../../../shared/http/paging.ts';
import { requireRole } from '../../../shared/http/server.ts';
import type { App } from '../../../shared/http/server.ts';
import { definitionOf, readSchedule, withMembers } from '../../../shared/schedules/read-schedule.ts';
import { createSchedule, editSchedule, removeSchedule, scheduleOf } from '../../../shared/schedules/store.ts';
import type { Defined } from '../../../shared/schedules/store.ts';
import { readTree } from '../../../shared/tasks/json-tree.ts';
import type { TypeCatalog } from '../../../shared/tasks/type-catalog.ts';
import type { Clock } from '../../../shared/time/clock.ts';
import type { OccurrencesDeps } from '../occurrences.ts';
import { findSchedule, listOccurrences, listSchedules, pause, refuseBadRun, resume, runNow } from '../schedules.ts';
import { listedScheduleOf, nextInstants, occurrenceOf, renderSchedule } from './schedule-view.ts';
import {
  editScheduleBody,
  nextAnswer,
  nextQuery,
  occurrencePage,
  removedAnswer,
  runAnswer,
  scheduleBody,
  scheduleListQuery,
  scheduleName,
  scheduleOrderBody,
  schedulePage,
  scheduleParams,
  schedulePlan,
  wholeSchedule,
} from './schedules.schema.ts';
import { documented, problem } from './tasks.schema.ts';

/** What the routes need. */
export interface ScheduleRoutesDeps extends OccurrencesDeps {
  readonly catalog: Pick<TypeCatalog, 'find' | 'hasQueue' | 'refreshAfterMiss'>;
  readonly clock: Clock;
}

const JSON_TYPE = 'application/json; charset=utf-8';
const ORDER_LIMITS = { maxBytes: 4_096, maxDepth: 2 };
const NO_BODY = Buffer.from('{}');
/** Levels of a schedule around an input: itself, the flow, its steps, one of them, the list of its inputs; three for each flow around that one. */
const LEVELS_AROUND = 5 + 3 * MOST_LEVELS;
const HIDDEN_IN_EDITS = ['reason'];

/** The body may be absent. */
const preValidation = async (request: { body: unknown }): Promise<void> => {
  request.body ??= { raw: NO_BODY };
  await Promise.resolve();
};

/** Adds the routes. */
export function registerScheduleRoutes(app: App, deps: ScheduleRoutesDeps): void {
  addCreate(app, deps);
  addLook(app, deps);
  addEdit(app, deps);
  addRemove(app, deps);
  addOrders(app, deps);
}

const answers = { '4xx': problem, 503: problem };

function addCreate(app: App, deps: ScheduleRoutesDeps): void {
  const limits = bodyLimits(deps);
  const schema = {
    summary: 'Make a schedule: a task or a flow that is started again and again, or once at an instant',
    body: rawBody(scheduleBody),
    response: documented({ 200: z.union([schedulePlan, wholeSchedule]), 201: wholeSchedule, ...answers }),
  };
  const options = { ...requireRole('operator'), bodyLimit: limits.maxBytes, schema };
  app.post('/v1/schedules', options, async (request, reply) => {
    const { raw, value } = parseBody(request.body, scheduleBody, limits);
    const defined = defineFrom(raw.toString('utf8'));
    await refuseBadRun(defined.schedule, deps.catalog, deps.limits);
    void reply.type(JSON_TYPE);
    const { name } = defined.schedule;
    if (value.dryRun) {
      const next = nextInstants(defined.schedule, deps.clock.now().getTime(), 10);
      return await reply.code(200).send(JSON.stringify({ dryRun: true, name, next }));
    }
    const change = await createSchedule(deps.db, defined, request.actor);
    if (change === 'created') deps.log.info('schedule created', { schedule: name, actor: request.actor.name });
    void reply.header('location', `/v1/schedules/${name}`);
    return await reply.code(change === 'created' ? 201 : 200).send(renderSchedule(await findSchedule(deps.db, name)));
  });
}

function addLook(app: App, { db }: ScheduleRoutesDeps): void {
  const list = {
    summary: 'Schedules, by their names',
    querystring: scheduleListQuery,
    response: documented({ 200: schedulePage, ...answers }),
  };
  app.get('/v1/schedules', { ...requireRole('viewer'), schema: list }, async (request, reply) => {
    const { limit, cursor } = request.query;
    const rows = await listSchedules(db, decodeCursor(cursor, z.string()) ?? '', limit);
    const { items, nextCursor } = pageOf(rows, limit, ({ row }) => row.name);
    const page = { items: items.map((each) => listedScheduleOf(each)), nextCursor };
    return await reply.type(JSON_TYPE).send(JSON.stringify(page));
  });
  const get = {
    summary: 'A schedule, with its next ten instants',
    params: scheduleParams,
    response: documented({ 200: wholeSchedule, ...answers }),
  };
  app.get('/v1/schedules/:name', { ...requireRole('viewer'), schema: get }, async (request, reply) => {
    return await reply.type(JSON_TYPE).send(renderSchedule(await findSchedule(db, nameOf(request.params.name))));
  });
  const next = {
    summary: 'The next instants of a schedule, without jitter',
    params: scheduleParams,
    querystring: nextQuery,
    response: documented({ 200: nextAnswer, ...answers }),
  };
  app.get('/v1/schedules/:name/next', { ...requireRole('viewer'), schema: next }, async (request, reply) => {
    const { row } = await findSchedule(db, nameOf(request.params.name));
    const schedule = scheduleOf(row);
    const instants = nextInstants(schedule, row.now?.getTime() ?? 0, request.query.count);
    const { name, timeZone } = schedule;
    return await reply.type(JSON_TYPE).send(JSON.stringify({ name, timeZone, next: instants }));
  });
  const history = {
    summary: 'What became of the instants of a schedule, the latest first: runs, and what was skipped and why',
    params: scheduleParams,
    querystring: scheduleListQuery,
    response: documented({ 200: occurrencePage, ...answers }),
  };
  app.get('/v1/schedules/:name/occurrences', { ...requireRole('viewer'), schema: history }, async (request, reply) => {
    const { limit, cursor } = request.query;
    const { row } = await findSchedule(db, nameOf(request.params.name));
    const before = decodeCursor(cursor, z.int());
    const rows = await listOccurrences(db, row.id, {
      before: before === undefined ? undefined : new Date(before),
      limit,
    });
    const { items, nextCursor } = pageOf(rows, limit, ({ at }) => at.getTime());
    const page = { items: items.map((each) => occurrenceOf(each)), nextCursor };
    return await reply.type(JSON_TYPE).send(JSON.stringify(page));
  });
}

function addEdit(app: App, deps: ScheduleRoutesDeps): void {
  const limits = bodyLimits(deps);
  const schema = {
    summary: 'Change a schedule; what runs or waits goes on as it is',
    params: scheduleParams,
    body: rawBody(editScheduleBody),
    response: documented({ 200: wholeSchedule, ...answers }),
  };
  const options = { ...requireRole('operator'), bodyLimit: limits.maxBytes, schema };
  app.patch('/v1/schedules/:name', options, async (request, reply) => {
    const name = nameOf(request.params.name);
    const { raw, value } = parseBody(request.body, editScheduleBody, limits);
    const patch = readTree(raw.toString('utf8'));
    const members = patch.kind === 'object' ? [...patch.members] : [];
    const given = new Map(members.filter(([member]) => !HIDDEN_IN_EDITS.includes(member)));
    given.set('name', { kind: 'scalar', text: JSON.stringify(name) }); // one that cannot be read may have none
    const edit = (definition: string): Defined =>
      defineFrom(withMembers(definition, { kind: 'object', members: given }, { maxLength: limits.maxBytes }));
    // As it would be now, before its row is locked.
    const { row } = await findSchedule(deps.db, name);
    if (row.source === 'api') await refuseBadRun(edit(row.definition).schedule, deps.catalog, deps.limits);
    const { reason } = value as { reason?: string };
    const change = await editSchedule(deps.db, name, { edit, editor: request.actor, reason });
    deps.log.info('schedule edited', { schedule: name, actor: request.actor.name, change });
    return await reply.type(JSON_TYPE).send(renderSchedule(await findSchedule(deps.db, name)));
  });
}

function addRemove(app: App, { db, log }: ScheduleRoutesDeps): void {
  const schema = {
    summary: 'Take a schedule away, with its history; what it started goes on',
    params: scheduleParams,
    body: rawBody(scheduleOrderBody),
    response: documented({ 200: removedAnswer, ...answers }),
  };
  const options = { ...requireRole('operator'), bodyLimit: ORDER_LIMITS.maxBytes, schema, preValidation };
  app.delete('/v1/schedules/:name', options, async (request, reply) => {
    const name = nameOf(request.params.name);
    const { reason } = parseBody(request.body, scheduleOrderBody, ORDER_LIMITS).value;
    await removeSchedule(db, name, { editor: request.actor, reason });
    log.info('schedule removed', { schedule: name, actor: request.actor.name });
    return await reply.type(JSON_TYPE).send(JSON.stringify({ name, removed: true }));
  });
}

function addOrders(app: App, deps: ScheduleRoutesDeps): void {
  const { db, log } = deps;
  const shown = documented({ 200: wholeSchedule, ...answers });
  const add = (
    verb: string,
    summary: string,
    work: (name: string, order: { readonly actor: Actor; readonly reason: string | undefined }) => Promise<void>,
  ): void => {
    const schema = { summary, params: scheduleParams, body: rawBody(scheduleOrderBody), response: shown };
    app.post(
      `/v1/schedules/:name/${verb}`,
      { ...requireRole('operator'), bodyLimit: ORDER_LIMITS.maxBytes, schema, preValidation },
      async (request, reply) => {
        const name = nameOf(request.params.name);
        await work(name, orderOf(request));
        log.info('schedule order carried out', { schedule: name, order: verb, actor: request.actor.name });
        return await reply.type(JSON_TYPE).send(renderSchedule(await findSchedule(db, name)));
      },
    );
  };
  add('pause', 'Start nothing of a schedule until it is resumed; what runs goes on', async (name, order) => {
    await pause(db, name, order);
  });
  add('resume', 'Have a schedule go on from now; what was due meanwhile is skipped', async (name, order) => {
    await resume(deps, name, order);
  });
  const schema = {
    summary: 'Start what a schedule starts now, paused or not; what may run beside what is as the schedule says',
    params: scheduleParams,
    body: rawBody(scheduleOrderBody),
    response: documented({ 202: runAnswer, ...answers }),
  };
  app.post(
    '/v1/schedules/:name/run',
    { ...requireRole('operator'), bodyLimit: ORDER_LIMITS.maxBytes, schema, preValidation },
    async (request, reply) => {
      const name = nameOf(request.params.name);
      const { runId, at, starts } = await runNow(deps, name, orderOf(request));
      log.info('schedule run', { schedule: name, actor: request.actor.name, runId });
      const what = runId === undefined ? { waiting: true } : { [`${starts}Id`]: runId };
      return await reply
        .code(202)
        .type(JSON_TYPE)
        .send(JSON.stringify({ name, at: at.toISOString(), ...what }));
    },
  );
}

function orderOf(request: { readonly body: RawBody; readonly actor: Actor }): {
  readonly actor: Actor;
  readonly reason: string | undefined;
} {
  const { reason } = parseBody(request.body, scheduleOrderBody, ORDER_LIMITS).value;
  return { actor: request.actor, reason };
}

function bodyLimits({ limits }: ScheduleRoutesDeps): { readonly maxBytes: number; readonly maxDepth: number } {
  return { maxBytes: limits.flowBytes, maxDepth: limits.task.depth + LEVELS_AROUND };
}

/** A schedule out of its text. Throws with the first fault and all of them. */
function defineFrom(text: string): Defined {
  const read = readSchedule(text);
  if (read.kind === 'ok') return { schedule: read.value, definition: definitionOf(text) };
  const { faults } = read;
  const [{ code, field, reason }] = faults;
  throw new WarrenError(code, { field, reason, faults });
}

function nameOf(text: string): string {
  const read = scheduleName.safeParse(text);
  if (read.success) return read.data;
  throw new WarrenError('field-invalid', { field: 'name', reason: read.error.issues[0]?.message });
}
