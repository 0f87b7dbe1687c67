/**
 * JSON as a tree that loses nothing: numbers keep the text that they came as, objects the order of their members, and no name
 * of a member means anything. What nobody touches is written as it came, but for space between the tokens.
 */

/** A node: an object, a list, or the text of a scalar. */
export type JsonNode = JsonObject | JsonList | JsonScalar;

/** An object. */
export interface JsonObject {
  readonly kind: 'object';
  readonly members: ReadonlyMap<string, JsonNode>;
}

/** A list. */
export interface JsonList {
  readonly kind: 'list';
  readonly items: readonly JsonNode[];
}

/** A text, number, truth value or null, as JSON text. */
export interface JsonScalar {
  readonly kind: 'scalar';
  readonly text: string;
}

/** Reads JSON text whose grammar and depth `parseExact` has judged. Throws a SyntaxError for what is no JSON at all. */
export function readTree(text: string): JsonNode {
  const tokens = text.matchAll(TOKEN);
  const next = (): string => {
    const { value } = tokens.next() as IteratorResult<RegExpExecArray, undefined>;
    if (value === undefined) throw new SyntaxError('the JSON text ends early');
    return value[0];
  };
  return readNode(next(), next);
}

const TOKEN = /[{}[\],:]|"[^"\\]*(?:\\.[^"\\]*)*"|[^\s{}[\],:"]+/g;

function readNode(first: string, next: () => string): JsonNode {
  if (first === '[') {
    const items: JsonNode[] = [];
    for (let token = next(); token !== ']'; token = next()) items.push(readNode(token === ',' ? next() : token, next));
    return { kind: 'list', items };
  }
  if (first === '{') {
    const members = new Map<string, JsonNode>();
    for (let token = next(); token !== '}'; token = next()) {
      const name = token === ',' ? next() : token;
      next(); // the colon
      members.set(JSON.parse(name) as string, readNode(next(), next));
    }
    return { kind: 'object', members };
  }
  return { kind: 'scalar', text: first };
}

/** What a text of JSON may be at most. */
export interface RenderLimits {
  /** Characters (UTF-16 units) of the text. */
  readonly maxLength: number;
  /** Levels that it may nest, from 1. */
  readonly maxDepth: number;
}

/** A tree whose text would be larger than the limits let it be. A few copies of a tree into itself are more than any memory holds. */
export class TreeTooLarge extends Error {
  override readonly name = 'TreeTooLarge';
}

/** The JSON text of a tree, without space between its tokens. Throws `TreeTooLarge` before it is made. */
export function renderTree(node: JsonNode, limits: RenderLimits): string {
  const parts: string[] = [];
  let length = 0;
  const write = (part: string): void => {
    length += part.length;
    if (length > limits.maxLength) throw new TreeTooLarge(`it would have more than ${limits.maxLength} characters`);
    parts.push(part);
  };
  const render = (each: JsonNode, depth: number): void => {
    if (each.kind === 'scalar') {
      write(each.text);
      return;
    }
    if (depth > limits.maxDepth) throw new TreeTooLarge(`it would nest deeper than ${limits.maxDepth} levels`);
    const isList = each.kind === 'list';
    write(isList ? '[' : '{');
    let separator = '';
    for (const child of isList ? each.items : each.members) {
      write(separator);
      separator = ',';
      if (isList) render(child as JsonNode, depth + 1);
      else {
        const [name, member] = child as readonly [string, JsonNode];
        write(`${JSON.stringify(name)}:`);
        render(member, depth + 1);
      }
    }
    write(isList ? ']' : '}');
  };
  render(node, 1);
  return parts.join('');
}

/** True where both say the same, by RFC 6902 4.6: numbers by value, objects whatever the order of their members. */
export function isSameTree(a: JsonNode, b: JsonNode): boolean {
  if (a.kind === 'scalar')
    return b.kind === 'scalar' && (a.text === b.text || JSON.parse(a.text) === JSON.parse(b.text));
  if (a.kind === 'list') {
    return (
      b.kind === 'list' &&
      a.items.length === b.items.length &&
      a.items.every((item, index) => isSameTree(item, b.items[index] as JsonNode))
    );
  }
  if (b.kind !== 'object' || a.members.size !== b.members.size) return false;
  return [...a.members].every(([name, member]) => {
    const other = b.members.get(name);
    return other !== undefined && isSameTree(member, other);
  });
}

/** The node at a path of names and places; `undefined` where there is none. */
export function nodeAt(tree: JsonNode | undefined, path: readonly (string | number)[]): JsonNode | undefined {
  let node = tree;
  for (const part of path) {
    if (node?.kind === 'object') node = node.members.get(String(part));
    else node = node?.kind === 'list' ? node.items[part as number] : undefined;
  }
  return node;
}
