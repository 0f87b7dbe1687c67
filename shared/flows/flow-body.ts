/** What a flow is asked for as, over HTTP: plain JSON, a graph of steps by their names. */
import { z } from 'zod';
import { isStorableText } from '../text/storable.ts';
import { MOST_MEMBERS } from '../tasks/add-step.ts';
import { jsonObject } from '../tasks/check-by-schema.ts';
import { submissionBody } from '../tasks/submission-body.ts';

/** Tasks of one flow at most, those of the flows nested in it among them. */
export const MOST_STEPS = 20_000;
/** Flows that are nested in one at most. */
export const MOST_NESTED = 1_000;
/** Levels of flows within flows at most, below the outermost. */
export const MOST_LEVELS = 5;
/** What `onFailure` of a flow may say. */
export const FLOW_RULES = ['stop', 'continue', 'compensate'] as const;
/** What `onFailure` of a step may say. */
export const STEP_RULES = ['stop', 'continue', 'ignore'] as const;

const LONGEST_NAME = 100;
const LONGEST_DELAY_MS = 31_622_400_000;

const text = (most: number): z.ZodString =>
  z
    .string()
    .min(1)
    .max(most)
    .refine((given) => isStorableText(given), 'must not hold U+0000 or a lone surrogate');

const NAME_RULE = `must be a letter, then letters, digits, "_", "." or "-"; at most ${LONGEST_NAME}`;
/** Name of a step, a signal or a flow. */
export const stepName = z.string(NAME_RULE).regex(/^[A-Za-z][A-Za-z0-9_.-]{0,99}$/, NAME_RULE);

const name = stepName;
const { type, queue, priority, maxAttempts } = submissionBody.shape;
const input = jsonObject
  .optional()
  .describe(
    'The input. `{"$result": "check"}` anywhere in it stands for the result of that step, `{"$result": "check", "path": "/id"}` for a part of it (RFC 6901), `{"$signal": "approved"}` for what came with a signal. A step refers to a group as to the list of its results. Absent: the result of the one step before it; of several, an object with each under its name.',
  );

const task = {
  type,
  input,
  queue,
  priority,
  maxAttempts,
};

const stepShape = {
  ...task,
  type: type.optional().describe('The task type. A step has this or `flow`.'),
  inputs: z
    .array(jsonObject)
    .max(MOST_MEMBERS, `must be at most ${MOST_MEMBERS} inputs at once`)
    .optional()
    .describe(
      'In place of input: a group, one task for each; 0 to 10 000. Of none: steps of the flow may add some while they run.',
    ),
  after: z
    .array(name)
    .optional()
    .describe('Steps that must have succeeded before. Those that its input refers to are meant anyway.'),
  delayMs: z
    .int()
    .min(0)
    .max(LONGEST_DELAY_MS)
    .optional()
    .describe('Milliseconds that it waits once the steps before it are done.'),
  onFailure: z
    .enum(STEP_RULES)
    .optional()
    .describe(
      'Once it has ended otherwise than by success: stop (cancel what has not begun), continue (cancel what comes after it alone), ignore (go on as if it had succeeded with null). Default: as the flow says.',
    ),
  undo: z.strictObject(task).optional().describe('The task that undoes it, where the flow compensates.'),
  signal: z
    .strictObject({
      name,
      timeoutMs: z
        .int()
        .min(1)
        .max(LONGEST_DELAY_MS)
        .optional()
        .describe('Milliseconds after which it expires, from when nothing but the signal is missing.'),
    })
    .optional()
    .describe('Waits for this signal as well.'),
};

/** One step that is a task. */
export const plainStep = z.strictObject({ ...stepShape, type });
/** One step, or a step that is a flow. */
export type StepBody = z.output<z.ZodObject<typeof stepShape>> & { readonly flow?: NestedFlowBody | undefined };

/** A flow that is a step of another. */
export interface NestedFlowBody {
  readonly name: string;
  readonly onFailure: (typeof FLOW_RULES)[number];
  readonly steps: Readonly<Record<string, StepBody>>;
  readonly failureStep?: LaterBody | undefined;
}

const flowShape = {
  name: name.describe('What kind of flow it is, to find it by.'),
  onFailure: z
    .enum(FLOW_RULES)
    .default('stop')
    .describe(
      'Once a step has ended otherwise than by success: stop (cancel what has not begun; the flow ends failed), continue (cancel what comes after that step; it ends partial), compensate (stop, then undo what succeeded, the last first).',
    ),
  failureStep: z
    .strictObject(task)
    .optional()
    .describe('A task that runs once when the flow fails. Its input is told what failed, where it says nothing else.'),
};

const NESTED =
  'In place of type: a flow of its own is the step. It begins when the step may start; the step has succeeded when that flow has, or is partial, and gives what that gives. Its inputs may refer to steps, and signals, of the flows around it; its first steps get what the step would get. It has the business key and the tags of the flow around it.';

/** Steps by their names, with so many `levels` of flows below them; none is refused. */
const stepsAt = (levels: number, isDocument: boolean): z.ZodType<Readonly<Record<string, StepBody>>> => {
  const flow = levels > 0 ? nestedAt(levels - 1, isDocument) : isDocument ? z.looseObject({}) : tooDeep;
  const step = z.strictObject({ ...stepShape, flow: flow.optional().describe(NESTED) }).superRefine((given, ctx) => {
    const refuse = (member: string, message: string): void => ctx.addIssue({ code: 'custom', path: [member], message });
    if (given.flow === undefined) {
      if (given.type === undefined) refuse('type', 'must be given, or flow in place of it');
      return;
    }
    for (const member of ['type', 'input', 'inputs', 'queue', 'priority', 'maxAttempts'] as const) {
      if (given[member] !== undefined) refuse(member, 'must not be given together with flow');
    }
  });
  return z
    .record(name, step)
    .describe('The steps by their names. Those that wait for nothing start at once.') as z.ZodType<
    Readonly<Record<string, StepBody>>
  >;
};

const nestedAt = (levels: number, isDocument: boolean): z.ZodType =>
  z.strictObject({ ...flowShape, steps: stepsAt(levels, isDocument) });

const tooDeep = z.custom(() => false, `flows are nested ${MOST_LEVELS} deep at most`);

const bodyOf = <Steps extends z.ZodType>(steps: Steps) =>
  z
    .strictObject({
      name: flowShape.name,
      businessType: text(LONGEST_NAME).optional().describe('With businessKey: the kind of thing that it is about.'),
      businessKey: text(200)
        .optional()
        .describe(
          'The thing that it is about. One flow at a time: another with the same type and key is answered with the first, unless that failed or was cancelled.',
        ),
      onConflict: z
        .enum(['return', 'reject'])
        .default('return')
        .describe('What to answer while another flow holds the business key.'),
      onFailure: flowShape.onFailure,
      steps,
      failureStep: flowShape.failureStep,
      tags: submissionBody.shape.tags,
      dryRun: z.boolean().default(false).describe('True: only say what would be done.'),
    })
    .describe('A flow as it is asked for.');

/** Body of a start. */
export const flowBody = bodyOf(stepsAt(MOST_LEVELS, false));
/** The same for the OpenAPI document, which shows one flow within another and not five. */
export const flowBodyShown = bodyOf(stepsAt(1, true));

/** What the schema gives. */
export type FlowBody = z.output<typeof flowBody>;
/** A task of it that is made when it comes to that. */
export type LaterBody = z.output<z.ZodObject<typeof task>>;
