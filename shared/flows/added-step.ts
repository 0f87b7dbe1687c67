/** Checks a step that a running step adds, and makes templates of its inputs. Pure. */
import type { ErrorCode } from '../errors/catalogue.ts';
import { checkBySchema } from '../tasks/check-by-schema.ts';
import { readTree, TreeTooLarge } from '../tasks/json-tree.ts';
import type { JsonNode } from '../tasks/json-tree.ts';
import { parseExact, renderPath } from '../tasks/json.ts';
import type { SubmissionFault } from '../tasks/submission.ts';
import { plainStep, stepName } from './flow-body.ts';
import type { FlowLimits } from './planned-flow.ts';
import { readTemplate } from './template.ts';

const addedStep = plainStep.omit({ undo: true, signal: true });

/** Inputs of the largest size that one call may hold together. */
const MOST_FULL_INPUTS = 32;
/** Levels around an input: the options, the list of inputs. */
const LEVELS_AROUND = 2;

/** What `add_steps` in `0025_added_steps.sql` takes. */
export interface StepToAdd {
  readonly name: string;
  /** Type, queue, priority, maxAttempts, delayMs, onFailure, after, isGroup. */
  readonly spec: Readonly<Record<string, unknown>> & { readonly type: string };
  /** One a task. */
  readonly members: readonly MemberToAdd[];
}

/** An input: JSON text, or a template with its references as JSON text. */
export type MemberToAdd =
  | { readonly input: string }
  | { readonly input: undefined; readonly pieces: readonly string[]; readonly refs: string };

/** A step to add, or what is wrong with it. */
export type ReadStep =
  | { readonly kind: 'ok'; readonly step: StepToAdd }
  | { readonly kind: 'refused'; readonly fault: SubmissionFault };

/** Its input is the result of the step that adds it. */
const OF_ADDER: MemberToAdd = { input: undefined, pieces: ['', ''], refs: JSON.stringify([{ adder: true }]) };

/** Reads what a handler asked for; `text`: its options as JSON. Never throws. */
export function readAddedStep(name: unknown, text: string, limits: FlowLimits): ReadStep {
  const named = stepName.safeParse(name);
  if (!named.success) return refused('field-invalid', 'name', named.error.issues[0]?.message ?? 'must be a name');
  const exact = parseExact(Buffer.from(text), {
    maxBytes: limits.messageBytes * MOST_FULL_INPUTS,
    maxDepth: limits.depth + LEVELS_AROUND,
  });
  if (exact.kind === 'fault') {
    return refused(exact.code, exact.field === 'body' ? 'options' : exact.field, exact.reason);
  }
  const parsed = checkBySchema(addedStep, exact.value);
  if (parsed.kind === 'refused') {
    const [{ field, reason }] = parsed.faults;
    return refused('field-invalid', field === 'body' ? 'options' : field, reason);
  }
  const { input, inputs, after = [], ...spec } = parsed.value;
  if (input !== undefined && inputs !== undefined) {
    return refused('field-invalid', 'inputs', 'must not be given together with input');
  }
  const tree = readTree(text);
  const read = readMembers(tree, input === undefined ? inputs?.length : undefined, limits);
  if ('code' in read) return { kind: 'refused', fault: read };
  const isGroup = inputs !== undefined;
  return {
    kind: 'ok',
    step: { name: named.data, spec: { ...spec, after, isGroup }, members: read },
  };
}

/** The inputs of a group of so many, or of one; those of a call that says nothing of it are of the adder. */
function readMembers(
  tree: JsonNode,
  members: number | undefined,
  limits: FlowLimits,
): readonly MemberToAdd[] | SubmissionFault {
  const options = tree.kind === 'object' ? tree.members : new Map<string, JsonNode>();
  const list = options.get('inputs');
  const single = options.get('input');
  if (members === undefined) {
    const read = single === undefined ? OF_ADDER : readMember(single, ['input'], limits);
    return 'code' in read ? read : [read];
  }
  const found: MemberToAdd[] = [];
  for (const [index, node] of (list?.kind === 'list' ? list.items : []).entries()) {
    const read = readMember(node, ['inputs', index], limits);
    if ('code' in read) return read;
    found.push(read);
  }
  return found;
}

function readMember(
  node: JsonNode,
  path: readonly PropertyKey[],
  { messageBytes, depth }: FlowLimits,
): MemberToAdd | SubmissionFault {
  try {
    const { template, faults } = readTemplate(node, path, { maxLength: messageBytes, maxDepth: depth });
    const [fault] = faults;
    if (fault !== undefined) return { code: 'field-invalid', ...fault };
    const { pieces, refs } = template;
    if (refs.length === 0) return { input: pieces[0] ?? '{}' };
    const told = refs.map(({ kind, name, path: within, field }) => ({
      [kind]: name,
      ...(within.length === 0 ? {} : { path: within }),
      field,
    }));
    return { input: undefined, pieces, refs: JSON.stringify(told) };
  } catch (thrown) {
    if (!(thrown instanceof TreeTooLarge)) throw thrown;
    return { code: 'body-too-large', field: renderPath(path), reason: thrown.message };
  }
}

function refused(code: ErrorCode, field: string, reason: string): ReadStep {
  return { kind: 'refused', fault: { code, field, reason } };
}
