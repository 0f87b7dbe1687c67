/** Finds out why the front door refused a message, by asking it again what the producer asked. */
import { SUBMISSION_HEADERS } from '../../shared/amqp/message.ts';
import type { ErrorCode } from '../../shared/errors/catalogue.ts';
import type { DeadMessage } from '../../shared/dead-letters/evidence.ts';
import { REPLAY_OF_HEADER } from '../../shared/dead-letters/republish.ts';
import type { Queryable } from '../../shared/postgres/statement.ts';
import { run } from '../../shared/postgres/statement.ts';
import { checkMessage, isMiss } from '../../shared/tasks/check-submission.ts';
import type { CheckedSubmission, SubmissionLimits } from '../../shared/tasks/check-submission.ts';
import type { Catalog } from '../../shared/tasks/type-catalog.ts';
import { findHolders } from './refusals.sql.ts';
import { findConflicts } from './recorder.sql.ts';

/** What is wrong with a message, in one line. */
export interface Refusal {
  readonly code: ErrorCode;
  /** The first fault, with the names of the others. */
  readonly message: string;
}

/** What judging needs. */
export interface RefusalDeps {
  readonly db: Queryable;
  readonly catalog: Catalog & { refreshAfterMiss(): Promise<void> };
  readonly limits: SubmissionLimits;
}

/** Judges refused messages, in their order; `undefined` for one that would be accepted now. Throws `database-unavailable`. */
export async function judgeRefused(
  messages: readonly DeadMessage[],
  deps: RefusalDeps,
): Promise<readonly (Refusal | undefined)[]> {
  const asked = messages.map((message) => ({ ...pick(message), headers: withoutEvidence(message) }));
  let checked = asked.map((message) => checkMessage(message, deps.catalog, deps.limits));
  if (checked.some((each) => isMiss(each))) {
    // A type that was announced a moment ago is not unknown.
    await deps.catalog.refreshAfterMiss();
    checked = asked.map((message) => checkMessage(message, deps.catalog, deps.limits));
  }
  const conflicts = await findIdConflicts(checked, deps.db);
  const holders = await findKeyConflicts(checked, deps.db);
  return checked.map((each, index): Refusal | undefined => {
    if (each.kind === 'refused') return refusalOf(each);
    const taskId = conflicts.get(index);
    if (taskId !== undefined) {
      return { code: 'id-conflict', message: `message_id: belongs to task ${taskId}, accepted with other content` };
    }
    const holder = holders.get(index);
    return holder === undefined
      ? undefined
      : { code: 'unique-conflict', message: `${SUBMISSION_HEADERS.uniqueKey}: is held by task ${holder}` };
  });
}

function refusalOf({ faults: [first, ...others] }: Extract<CheckedSubmission, { kind: 'refused' }>): Refusal {
  const more = others.length === 0 ? '' : `; also at fault: ${others.map(({ field }) => field).join(', ')}`;
  return { code: first.code, message: `${first.field}: ${first.reason}${more}` };
}

/** By index of the message: the task that its message id belongs to. */
async function findIdConflicts(
  checked: readonly CheckedSubmission[],
  db: Queryable,
): Promise<ReadonlyMap<number, string>> {
  const named = checked.flatMap((each, index) =>
    each.kind === 'ok' && each.submission.external !== undefined
      ? [{ index, type: each.submission.type, ...each.submission.external }]
      : [],
  );
  if (named.length === 0) return new Map();
  const rows = await run(
    db,
    findConflicts,
    named.map(({ publisher }) => publisher),
    named.map(({ type }) => type),
    named.map(({ messageId }) => messageId),
    named.map(({ digest }) => digest),
  );
  return new Map(rows.map(({ n, task_id: taskId }) => [(named[n - 1] as { readonly index: number }).index, taskId]));
}

/** By index of the message: the task that holds its unique key, where it asks to be refused then. */
async function findKeyConflicts(
  checked: readonly CheckedSubmission[],
  db: Queryable,
): Promise<ReadonlyMap<number, string>> {
  const keyed = checked.flatMap((each, index) =>
    each.kind === 'ok' && each.submission.unique?.onConflict === 'reject'
      ? [{ index, type: each.submission.type, key: each.submission.unique.key }]
      : [],
  );
  if (keyed.length === 0) return new Map();
  const rows = await run(
    db,
    findHolders,
    keyed.map(({ type }) => type),
    keyed.map(({ key }) => key),
  );
  return new Map(rows.map(({ n, task_id: taskId }) => [(keyed[n - 1] as { readonly index: number }).index, taskId]));
}

/** A `Delivery` has its members on its prototype, where a spread does not find them. */
function pick({ body, exchange, routingKey, properties }: DeadMessage): Omit<DeadMessage, 'headers'> {
  return { body, exchange, routingKey, properties };
}

/** What the producer saw: the headers as they were before the message died. */
function withoutEvidence({ headers }: DeadMessage): DeadMessage['headers'] {
  return Object.fromEntries(
    Object.entries(headers).filter(
      ([name]) => !/^x-(death$|first-death-|last-death-)/.test(name) && name !== REPLAY_OF_HEADER,
    ),
  );
}
