/** Carries out what was decided about schedules: occurrences, what they start, and when to look again. All in the transaction that locked them. */
import type { Logger } from '../../shared/observability/log.ts';
import type { OpenSpan, Tracing } from '../../shared/observability/tracing.ts';
import type { Metrics } from '../../shared/observability/metrics.ts';
import { execute, run } from '../../shared/postgres/statement.ts';
import type { Queryable } from '../../shared/postgres/statement.ts';
import { calendarOf } from '../../shared/schedules/calendar.ts';
import { runOf } from '../../shared/schedules/read-schedule.ts';
import type { Run, RunLimits } from '../../shared/schedules/read-schedule.ts';
import { nowOf, scheduleOf } from '../../shared/schedules/store.ts';
import type { ScheduleRow } from '../../shared/schedules/store.ts';
import type { Catalog } from '../../shared/tasks/type-catalog.ts';
import { newId } from '../../shared/tasks/ids.ts';
import type { FlowStarter, PlannedFlow } from './flow-starter.ts';
import type { FlowsDeps } from './flows.ts';
import type { Decision, SkipReason, Slot, Standing } from './schedule-decision.ts';
import { advanceSchedules, closeEndedRuns, readWaiting, writeOccurrences } from './schedules.sql.ts';
import { insertTasks } from './submit.ts';
import type { NumberedTask } from './submit.ts';

/** What carrying out needs. */
export interface OccurrencesDeps extends FlowsDeps {
  readonly catalog: Catalog;
  readonly limits: RunLimits;
  readonly starter: FlowStarter;
  readonly metrics: Pick<Metrics, 'tasksAccepted' | 'occurrences' | 'occurrenceDelay' | 'flowsStarted'>;
  readonly log: Logger;
  /** Makes spans; `undefined` where nobody wants any. */
  readonly tracing?: Tracing | undefined;
}

/** A schedule as it stands, with the runs that have not ended. */
export interface Locked {
  readonly row: ScheduleRow;
  readonly standing: Standing;
  readonly runs: readonly RunUnderWay[];
}

/** A run that has not ended. */
export interface RunUnderWay {
  readonly id: string;
  readonly isFlow: boolean;
  /** Somebody asked for that already. */
  readonly isCancelled: boolean;
}

/** What was done. */
export interface CarriedOut {
  /** What was started, by the id of its schedule. */
  readonly started: ReadonlyMap<string, readonly string[]>;
  /** Why the instants were skipped at which something was to be started. */
  readonly refused: readonly { readonly scheduleId: string; readonly why: SkipReason; readonly detail: string }[];
  /** To be called once it is committed: publishes and counts. */
  readonly after: () => void;
}

interface Entry {
  readonly scheduleId: string;
  readonly slot: Slot;
  readonly state: 'waiting' | 'started' | 'skipped';
  readonly why?: SkipReason;
  readonly detail?: string;
  readonly fromMs?: number;
  readonly runId?: string;
  readonly run?: Run;
}

/** By their definitions: reading one parses its pattern. */
const readBefore = new Map<string, Pick<Standing, 'schedule' | 'calendar'>>();
const MOST_KEPT = 1_000;

/** Reads how locked schedules stand; marks runs that have ended. */
export async function standingsOf(tx: Queryable, rows: readonly ScheduleRow[]): Promise<readonly Locked[]> {
  const ids = rows.map(({ id }) => id);
  const open = await run(tx, closeEndedRuns, ids);
  const waiting = await run(tx, readWaiting, ids);
  return rows.map((row) => {
    const { schedule, calendar } = readCached(row);
    const runs = open
      .filter(({ schedule_id: id }) => id === row.id)
      .map(({ run_id: id, is_flow: isFlow, is_cancelled: isCancelled }) => ({
        id: id ?? '',
        isFlow,
        isCancelled: isCancelled === true,
      }));
    const waits = waiting
      .filter(({ schedule_id: id }) => id === row.id)
      .map(({ at, cause }) => ({ atMs: at.getTime(), cause: cause as Slot['cause'] }));
    const standing = {
      id: row.id,
      schedule,
      calendar,
      nextAtMs: row.next_at?.getTime(),
      nowMs: nowOf(row),
      running: runs.length,
      waiting: waits,
    };
    return { row, standing, runs };
  });
}

/** Writes what became of the instants, and starts what is to be started. `askedBy`: who asked for manual ones. */
export async function carryOut(
  tx: Queryable,
  deps: OccurrencesDeps,
  decided: readonly { readonly locked: Locked; readonly decision: Decision }[],
  askedBy: string | undefined,
): Promise<CarriedOut> {
  const entries: Entry[] = [];
  const taken = new Map<string, string>();
  for (const { locked, decision } of decided) {
    const scheduleId = locked.row.id;
    for (const slot of decision.start) entries.push(await begin(tx, deps, { locked, slot, taken }));
    for (const slot of decision.wait) entries.push({ scheduleId, slot, state: 'waiting' });
    for (const skip of decision.skip) entries.push({ scheduleId, state: 'skipped', ...skip });
  }
  const written = await write(tx, entries, askedBy);
  const fresh = entries.filter((entry) => written.has(keyOf(entry)));
  const spans: OpenSpan[] = []; // ended once that is committed; of what is not there are none
  const began = (span: OpenSpan | undefined): string | undefined => {
    if (span !== undefined) spans.push(span);
    return span?.trace;
  };
  const tasks = fresh.flatMap(({ runId: id = '', run: made, scheduleId }): NumberedTask[] => {
    if (made?.kind !== 'task') return [];
    const publisher = publisherOf(decided, scheduleId);
    const { type: taskType, queue } = made.submission;
    const trace = began(deps.tracing?.publish({ taskType, queue, taskId: id }, undefined));
    return [{ id, submission: { ...made.submission, publisher, ...(trace === undefined ? {} : { trace }) } }];
  });
  const flows = fresh.flatMap(({ runId: id = '', run: made, scheduleId }): PlannedFlow[] => {
    if (made?.kind !== 'flow') return [];
    const { kind: _kind, ...planned } = made;
    const trace = began(deps.tracing?.publish({ queue: planned.body.name, flowId: id }, undefined));
    return [{ id, ...planned, createdBy: publisherOf(decided, scheduleId), trace }];
  });
  const { invitations } =
    tasks.length === 0 ? { invitations: undefined } : await insertTasks(tx, tasks, deps.holdReasonOf);
  const startFlows = flows.length === 0 ? undefined : await deps.starter.accept(tx, flows);
  const toDate = (ms: number | undefined): Date | null => (ms === undefined ? null : new Date(ms));
  await execute(
    tx,
    advanceSchedules,
    decided.map(({ locked }) => locked.row.id),
    decided.map(({ decision }) => toDate(decision.nextAtMs)),
    decided.map(({ decision }) => toDate(decision.wakeAtMs)),
  );
  return {
    started: runsBySchedule(fresh),
    refused: fresh.flatMap(({ scheduleId, why, detail }) =>
      why === undefined || detail === undefined ? [] : [{ scheduleId, why, detail }],
    ),
    after: () => {
      if (invitations !== undefined) void deps.invite(invitations); // never rejects
      startFlows?.();
      for (const span of spans) span.end();
      for (const { submission } of tasks) deps.metrics.tasksAccepted.add(1, submission.type, 'schedule');
      for (const { steps, nested } of flows)
        for (const { kind, task } of [steps, ...nested.map((each) => each.steps)].flat())
          if (kind === 'step' && task !== undefined) deps.metrics.tasksAccepted.add(1, task.type, 'schedule');
      for (const { body } of flows) deps.metrics.flowsStarted.add(1, body.name);
      for (const entry of fresh) tell(deps, decided, entry);
    },
  };
}

/** Makes what is started at an instant, or says why nothing is. `taken`: business keys of this transaction, whose flows are not there yet. */
async function begin(
  tx: Queryable,
  { catalog, limits, starter }: OccurrencesDeps,
  {
    locked: { row, standing },
    slot,
    taken,
  }: { readonly locked: Locked; readonly slot: Slot; readonly taken: Map<string, string> },
): Promise<Entry> {
  const scheduleId = row.id;
  const runId = newId<string>();
  const made = runOf(standing.schedule, { flowId: runId, newId, atMs: slot.atMs }, catalog, limits);
  if (made.kind === 'refused') {
    const [{ field, reason }] = made.faults;
    return { scheduleId, slot, state: 'skipped', why: 'refused', detail: `${field} ${reason}` };
  }
  if (made.value.kind === 'flow' && made.value.body.businessKey !== undefined) {
    const { body } = made.value;
    const key = JSON.stringify([body.businessType ?? '', body.businessKey]);
    const holder = taken.get(key) ?? (await starter.takeKey(tx, { body, id: runId }));
    taken.set(key, holder);
    if (holder !== runId) return { scheduleId, slot, state: 'skipped', why: 'unique', detail: holder };
  }
  return { scheduleId, slot, state: 'started', runId, run: made.value };
}

/** Gives the keys of those that were written: of an instant that was decided about before nothing is. */
async function write(
  tx: Queryable,
  entries: readonly Entry[],
  askedBy: string | undefined,
): Promise<ReadonlySet<string>> {
  if (entries.length === 0) return new Set();
  const rows = await run(
    tx,
    writeOccurrences,
    entries.map(({ scheduleId }) => scheduleId),
    entries.map(({ slot }) => new Date(slot.atMs)),
    entries.map(({ state }) => state),
    entries.map(({ slot }) => slot.cause),
    entries.map(({ fromMs }) => (fromMs === undefined ? null : new Date(fromMs))),
    entries.map(({ why }) => why ?? null),
    entries.map(({ detail }) => detail ?? null),
    entries.map(({ runId }) => runId ?? null),
    entries.map(({ run: made }) => made?.kind === 'flow'),
    askedBy ?? null,
  );
  return new Set(rows.map(({ schedule_id: id, at, is_manual: isManual }) => `${id}/${at.getTime()}/${isManual}`));
}

function keyOf({ scheduleId, slot }: Entry): string {
  return `${scheduleId}/${slot.atMs}/${slot.cause === 'manual'}`;
}

function runsBySchedule(entries: readonly Entry[]): ReadonlyMap<string, readonly string[]> {
  const runs = new Map<string, string[]>();
  for (const { scheduleId, runId } of entries) {
    if (runId !== undefined) runs.set(scheduleId, [...(runs.get(scheduleId) ?? []), runId]);
  }
  return runs;
}

function publisherOf(decided: readonly { readonly locked: Locked }[], scheduleId: string): string {
  const name = decided.find(({ locked }) => locked.row.id === scheduleId)?.locked.row.name ?? '';
  return `schedule:${name}`;
}

function tell(
  { metrics, log }: OccurrencesDeps,
  decided: readonly { readonly locked: Locked }[],
  { scheduleId, slot, state, why, detail, runId }: Entry,
): void {
  const locked = decided.find((each) => each.locked.row.id === scheduleId)?.locked;
  metrics.occurrences.add(1, state, why ?? 'none');
  const at = new Date(slot.atMs).toISOString();
  const schedule = locked?.row.name;
  if (why === 'refused') log.warn('occurrence refused', { schedule, at, detail });
  else log.debug('occurrence', { schedule, at, state, why, runId });
  if (state === 'started' && slot.cause === 'due' && locked !== undefined) {
    metrics.occurrenceDelay.observe(Math.max(0, locked.standing.nowMs - slot.atMs) / 1_000);
  }
}

function readCached(row: ScheduleRow): Pick<Standing, 'schedule' | 'calendar'> {
  const known = readBefore.get(row.definition);
  if (known !== undefined) return known;
  const schedule = scheduleOf(row);
  const read = { schedule, calendar: calendarOf(schedule.timing) };
  if (readBefore.size >= MOST_KEPT) readBefore.clear();
  readBefore.set(row.definition, read);
  return read;
}
