/** Edits one task that waits. */
import type { z } from 'zod';
import { parseInstant } from '../../../shared/amqp/message.ts';
import { WarrenError } from '../../../shared/errors/warren-error.ts';
import { checkRole } from '../../../shared/http/auth.ts';
import { parseBody, rawBody } from '../../../shared/http/body.ts';
import type { ParsedBody } from '../../../shared/http/body.ts';
import { etagOf, versionOf } from '../../../shared/http/etag.ts';
import { sendJson } from '../../../shared/http/send-json.ts';
import { requireRole } from '../../../shared/http/server.ts';
import type { App } from '../../../shared/http/server.ts';
import type { InputStore } from '../../../shared/tasks/input-store.ts';
import type { Logger } from '../../../shared/observability/log.ts';
import { checkInput, limitKeysOf } from '../../../shared/tasks/check-submission.ts';
import type { SubmissionLimits } from '../../../shared/tasks/check-submission.ts';
import { sliceMember } from '../../../shared/tasks/json.ts';
import type { Catalog } from '../../../shared/tasks/type-catalog.ts';
import { editTask, typeOf } from '../edit.ts';
import type { EditDeps, NewInput, TaskChanges } from '../edit.ts';
import type { TaskFinder } from '../task-finder.ts';
import { editBody, editHeaders } from './many.schema.ts';
import { renderTask } from './task-view.ts';
import { idOf } from './ids.ts';
import { problem, taskParams, wholeTask } from './tasks.schema.ts';

/** What edits look names up in. */
export type CatalogOfEdits = Catalog & { refreshAfterMiss(): Promise<void> };

/** What the route needs. */
export interface EditRouteDeps extends EditDeps {
  readonly log: Logger;
  readonly catalog: CatalogOfEdits;
  readonly finder: Pick<TaskFinder, 'find'>;
  readonly limits: SubmissionLimits;
  /** Keeps inputs that are too large for their row. */
  readonly inputs: Pick<InputStore, 'isLarge' | 'keep'>;
}

/** Adds the route. */
export function addEditRoute(app: App, deps: EditRouteDeps): void {
  const { finder, limits, log } = deps;
  app.patch(
    '/v1/tasks/:id',
    {
      ...requireRole('operator'),
      bodyLimit: limits.messageBytes,
      schema: {
        summary: 'Edit a task that waits: priority, queue, when it starts, deadline, input',
        params: taskParams,
        headers: editHeaders,
        body: rawBody(editBody),
        response: {
          200: wholeTask,
          '4xx': problem,
          503: problem,
        },
      },
    },
    async ({ params, headers, body, actor }, reply) => {
      const taskId = idOf(params.id);
      const parsed = parseBody(body, editBody, { maxBytes: limits.messageBytes, maxDepth: limits.depth + 1 });
      const given = changesOf(parsed.value);
      const generation = versionOf(headers['if-match']);
      await checkQueue(given.queue, deps.catalog);
      const bytes = inputOf(parsed);
      if (bytes !== undefined) checkRole(actor, 'editor');
      const changes = bytes === undefined ? given : { ...given, input: await checkNewInput(taskId, bytes, deps) };
      const isChanged = await editTask(deps, taskId, { changes, generation, actor, reason: parsed.value.reason });
      if (isChanged)
        log.info('task edited', { taskId, actor: actor.name, role: actor.role, members: namesOf(changes) });
      const found = await finder.find(taskId);
      if (found === undefined) throw new WarrenError('task-not-found', { taskId });
      await sendJson(reply, renderTask(found.task, found.attempts), { etag: etagOf(found.task.generation) });
    },
  );
}

/** The changes of a body, but for the input. Throws `field-invalid` where there is none, or two say when. */
export function changesOf(given: Partial<z.output<typeof editBody>>): TaskChanges {
  const { priority, queue, runAt, delayMs, deadline } = given;
  if (runAt !== undefined && delayMs !== undefined) {
    throw new WarrenError('field-invalid', { field: 'runAt', reason: 'must not be given together with delayMs' });
  }
  const changes: TaskChanges = { priority, queue, runAt: instantOf(runAt), delayMs, deadline: instantOf(deadline) };
  if (namesOf(changes).length === 0 && given.input === undefined) {
    throw new WarrenError('field-invalid', { field: 'body', reason: 'names nothing to change' });
  }
  return changes;
}

/** Throws `queue-unknown`. */
export async function checkQueue(queue: string | undefined, catalog: CatalogOfEdits): Promise<void> {
  if (queue === undefined || catalog.hasQueue(queue)) return;
  await catalog.refreshAfterMiss();
  if (!catalog.hasQueue(queue)) {
    throw new WarrenError('queue-unknown', { field: 'queue', reason: 'names no queue that there is' });
  }
}

const namesOf = (changes: TaskChanges): string[] =>
  Object.entries(changes).flatMap(([name, value]) => (value === undefined ? [] : [name]));

/** The schema has read it: it is an instant. */
function instantOf(text: string | null | undefined): Date | null | undefined {
  return text === null || text === undefined ? text : parseInstant(text);
}

function inputOf({ raw, members }: ParsedBody<unknown>): Buffer | undefined {
  const span = members.get('input');
  return span === undefined ? undefined : sliceMember(raw, span);
}

/** Throws what is wrong with the input, as a submission of it would, `task-not-found`, and as `InputStore.keep`. */
async function checkNewInput(
  taskId: string,
  bytes: Buffer,
  { db, catalog, limits, inputs }: EditRouteDeps,
): Promise<NewInput> {
  const type = await typeOf(db, taskId);
  if (catalog.find(type) === undefined) await catalog.refreshAfterMiss();
  const [fault, ...others] = checkInput(bytes, type, catalog, limits);
  const known = catalog.find(type);
  if (fault === undefined && known !== undefined) {
    const keys = limitKeysOf(known, JSON.parse(bytes.toString('utf8')));
    if (!inputs.isLarge(bytes)) return { bytes, ...keys };
    const { input, inputFile } = await inputs.keep(taskId, bytes);
    return { bytes: input, inputFile, ...keys };
  }
  if (fault === undefined) throw new WarrenError('task-type-unknown', { taskType: type });
  throw new WarrenError(fault.code, { field: fault.field, reason: fault.reason, faults: [fault, ...others] });
}
