/** What a submission met that was left out of its batch: an id that came before, or a key that another task holds. */
import { WarrenError } from '../../shared/errors/warren-error.ts';
import type { Database } from '../../shared/postgres/pool.ts';
import { retryConflicts } from '../../shared/postgres/transaction.ts';
import { run } from '../../shared/postgres/statement.ts';
import type { Queryable, RowOf } from '../../shared/postgres/statement.ts';
import type { Acceptance, Submission } from '../../shared/tasks/submission.ts';
import { editEach } from './edit.ts';
import type { EditDeps, EditOrder, TaskChanges } from './edit.ts';
import { contestKeys, giveKeysBack } from './unique-keys.sql.ts';
import {
  findIdempotencyKeys,
  findMessageIds,
  forgetIdempotencyKey,
  forgetMessageId,
  rememberRepeats,
  takeIdempotencyKey,
} from './repeats.sql.ts';

/** A submission that was left out, with the id that its task would have had. */
export interface LeftOut {
  readonly id: string;
  readonly submission: Submission;
}

/** The verdict on one of them; `undefined`: what it met is gone, so it is to be tried again. */
export type Verdict = Acceptance | undefined;

type Earlier = RowOf<typeof findMessageIds.columns> | RowOf<typeof findIdempotencyKeys.columns>;

/** What judging needs: a task may become what is submitted. */
export interface RepeatDeps extends EditDeps {
  readonly db: Database;
}

/** Judges what was left out, in order. Throws as `Queryable.query`. */
export async function judgeRepeats(deps: RepeatDeps, items: readonly LeftOut[]): Promise<readonly Verdict[]> {
  const { db } = deps;
  const earlier = await findEarlier(db, items);
  await giveBack(db, items);
  const verdicts: Verdict[] = [];
  const contested: { readonly index: number; readonly submission: Submission }[] = [];
  for (const [index, { submission }] of items.entries()) {
    const found = earlier[index];
    if (found?.is_past === true) await forget(db, found);
    else if (found !== undefined) verdicts[index] = judgeEarlier(submission, found);
    else if (submission.unique !== undefined) contested.push({ index, submission });
  }
  if (contested.length > 0) {
    const judged = await contest(deps, contested);
    contested.forEach(({ index }, position) => {
      verdicts[index] = judged[position];
    });
  }
  return items.map((_item, index) => verdicts[index]);
}

/**
 * Takes the Idempotency-Key of a batch for its body; nothing where this body has it. Its items have keys of their own, so that a
 * batch that was cut off is finished by its repetition. Throws `idempotency-key-reused`, and as `Queryable.query`.
 */
export async function claimBatchKey(
  db: Queryable,
  actor: string,
  { key, digest }: NonNullable<Submission['idempotency']>,
): Promise<void> {
  await takeWholeKey(db, actor, { key, digest }, { id: NO_TASK, became: 'batch' });
}

/**
 * Takes the Idempotency-Key of a request as a whole for what it becomes; gives what it became earlier, where this body has it already.
 * Throws `idempotency-key-reused`, and as `Queryable.query`.
 */
export async function takeWholeKey(
  db: Queryable,
  actor: string,
  { key, digest }: NonNullable<Submission['idempotency']>,
  becomes: { readonly id: string; readonly became: 'batch' | 'accepted' },
): Promise<string | undefined> {
  while ((await run(db, takeIdempotencyKey, actor, key, digest, becomes.id, becomes.became)).length === 0) {
    const [earlier] = await run(db, findIdempotencyKeys, [actor], [key]);
    if (earlier?.is_past === true) await forget(db, earlier);
    else if (earlier !== undefined) {
      if (earlier.digest.equals(digest)) return earlier.task_id;
      throw new WarrenError('idempotency-key-reused', { field: 'Idempotency-Key' });
    }
  }
  return undefined;
}

/** Stands for the task of a key that is of many. */
const NO_TASK = '00000000-0000-0000-0000-000000000000';

/** A text for a message id in its scope. */
export function messageKeyOf(publisher: string, type: string, messageId: string): string {
  return JSON.stringify([publisher, type, messageId]);
}

async function findEarlier(db: Database, items: readonly LeftOut[]): Promise<readonly (Earlier | undefined)[]> {
  const messages = items.flatMap(({ submission: { external, type } }) =>
    external === undefined ? [] : [{ ...external, type }],
  );
  const keys = items.flatMap(({ submission: { idempotency, publisher = '' } }) =>
    idempotency === undefined ? [] : [{ actor: publisher, key: idempotency.key }],
  );
  const byKey = new Map<string, Earlier>();
  if (messages.length > 0) {
    const rows = await run(
      db,
      findMessageIds,
      messages.map(({ publisher }) => publisher),
      messages.map(({ type }) => type),
      messages.map(({ messageId }) => messageId),
    );
    for (const row of rows) byKey.set(messageKeyOf(row.publisher, row.type, row.message_id), row);
  }
  if (keys.length > 0) {
    const rows = await run(
      db,
      findIdempotencyKeys,
      keys.map(({ actor }) => actor),
      keys.map(({ key }) => key),
    );
    for (const row of rows) byKey.set(JSON.stringify([row.actor, row.key]), row);
  }
  return items.map(({ submission: { external, idempotency, type, publisher = '' } }) => {
    if (external !== undefined) return byKey.get(messageKeyOf(external.publisher, type, external.messageId));
    return idempotency === undefined ? undefined : byKey.get(JSON.stringify([publisher, idempotency.key]));
  });
}

/** Gives back unique keys that were taken before the message id or the idempotency key was found known. */
async function giveBack(db: Database, items: readonly LeftOut[]): Promise<void> {
  const taken = items.flatMap(({ id, submission: { type, unique, external, idempotency } }) =>
    unique === undefined || (external === undefined && idempotency === undefined)
      ? []
      : [{ id, type, key: unique.key }],
  );
  if (taken.length === 0) return;
  await run(
    db,
    giveKeysBack,
    taken.map(({ type }) => type),
    taken.map(({ key }) => key),
    taken.map(({ id }) => id),
  );
}

async function forget(db: Queryable, earlier: Earlier): Promise<void> {
  if ('actor' in earlier) await run(db, forgetIdempotencyKey, earlier.actor, earlier.key);
  else await run(db, forgetMessageId, earlier.publisher, earlier.type, earlier.message_id);
}

function judgeEarlier({ external, idempotency }: Submission, earlier: Earlier): Acceptance {
  const digest = (external ?? idempotency)?.digest;
  if (digest !== undefined && earlier.digest.equals(digest)) {
    const told = 'became' in earlier ? earlier.became : 'accepted';
    const became = told === 'existing' || told === 'replaced' ? told : 'accepted';
    return { kind: 'duplicate', id: earlier.task_id, became, acceptedAt: earlier.accepted_at ?? new Date(0) };
  }
  if (external === undefined) {
    const reason = `this key belongs to task ${earlier.task_id}, accepted from another body`;
    return { kind: 'refused', fault: { code: 'idempotency-key-reused', field: 'Idempotency-Key', reason } };
  }
  const reason = `this message id belongs to task ${earlier.task_id}, accepted with other content`;
  return { kind: 'refused', fault: { code: 'id-conflict', field: 'message_id', reason } };
}

interface Contested {
  readonly submission: Submission;
}

/** Looks who holds each key, once a key, and answers by each submission's own rule. */
async function contest(deps: RepeatDeps, items: readonly Contested[]): Promise<readonly Verdict[]> {
  const { db } = deps;
  const asked = new Map(
    items.map(({ submission: { type, unique } }) => [keyIn(type, unique?.key), { type, key: unique?.key ?? '' }]),
  );
  const distinct = [...asked.values()];
  const rows = await retryConflicts(
    db,
    async () =>
      await run(
        db,
        contestKeys,
        distinct.map(({ type }) => type),
        distinct.map(({ key }) => key),
      ),
  );
  const holders = new Map(rows.filter((row) => row.is_held).map((row) => [keyIn(row.type, row.key), row]));
  // Of what would replace the same task in this moment only the last is written: the others would be replaced by it.
  const lastOf = new Map<string, Submission>();
  for (const { submission } of items) {
    const { type, unique } = submission;
    if (unique?.onConflict === 'replace') lastOf.set(keyIn(type, unique.key), submission);
  }
  const replaced = new Map<string, Verdict>();
  for (const [key, submission] of lastOf) {
    const holder = holders.get(key);
    if (holder !== undefined) replaced.set(key, await replace(deps, holder, submission));
  }
  const verdicts = items.map(({ submission: { type, unique } }): Verdict => {
    const key = keyIn(type, unique?.key);
    const holder = holders.get(key);
    if (holder === undefined) return undefined; // free, or freed just now
    if (unique?.onConflict === 'replace') return replaced.get(key);
    return unique?.onConflict === 'return' ? { kind: 'existing', id: holder.task_id } : heldBy(holder.task_id);
  });
  await remember(db, items, verdicts);
  return verdicts;
}

type Holder = RowOf<typeof contestKeys.columns>;

/** Makes a task that waits into what is submitted. `undefined`: it waits no more, and so the key may be free. */
async function replace(deps: RepeatDeps, holder: Holder, submission: Submission): Promise<Verdict> {
  const { input, inputFile, priority, queue, deadline, concurrencyKey, rateKey, publisher, external } = submission;
  const order: EditOrder = {
    changes: {
      input: {
        bytes: input,
        inputFile,
        ...(concurrencyKey === undefined ? {} : { concurrencyKey }),
        ...(rateKey === undefined ? {} : { rateKey }),
      },
      priority,
      queue,
      deadline: deadline ?? null,
      ...startOf(holder, submission),
    },
    actor: { name: external?.publisher ?? publisher ?? '', role: 'operator' },
    reason: undefined,
    isAudited: false,
  };
  const result = (await editEach(deps, [holder.task_id], order)).get(holder.task_id);
  if (result === undefined) return undefined;
  if (result.kind === 'edited' || result.kind === 'unchanged') return { kind: 'replaced', id: holder.task_id };
  // A window, or a task that runs, holds the key still; what has ended does not.
  const isHeldStill =
    holder.hold === 'window' || (holder.hold === 'unfinished' && 'state' in result && result.state === 'running');
  return isHeldStill ? heldBy(holder.task_id) : undefined;
}

/** When it starts: as submitted, but no later than the first submission may be put off. */
function startOf(holder: Holder, { delayMs, runAt, unique }: Submission): Pick<TaskChanges, 'delayMs' | 'runAt'> {
  if (delayMs === undefined) return { runAt: runAt ?? null };
  if (unique?.maxWaitMs === undefined || holder.now === null || holder.accepted_at === null) return { delayMs };
  const latestMs = holder.accepted_at.getTime() + unique.maxWaitMs - holder.now.getTime();
  return { delayMs: Math.max(0, Math.min(delayMs, latestMs)) };
}

function heldBy(taskId: string): Verdict {
  return {
    kind: 'refused',
    fault: { code: 'unique-conflict', field: 'unique.key', reason: `is held by task ${taskId}` },
  };
}

/** A submission that was answered with another's task is answered so again when it comes again. */
async function remember(db: Database, items: readonly Contested[], verdicts: readonly Verdict[]): Promise<void> {
  const told = items.flatMap(({ submission: { external, idempotency, publisher = '', type } }, index) => {
    const verdict = verdicts[index];
    const id = external ?? idempotency;
    if (id === undefined || (verdict?.kind !== 'existing' && verdict?.kind !== 'replaced')) return [];
    return [
      {
        publisher: external?.publisher ?? publisher,
        type,
        messageId: external?.messageId ?? null,
        key: idempotency?.key ?? null,
        digest: id.digest,
        taskId: verdict.id,
        became: verdict.kind,
      },
    ];
  });
  if (told.length === 0) return;
  await run(
    db,
    rememberRepeats,
    told.map(({ publisher }) => publisher),
    told.map(({ type }) => type),
    told.map(({ messageId }) => messageId),
    told.map(({ key }) => key),
    told.map(({ digest }) => digest),
    told.map(({ taskId }) => taskId),
    told.map(({ became }) => became),
  );
}

function keyIn(type: string, key: string | undefined): string {
  return JSON.stringify([type, key]);
}
