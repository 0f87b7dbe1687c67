/** What the API of flows takes and answers, as the OpenAPI document shows it. */
import { z } from 'zod';
import { flowBody, flowBodyShown, FLOW_RULES, STEP_RULES } from '../../../shared/flows/flow-body.ts';
import { FLOW_STATES } from '../../../shared/flows/flow-state.ts';
import { pageQuery } from '../../../shared/http/paging.ts';
import { TASK_STATES } from '../../../shared/tasks/state-machine.ts';
import { reasonText } from './many.schema.ts';

const instant = z.iso.datetime({ offset: true });
const state = z.enum(FLOW_STATES);

/** A flow in a list. */
export const listedFlow = z.object({
  id: z.uuid(),
  name: z.string(),
  parent: z
    .object({ id: z.uuid(), step: z.string().optional() })
    .optional()
    .describe('The flow of which this one is a step, and the name of that.'),
  businessType: z.string().optional(),
  businessKey: z.string().optional(),
  state: state.describe(
    'pending: nothing has started. running. succeeded. failed: a step failed, and what had not begun was cancelled. partial: a step failed, and the others went on. cancelled: somebody asked for it.',
  ),
  phase: z
    .enum(['steps', 'undo', 'failure'])
    .describe('steps: its own; undo: what succeeded is undone; failure: the step for failures runs.'),
  onFailure: z.enum(FLOW_RULES),
  steps: z.object({
    total: z.int().min(0).describe('Tasks that its steps are; a nested flow is one.'),
    open: z.int().min(0).describe('Those that have not ended, with those that undo.'),
    failed: z.int().min(0),
  }),
  tags: z.array(z.string()).optional(),
  createdAt: instant,
  createdBy: z.string().optional(),
  startedAt: instant.optional(),
  finishedAt: instant.optional(),
  cancelledBy: z.string().optional(),
  cancelReason: z.string().optional(),
});

const stepState = z
  .enum([...TASK_STATES, 'planned', 'failed', 'partial'])
  .describe(
    'That of its task; planned: its task is made when it comes to that. Of a nested flow that of the flow; blocked: its turn has not come.',
  );

/** A step of a flow. */
export const flowStep = z.object({
  name: z.string(),
  kind: z.enum(['step', 'undo', 'failure']),
  type: z.string().optional(),
  after: z.array(z.string()).describe('Steps that it waits for.'),
  level: z.int().min(0).describe('Steps on the longest way to it.'),
  onFailure: z.enum(STEP_RULES).optional(),
  signal: z.object({ name: z.string(), isSent: z.boolean() }).optional(),
  state: stepState.optional().describe('Of a group see `states`.'),
  taskId: z.uuid().optional(),
  flow: listedFlow
    .pick({ id: true, name: true, state: true, steps: true })
    .optional()
    .describe('The flow that the step is, in place of a task.'),
  attempt: z.int().min(0).optional(),
  startedAt: instant.optional(),
  finishedAt: instant.optional(),
  earlierTaskIds: z
    .array(z.uuid())
    .optional()
    .describe('Tasks that it was before the flow was retried, or a dead step before it replayed.'),
  deadLetterId: z.uuid().optional(),
  why: z.string().optional().describe('Why the flow cancelled it.'),
  states: z.record(z.string(), z.int()).optional().describe('Of a group: how many of its tasks are in which state.'),
});

/** A whole flow. */
export const wholeFlow = listedFlow.extend({
  tasks: z
    .object({ total: z.int().min(0), open: z.int().min(0) })
    .describe('All tasks: its own, and those of the flows nested in it.'),
  graph: z.array(flowStep).describe('The steps, in the order in which they were given.'),
  result: z
    .unknown()
    .optional()
    .describe('What the last step gave; of several an object, by their names. Groups are left out.'),
});

/** A flow that was started, or is there. */
export const startedFlow = listedFlow.pick({ id: true, name: true, state: true }).extend({
  createdAt: instant.optional(),
  duplicate: z.literal(true).optional().describe('Another flow holds the business key: this one.'),
});

/** What a dry run answers. */
export const flowPlan = z.object({
  dryRun: z.literal(true),
  tasks: z.int().min(0),
  graph: z.array(
    z.object({
      name: z.string(),
      kind: z.enum(['step', 'undo', 'failure']),
      type: z.string().optional(),
      queue: z.string().optional(),
      flow: z.string().optional().describe('Name of the flow that the step is.'),
      within: z.string().optional().describe('The step that is the flow of which this is one.'),
      level: z.int().min(0),
      tasks: z.int().min(0),
      after: z.array(z.string()),
    }),
  ),
});

/** Query of the list. */
export const flowListQuery = pageQuery.extend({
  name: z.string().max(100).optional(),
  state: state.optional(),
  businessType: z.string().max(100).optional(),
  businessKey: z.string().max(200).optional(),
  parent: z
    .string()
    .optional()
    .describe('Id of a flow: those that are nested in it. Without it the outermost alone are listed.'),
});

/** A page. */
export const flowPage = z.object({
  items: z.array(listedFlow),
  nextCursor: z.string().optional(),
  partial: z
    .literal(true)
    .optional()
    .describe('So many were looked at that there may be more further down: go on with the cursor.'),
});

/** The id in the path. */
export const flowParams = z.object({ id: z.string().describe('Id of the flow.') });

/** Body of a cancel. */
export const cancelFlowBody = z.strictObject({ reason: reasonText.optional().describe('Why, for the record.') });

/** Body of a retry. */
export const retryFlowBody = z.strictObject({
  from: z
    .string()
    .max(100)
    .optional()
    .describe('A step: it and all that comes after it are made anew as well, whatever became of them.'),
  reason: reasonText.optional().describe('Why, for the record.'),
});

/** Answer to a retry. */
export const retryAnswer = z.object({ id: z.uuid(), tasks: z.int().min(0).describe('Tasks that were made anew.') });

const retried = { name: z.string().max(100).optional(), businessType: z.string().max(100).optional() };

/** Body of a retry of many. */
export const retryManyBody = z.strictObject({
  ...retried,
  states: z
    .array(z.enum(['failed', 'partial', 'cancelled']))
    .min(1)
    .default(['failed'])
    .describe('Flows that ended so.'),
  reason: reasonText.describe('Why, for the record.'),
  dryRun: z.boolean().default(false).describe('True: only say how many there are.'),
  cursor: z.string().max(1_024).optional().describe('From `nextCursor`: the same retry goes on.'),
});

/** Answer to a retry of many. */
export const retryManyAnswer = z.object({
  dryRun: z.boolean(),
  flows: z.int().min(0).describe('Flows that go on; in a dry run those that would.'),
  tasks: z.int().min(0),
  skipped: z.int().min(0).describe('Flows that could not: what they did is undone, or somebody was faster.'),
  nextCursor: z.string().optional().describe('There may be more: send the same again with it.'),
});

/** Id and signal in the path. */
export const signalParams = flowParams.extend({
  name: z.string().min(1).max(100).describe('Name of the signal.'),
});

/** Body of a signal. */
export const signalBody = z.strictObject({
  data: z.unknown().optional().describe('What comes with it: any JSON. Steps refer to it by `{"$signal": name}`.'),
});

/** Answer to a signal. */
export const signalAnswer = z.object({
  id: z.uuid(),
  signal: z.string(),
  duplicate: z.boolean().describe('True: it came before, and that one counts.'),
});

/** Id and step in the path. */
export const stepParams = flowParams.extend({
  name: z.string().min(1).max(100).describe('Name of the step, or of the group.'),
});

/** Query of results. */
export const resultsQuery = pageQuery;

/** A page of results. */
export const resultsPage = z.object({
  items: z.array(
    z.object({
      member: z.int().min(0).optional().describe('Its place in the group, from 0; absent for a single step.'),
      taskId: z.uuid().optional().describe('Absent for a step that is a flow.'),
      state: z.enum(TASK_STATES).optional().describe('Absent there too, and where retention has deleted the task.'),
      result: z
        .unknown()
        .optional()
        .describe(
          'Byte for byte as it was stored; of one in the store the reference to its file (`$file`). Absent for what gave none, failed, has not ended, or was erased.',
        ),
    }),
  ),
  nextCursor: z.string().optional().describe('There is more. A page ends early where its results have about a MiB.'),
});

export { flowBody, flowBodyShown };
