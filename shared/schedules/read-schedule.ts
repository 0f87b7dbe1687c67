/** Checks schedules, and makes what they start at an instant. Pure. */
import type { ErrorCode } from '../errors/catalogue.ts';
import { flowBody, MOST_LEVELS } from '../flows/flow-body.ts';
import type { FlowBody } from '../flows/flow-body.ts';
import { planFlow } from '../flows/plan-flow.ts';
import type { PlannedNested, PlannedTasks } from '../flows/planned-flow.ts';
import { checkBySchema } from '../tasks/check-by-schema.ts';
import { checkHttpSubmission } from '../tasks/check-submission.ts';
import type { SubmissionLimits } from '../tasks/check-submission.ts';
import { parseExact, renderPath } from '../tasks/json.ts';
import { readTree, renderTree } from '../tasks/json-tree.ts';
import type { JsonNode } from '../tasks/json-tree.ts';
import type { Submission, SubmissionFault } from '../tasks/submission.ts';
import type { Catalog } from '../tasks/type-catalog.ts';
import { localDateOf } from './calendar.ts';
import type { Timing } from './calendar.ts';
import { SCHEDULE_REFERENCES, scheduleBody } from './schedule-body.ts';
import type { ScheduleBody } from './schedule-body.ts';

/** A schedule as it was asked for, read. */
export interface Schedule extends Pick<
  ScheduleBody,
  'name' | 'description' | 'overlap' | 'catchUp' | 'catchUpMost' | 'jitterMs'
> {
  readonly timing: Timing;
  /** Of its dates. */
  readonly timeZone: string;
  readonly starts: 'task' | 'flow';
  /** What is started, with its references. */
  readonly template: JsonNode;
}

/** What is read out of a text, or all that is wrong with it. */
export type Read<T> =
  | { readonly kind: 'ok'; readonly value: T }
  | { readonly kind: 'refused'; readonly faults: readonly [SubmissionFault, ...SubmissionFault[]] };

/** What is started at an instant. */
export type Run =
  | { readonly kind: 'task'; readonly submission: Submission }
  | (PlannedTasks & { readonly kind: 'flow'; readonly body: FlowBody; readonly nested: readonly PlannedNested[] });

/** What an occurrence is of. */
export interface RunOf {
  /** Makes the ids of flows that are nested in it. */
  readonly newId: () => string;
  /** The id that the flow shall have. */
  readonly flowId: string;
  /** The instant that it is for. */
  readonly atMs: number;
}

/** Bounds of what is started, which are those of the doors. */
export interface RunLimits {
  readonly task: SubmissionLimits;
  /** Bytes of the body of a flow. */
  readonly flowBytes: number;
}

/** Levels of a flow around an input. */
const LEVELS_AROUND = 4 + 3 * MOST_LEVELS;
const UNBOUNDED = { maxLength: Infinity, maxDepth: Infinity };
/** Members of a task that make no sense where a schedule says when, and what may run beside what. */
const NOT_ON_SCHEDULES = ['runAt', 'delayMs', 'deadline', 'unique', 'debounce', 'throttle'];
const NOT_OF_FLOWS = ['dryRun', 'onConflict'];

/** Reads a schedule, of a text that `parseExact` has judged. Never throws. */
export function readSchedule(text: string): Read<Schedule> {
  const checked = checkBySchema(scheduleBody, JSON.parse(text));
  if (checked.kind === 'refused') return refused(checked.faults.map(({ field, reason }) => invalid(field, reason)));
  const { value: data } = checked;
  const { cron, everyMs, at, from, timeZone = 'UTC', task, flow } = data;
  const faults: SubmissionFault[] = [];
  const timings = [cron, everyMs, at].filter((each) => each !== undefined).length;
  if (timings !== 1) faults.push(invalid('cron', 'give exactly one of cron, everyMs and at'));
  if (from !== undefined && everyMs === undefined) faults.push(invalid('from', 'is only for everyMs'));
  if ((task === undefined) === (flow === undefined)) faults.push(invalid('task', 'give exactly one of task and flow'));
  const starts = task === undefined ? ('flow' as const) : ('task' as const);
  const odd = Object.keys(task ?? flow ?? {}).filter((name) =>
    (starts === 'task' ? NOT_ON_SCHEDULES : NOT_OF_FLOWS).includes(name),
  );
  faults.push(...odd.map((name) => invalid(renderPath([starts, name]), 'is not for what a schedule starts')));
  const template = memberOf(readTree(text), starts);
  if (faults.length > 0 || template === undefined) return refused(faults);
  const timing: Timing =
    cron !== undefined
      ? { kind: 'cron', cron, timeZone }
      : everyMs !== undefined
        ? { kind: 'interval', everyMs, fromMs: from === undefined ? 0 : Date.parse(from) }
        : { kind: 'once', atMs: Date.parse(at ?? '') };
  const { name, description, overlap, catchUp, catchUpMost, jitterMs } = data;
  const value = { name, description, overlap, catchUp, catchUpMost, jitterMs, timing, timeZone, starts, template };
  return { kind: 'ok', value };
}

/** Makes what a schedule starts at an instant, checked as it would be at the door. Never throws. */
export function runOf(
  schedule: Schedule,
  { flowId, newId, atMs }: RunOf,
  catalog: Catalog,
  limits: RunLimits,
): Read<Run> {
  const { starts, template, name, timeZone } = schedule;
  const values = {
    at: new Date(atMs).toISOString(),
    date: localDateOf(atMs, timeZone),
    name,
  };
  const faults: SubmissionFault[] = [];
  const filled = fillIn(template, [starts], values, faults);
  if (faults.length > 0) return refused(faults);
  const text = renderTree(filled, UNBOUNDED);
  if (starts === 'task') {
    const checked = checkHttpSubmission(Buffer.from(text), catalog, limits.task);
    if (checked.kind === 'refused') return refused(checked.faults.map((each) => within('task', each)));
    return { kind: 'ok', value: { kind: 'task', submission: checked.submission } };
  }
  const { depth, messageBytes } = limits.task;
  const exact = parseExact(Buffer.from(text), { maxBytes: limits.flowBytes, maxDepth: depth + LEVELS_AROUND });
  if (exact.kind === 'fault') return refused([within('flow', exact)]);
  const parsed = checkBySchema(flowBody, exact.value);
  if (parsed.kind === 'refused') {
    return refused(parsed.faults.map(({ field, reason }) => within('flow', invalid(field, reason))));
  }
  const plan = planFlow(parsed.value, text, catalog, { messageBytes, depth }, { id: flowId, nestedId: newId });
  if (plan.kind === 'refused') return refused(plan.faults.map((each) => within('flow', each)));
  return { kind: 'ok', value: { ...plan, kind: 'flow', body: parsed.value } };
}

/** The text of a schedule with other members; `null` takes a member away. Throws `TreeTooLarge`. */
export function withMembers(text: string, patch: JsonNode, limits: { readonly maxLength: number }): string {
  const tree = readTree(text);
  const members = new Map(tree.kind === 'object' ? tree.members : []);
  for (const [name, member] of patch.kind === 'object' ? patch.members : []) {
    if (member.kind === 'scalar' && member.text === 'null') members.delete(name);
    else members.set(name, member);
  }
  return renderTree({ kind: 'object', members }, { ...limits, maxDepth: Infinity });
}

/** The text as it is stored: without space, and without what says how it is to be treated. */
export function definitionOf(text: string): string {
  const tree = readTree(text);
  const members = tree.kind === 'object' ? [...tree.members].filter(([name]) => name !== 'dryRun') : [];
  return renderTree({ kind: 'object', members: new Map(members) }, UNBOUNDED);
}

/** Puts in the place of each reference what it stands for. */
function fillIn(
  node: JsonNode,
  path: readonly PropertyKey[],
  values: Readonly<Record<(typeof SCHEDULE_REFERENCES)[number], string>>,
  faults: SubmissionFault[],
): JsonNode {
  if (node.kind === 'scalar') return node;
  if (node.kind === 'list') {
    return { kind: 'list', items: node.items.map((item, index) => fillIn(item, [...path, index], values, faults)) };
  }
  const reference = node.members.get('$schedule');
  if (reference === undefined) {
    const members = [...node.members].map(
      ([name, member]) => [name, fillIn(member, [...path, name], values, faults)] as const,
    );
    return { kind: 'object', members: new Map(members) };
  }
  const asked = SCHEDULE_REFERENCES.find(
    (each) => reference.kind === 'scalar' && reference.text === JSON.stringify(each),
  );
  if (asked === undefined || node.members.size !== 1) {
    faults.push(invalid(renderPath(path), `a reference is {"$schedule": one of ${SCHEDULE_REFERENCES.join(', ')}}`));
    return node;
  }
  return { kind: 'scalar', text: JSON.stringify(values[asked]) };
}

function memberOf(node: JsonNode, name: string): JsonNode | undefined {
  return node.kind === 'object' ? node.members.get(name) : undefined;
}

function within(around: string, { code, field, reason }: SubmissionFault): SubmissionFault {
  return { code, field: field === 'body' ? around : `${around}.${field}`, reason };
}

const invalid = (field: string, reason: string, code: ErrorCode = 'field-invalid'): SubmissionFault => ({
  code,
  field,
  reason,
});

function refused(faults: readonly SubmissionFault[]): {
  readonly kind: 'refused';
  readonly faults: readonly [SubmissionFault, ...SubmissionFault[]];
} {
  const [first = invalid('body', 'must be an object'), ...others] = faults;
  return { kind: 'refused', faults: [first, ...others] };
}
