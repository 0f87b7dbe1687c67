/** Makes, shows and steers replays. What they do is the runner's. */
import { WarrenError } from '../../shared/errors/warren-error.ts';
import type { Actor } from '../../shared/http/auth.ts';
import type { Database } from '../../shared/postgres/pool.ts';
import { encodeParameter, run } from '../../shared/postgres/statement.ts';
import type { RowOf } from '../../shared/postgres/statement.ts';
import { retryConflicts } from '../../shared/postgres/transaction.ts';
import { newId } from '../../shared/tasks/ids.ts';
import type { ReplayId } from '../../shared/tasks/ids.ts';
import { createMend } from './mend.ts';
import type { MendDeps } from './mend.ts';
import { createReplayText, readReplay, steerReplay } from './replays.sql.ts';
import { isVersionRange } from './replay-versions.ts';
import { checkSelection, conditionFor, renderSelection } from './selection.ts';
import type { Selection } from './selection.ts';
import type { Waves } from './waves.ts';

/** What replays need. */
export interface ReplaysDeps extends MendDeps {
  readonly db: Database;
  /** Looks for queues and task types that were announced a moment ago. */
  readonly refreshTypes: () => Promise<void>;
  /** Tells the runner of this process that there is something to do. */
  readonly wake: () => void;
}

/** What an operator asked for. */
export interface NewReplay {
  readonly selection: Selection;
  readonly waves: Waves;
  /** Failures of the same in one wave that stop it; absent: see `stopLimit`. */
  readonly stopAfter?: number | undefined;
  readonly waveTimeoutMs: number;
  readonly ratePerSecond?: number | undefined;
  /** Where the tasks go instead of to their own queue. */
  readonly queue?: string | undefined;
  /** 0 to 9, instead of their own. */
  readonly priority?: number | undefined;
  /** JSON Patch or merge patch, as it came. */
  readonly patch?: Buffer | undefined;
  /** A range of versions. */
  readonly waitForVersion?: string | undefined;
  readonly reason?: string | undefined;
  readonly actor: Actor;
}

/** Letters of one replay at most. */
export const MOST_ITEMS = 1_000_000;

/** Throws `field-invalid`, `queue-unknown`, `dead-letter-not-found` for what cannot be, before anything is made. */
export async function checkReplay(asked: NewReplay, deps: ReplaysDeps): Promise<void> {
  const { queue, patch, waitForVersion, selection } = asked;
  if (waitForVersion !== undefined && !isVersionRange(waitForVersion)) {
    throw new WarrenError('field-invalid', {
      field: 'waitForVersion',
      reason: 'must be a range of versions, such as >=1.4.0',
    });
  }
  if (patch !== undefined) createMend(patch, deps);
  if (queue !== undefined && !deps.catalog.hasQueue(queue)) {
    await deps.refreshTypes();
    if (!deps.catalog.hasQueue(queue)) {
      throw new WarrenError('queue-unknown', { field: 'queue', reason: 'names no queue that there is' });
    }
  }
  await checkSelection(deps.db, selection);
}

/** Freezes the selection and makes the replay; gives its id. Throws as `checkReplay`, and `selection-empty`. */
export async function createReplay(asked: NewReplay, deps: ReplaysDeps): Promise<ReplayId> {
  await checkReplay(asked, deps);
  const { db } = deps;
  const id = newId<ReplayId>();
  const { actor, selection, waitForVersion } = asked;
  const values: unknown[] = [
    id,
    waitForVersion === undefined ? 'running' : 'waiting',
    actor.name,
    actor.role,
    asked.reason,
    renderSelection(selection),
    JSON.stringify(asked.waves),
    asked.stopAfter,
    asked.waveTimeoutMs,
    asked.ratePerSecond,
    asked.queue,
    asked.priority,
    asked.patch,
    waitForVersion,
    MOST_ITEMS,
    newId(),
    actor.address ?? null,
  ];
  const text = createReplayText(conditionFor(selection, values));
  const { rows } = await retryConflicts(
    db,
    async () => await db.query({ text, values: values.map((value) => encodeParameter(value)) }),
  );
  const [{ items } = { items: 0 }] = rows as readonly { readonly items: number }[];
  if (items === 0) throw new WarrenError('selection-empty', { reason: 'no open dead letter is selected' });
  if (items > MOST_ITEMS) {
    throw new WarrenError('field-invalid', {
      field: selection.kind,
      reason: `selects more than ${MOST_ITEMS} dead letters; narrow it down`,
    });
  }
  deps.wake();
  return id;
}

/** What an operator does to a replay, with the states in which that can be done. */
export const STEPS = {
  pause: { from: ['running', 'waiting'], to: 'paused' },
  resume: { from: ['paused', 'stopped'], to: 'running' },
  cancel: { from: ['running', 'waiting', 'paused', 'stopped'], to: 'cancelled' },
} as const;

/** Who does what to which replay. */
export interface Steering {
  readonly id: string;
  readonly step: keyof typeof STEPS;
  readonly actor: Actor;
  readonly reason?: string | undefined;
  /** The version that the operator has seen. */
  readonly version?: number | undefined;
}

/** Pauses, resumes or cancels. Throws `replay-not-found`, `precondition-failed`, `replay-state-wrong`, `database-unavailable`. */
export async function steer(
  { id, step, actor, reason, version }: Steering,
  { db, wake }: Pick<ReplaysDeps, 'db' | 'wake'>,
): Promise<RowOf<typeof readReplay.columns>> {
  const { from, to } = STEPS[step];
  const done = await retryConflicts(
    db,
    async () =>
      await run(
        db,
        steerReplay,
        id,
        from,
        to,
        version ?? null,
        actor.name,
        actor.role,
        reason ?? null,
        newId(),
        actor.address ?? null,
      ),
  );
  const [replay] = await run(db, readReplay, id);
  if (replay === undefined) throw new WarrenError('replay-not-found', { id });
  if (done.length === 0) {
    if (version !== undefined && version !== replay.version) {
      throw new WarrenError('precondition-failed', { id, version: replay.version, state: replay.state });
    }
    throw new WarrenError('replay-state-wrong', { id, state: replay.state, reason: `it is ${replay.state}` });
  }
  wake();
  return replay;
}
