/**
 * Does something to every task that a filter fits, in chunks that are each committed alone. Whatever dies in between, a task is
 * either done, with its line in the audit, or untouched; where it goes on, a place says, and the same operation goes on there.
 */
import { z } from 'zod';
import { WarrenError } from '../../shared/errors/warren-error.ts';
import type { Actor } from '../../shared/http/auth.ts';
import type { Transactional } from '../../shared/postgres/transaction.ts';
import { inChunks, ROWS_PER_COMMIT } from '../../shared/tasks/in-chunks.ts';
import { beginOperation, isOperationOf } from '../../shared/tasks/operations.ts';
import type { TaskState } from '../../shared/tasks/state-machine.ts';
import { inStates } from './task-filter.ts';
import type { TaskFilter } from './task-filter.ts';
import { listTasks } from './tasks.ts';
import type { TaskRow } from './tasks.ts';

/** What an operator wants done to many. */
export interface ManyRequest {
  readonly filter: TaskFilter;
  /** The filter as it was asked for. */
  readonly text: string;
  /** Tasks in other states are left alone, unseen. */
  readonly states: readonly TaskState[];
  readonly actor: Actor;
  /** Kept in the audit, with each task. */
  readonly reason: string;
  /** Where an earlier request of the same operation stopped. */
  readonly from: Place | undefined;
  /** Milliseconds after which no further chunk is begun. */
  readonly withinMs: number;
}

/** A place in an operation: its id, and the last task that it came to. */
export const placeKey = z.tuple([z.uuid(), z.string().regex(/^[0-9a-f-]{36}$/)]);
/** As above. */
export type Place = z.output<typeof placeKey>;

/** What was done. */
export interface ManyDone {
  /** Id of the line in the audit; each task's own line names it. */
  readonly operation: string;
  /** Where to go on; `undefined` where nothing is left. */
  readonly place: Place | undefined;
}

/** What would be done. */
export interface ManyPreview {
  readonly selected: number;
  /** The newest of them. */
  readonly samples: readonly TaskRow[];
  /** True where there may be more than were counted in time. */
  readonly isPartial: boolean;
}

const SAMPLES = 10;
const COUNTED_PER_PAGE = 2_000;
/** Milliseconds for which it is counted: somebody waits for the answer. */
const COUNT_WITHIN_MS = 5_000;

/** Says how many tasks there are to do it to, and does nothing. Throws as `Queryable.query`. */
export async function previewMany(
  db: Transactional,
  { filter, states }: Pick<ManyRequest, 'filter' | 'states'>,
): Promise<ManyPreview> {
  const wanted = inStates(filter, states);
  const samples: TaskRow[] = [];
  let selected = 0;
  const left = await inChunks(db.deps.clock, {
    find: async (below) => await listTasks(db, wanted, { limit: COUNTED_PER_PAGE, below }),
    act: async ({ rows }) => {
      selected += rows.length;
      samples.push(...rows.slice(0, SAMPLES - samples.length));
      await Promise.resolve();
    },
    untilMs: db.deps.clock.monotonicMs() + COUNT_WITHIN_MS,
  });
  return { selected, samples, isPartial: left !== undefined };
}

/**
 * Does it. `detail`: what stands in the operation's line beside filter and reason. Throws `cursor-invalid` for a place of another
 * operation, and as `Queryable.query`; what was done until then stays done.
 */
export async function doToMany(
  db: Transactional,
  request: ManyRequest,
  work: {
    readonly action: string;
    readonly detail?: Readonly<Record<string, unknown>>;
    readonly act: (ids: readonly string[], operation: string) => Promise<void>;
  },
): Promise<ManyDone> {
  const { actor, reason, text, from, withinMs } = request;
  const untilMs = db.deps.clock.monotonicMs() + withinMs;
  const { action } = work;
  if (from !== undefined && !(await isOperationOf(db, { id: from[0], action, actor: actor.name, filter: text }))) {
    throw new WarrenError('cursor-invalid', { field: 'cursor' });
  }
  const detail = { filter: text, ...work.detail, reason };
  const operation = from?.[0] ?? (await beginOperation(db, { action, actor, detail }));
  const filter = inStates(request.filter, request.states);
  const left = await inChunks(db.deps.clock, {
    find: async (below) => await listTasks(db, filter, { limit: ROWS_PER_COMMIT, below }),
    act: async ({ rows }) => {
      if (rows.length > 0)
        await work.act(
          rows.map(({ id }) => id),
          operation,
        );
    },
    below: from?.[1],
    untilMs,
  });
  return { operation, place: left === undefined ? undefined : [operation, left] };
}
