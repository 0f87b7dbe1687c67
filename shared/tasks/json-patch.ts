/**
 * JSON Patch (RFC 6902) and JSON Merge Patch (RFC 7396) over trees that lose nothing. Libraries for them work on JavaScript
 * values, which forget how a number was written and move members whose names look like numbers.
 */
import { isSameTree } from './json-tree.ts';
import type { JsonNode, JsonObject } from './json-tree.ts';

/** A patch, read and ready to be applied. Throws `PatchMisfit` where the document is not as the patch supposes. */
export type Patch = (document: JsonNode) => JsonNode;

/** A patch that does not fit a document, or is none at all; the message says where and why. */
export class PatchMisfit extends Error {
  override readonly name = 'PatchMisfit';
}

/** Operations of one patch at most: each makes the lists on its way anew, in every input. */
const MOST_OPERATIONS = 100;
/** Steps of a pointer at most; no input nests deeper. */
const MOST_STEPS = 512;

/** Reads a patch: a list is a JSON Patch, an object a merge patch. Throws `PatchMisfit` for anything else. */
export function readPatch(patch: JsonNode): Patch {
  if (patch.kind === 'object') return (document) => mergePatch(document, patch);
  if (patch.kind !== 'list') throw new PatchMisfit('must be a list (JSON Patch) or an object (merge patch)');
  if (patch.items.length > MOST_OPERATIONS) throw new PatchMisfit(`must have ${MOST_OPERATIONS} operations at most`);
  const operations = patch.items.map((item, index) => readOperation(item, index));
  return (document) => operations.reduce((patched, apply) => apply(patched), document);
}

/** RFC 7396, section 2. */
function mergePatch(target: JsonNode | undefined, patch: JsonNode): JsonNode {
  if (patch.kind !== 'object') return patch;
  const members = new Map(target?.kind === 'object' ? target.members : []);
  for (const [name, change] of patch.members) {
    if (change.kind === 'scalar' && change.text === 'null') members.delete(name);
    else members.set(name, mergePatch(members.get(name), change));
  }
  return { kind: 'object', members };
}

function readOperation(node: JsonNode, index: number): Patch {
  const fail = (reason: string): never => {
    throw new PatchMisfit(`operation ${index + 1} ${reason}`);
  };
  if (node.kind !== 'object') return fail('must be an object');
  const op = textOf(node, 'op');
  const path = pointerOf(node, 'path') ?? fail('needs a path, such as /items/0/id');
  const value = node.members.get('value');
  const need = (given: JsonNode | undefined): JsonNode => given ?? fail('needs a value');
  const from = (): Pointer => pointerOf(node, 'from') ?? fail('needs a from, such as /items/0');
  const said = (apply: Patch): Patch => {
    return (document) => {
      try {
        return apply(document);
      } catch (thrown) {
        if (thrown instanceof PatchMisfit) return fail(`(${op ?? ''} ${nameOf(path)}): ${thrown.message}`);
        throw thrown;
      }
    };
  };
  switch (op) {
    case 'add': {
      const added = need(value);
      return said((document) => add(document, path, added));
    }
    case 'remove':
      return said((document) => remove(document, path));
    case 'replace': {
      const replaced = need(value);
      return said((document) => replace(document, path, replaced));
    }
    case 'move': {
      const source = from();
      if (path.length > source.length && source.every((step, at) => step === path[at])) {
        return fail('moves a value into itself');
      }
      return said((document) => add(remove(document, source), path, get(document, source)));
    }
    case 'copy': {
      const source = from();
      return said((document) => add(document, path, get(document, source)));
    }
    case 'test': {
      const wanted = need(value);
      return said((document) => {
        if (!isSameTree(get(document, path), wanted)) throw new PatchMisfit('the value there is another');
        return document;
      });
    }
    case undefined:
    default:
      return fail('needs an op of add, remove, replace, move, copy, test');
  }
}

/** Steps of a JSON Pointer (RFC 6901). */
type Pointer = readonly string[];

function textOf(object: JsonObject, name: string): string | undefined {
  const member = object.members.get(name);
  const value: unknown = member?.kind === 'scalar' ? JSON.parse(member.text) : undefined;
  return typeof value === 'string' ? value : undefined;
}

function pointerOf(object: JsonObject, name: string): Pointer | undefined {
  const text = textOf(object, name);
  if (text === undefined || !/^(?:\/(?:[^~/]|~[01])*)*$/.test(text)) return undefined;
  const steps = text.split('/').slice(1);
  if (steps.length > MOST_STEPS) throw new PatchMisfit(`a pointer must have ${MOST_STEPS} steps at most`);
  return steps.map((step) => step.replaceAll('~1', '/').replaceAll('~0', '~'));
}

const nameOf = (path: Pointer): string =>
  path.length === 0 ? 'the whole' : path.map((step) => `/${step.replaceAll('~', '~0').replaceAll('/', '~1')}`).join('');

function get(node: JsonNode, path: Pointer): JsonNode {
  return path.reduce<JsonNode>((at, step, index) => childOf(at, step, path.slice(0, index + 1)), node);
}

function childOf(node: JsonNode, step: string, path: Pointer): JsonNode {
  const child =
    node.kind === 'object'
      ? node.members.get(step)
      : node.kind === 'list' && isIndex(step)
        ? node.items[Number(step)]
        : undefined;
  if (child === undefined) throw new PatchMisfit(`there is nothing at ${nameOf(path)}`);
  return child;
}

const isIndex = (step: string): boolean => /^(?:0|[1-9]\d{0,9})$/.test(step);

function add(document: JsonNode, path: Pointer, value: JsonNode): JsonNode {
  return changeAt(document, path, value, (parent, step) => {
    if (parent.kind === 'object') return { kind: 'object', members: new Map(parent.members).set(step, value) };
    if (parent.kind === 'list') {
      const at = step === '-' ? parent.items.length : isIndex(step) ? Number(step) : Number.NaN;
      if (at <= parent.items.length) return { kind: 'list', items: parent.items.toSpliced(at, 0, value) };
    }
    throw new PatchMisfit(`nothing can be added at ${nameOf(path)}`);
  });
}

function remove(document: JsonNode, path: Pointer): JsonNode {
  if (path.length === 0) throw new PatchMisfit('the whole cannot be removed');
  return changeAt(document, path, document, (parent, step) => {
    childOf(parent, step, path);
    if (parent.kind === 'list') return { kind: 'list', items: parent.items.toSpliced(Number(step), 1) };
    const members = new Map((parent as JsonObject).members);
    members.delete(step);
    return { kind: 'object', members };
  });
}

function replace(document: JsonNode, path: Pointer, value: JsonNode): JsonNode {
  return changeAt(document, path, value, (parent, step) => {
    childOf(parent, step, path);
    return withChild(parent, step, value);
  });
}

/** Makes the tree anew along the path; its last step is done by `change`. For an empty path the whole becomes `whole`. */
function changeAt(
  node: JsonNode,
  path: Pointer,
  whole: JsonNode,
  change: (parent: JsonNode, step: string) => JsonNode,
  depth = 0,
): JsonNode {
  const step = path[depth];
  if (step === undefined) return whole;
  if (depth === path.length - 1) return change(node, step);
  const child = childOf(node, step, path.slice(0, depth + 1));
  return withChild(node, step, changeAt(child, path, whole, change, depth + 1));
}

/** A child that is there becomes another; its place among the members stays. */
function withChild(parent: JsonNode, step: string, child: JsonNode): JsonNode {
  return parent.kind === 'list'
    ? { kind: 'list', items: parent.items.with(Number(step), child) }
    : { kind: 'object', members: new Map((parent as JsonObject).members).set(step, child) };
}
