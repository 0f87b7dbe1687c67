/** The input of a step as a template: texts with references between them, which Postgres puts together when the step may start. */
import { renderTree } from '../tasks/json-tree.ts';
import type { JsonNode, JsonObject, RenderLimits } from '../tasks/json-tree.ts';
import { renderPath } from '../tasks/json.ts';
import { parsePointer } from '../text/json-pointer.ts';

/** What stands in the place of a reference. */
export interface Reference {
  readonly kind: 'result' | 'signal';
  /** Name of the step, or of the signal. */
  readonly name: string;
  /** Steps of an RFC 6901 pointer into it; none for all of it. */
  readonly path: readonly string[];
  /** Where it stands, as a fault names it. */
  readonly field: string;
}

/** Texts and what stands between them: one text more than references. */
export interface Template {
  readonly pieces: readonly string[];
  readonly refs: readonly Reference[];
}

/** What is wrong with a reference. */
export interface TemplateFault {
  readonly field: string;
  readonly reason: string;
}

const MEMBERS = { $result: 'result', $signal: 'signal' } as const;
/** Cannot stand in an input: U+0000 is refused at the door. */
const HOLE = '\u0000';

/** Reads a template. `field`: where it stands. Throws `TreeTooLarge`. */
export function readTemplate(
  node: JsonNode,
  field: readonly PropertyKey[],
  limits: RenderLimits,
): { readonly template: Template; readonly faults: readonly TemplateFault[] } {
  const refs: Reference[] = [];
  const faults: TemplateFault[] = [];

  const walk = (each: JsonNode, at: readonly PropertyKey[]): JsonNode => {
    if (each.kind === 'scalar') return each;
    if (each.kind === 'list')
      return { kind: 'list', items: each.items.map((item, index) => walk(item, [...at, index])) };
    const kind = kindOf(each);
    if (kind === undefined) {
      return {
        kind: 'object',
        members: new Map([...each.members].map(([name, member]) => [name, walk(member, [...at, name])])),
      };
    }
    const read = readReference(each, kind, renderPath(at));
    if ('reason' in read) faults.push(read);
    else refs.push(read);
    return { kind: 'scalar', text: HOLE };
  };

  if (!refersTo(node)) return { template: { pieces: [renderTree(node, limits)], refs }, faults };
  const pieces = renderTree(walk(node, field), limits).split(HOLE);
  return { template: { pieces, refs }, faults };
}

/** True where there is a reference anywhere in it. */
function refersTo(node: JsonNode): boolean {
  if (node.kind === 'scalar') return false;
  if (node.kind === 'list') return node.items.some((item) => refersTo(item));
  return kindOf(node) !== undefined || [...node.members.values()].some((member) => refersTo(member));
}

function kindOf({ members }: JsonObject): keyof typeof MEMBERS | undefined {
  if (members.has('$result')) return '$result';
  return members.has('$signal') ? '$signal' : undefined;
}

function readReference(node: JsonObject, kind: keyof typeof MEMBERS, field: string): Reference | TemplateFault {
  const name = textOf(node.members.get(kind));
  if (name === undefined) return { field, reason: `${kind} must be a name` };
  const odd = [...node.members.keys()].find((each) => each !== kind && each !== 'path');
  if (odd !== undefined) return { field, reason: `a reference has no member ${JSON.stringify(odd)}` };
  const pointer = node.members.has('path') ? textOf(node.members.get('path')) : '';
  const path = pointer === undefined ? undefined : parsePointer(pointer);
  if (path === undefined) return { field, reason: 'path must be an RFC 6901 pointer, such as /user/id' };
  return { kind: MEMBERS[kind], name, path, field };
}

function textOf(node: JsonNode | undefined): string | undefined {
  return node?.kind === 'scalar' && node.text.startsWith('"') ? (JSON.parse(node.text) as string) : undefined;
}
