/**
 * Writes an input as JSON, and refuses what JSON would change: what is sent is what the handler reads. `JSON.stringify` drops
 * functions and `undefined`, makes `{}` of a Map and null of NaN, and nobody hears of it before the handler fails.
 */
import { InputRefusedError } from './errors.ts';

/** Levels that an input may nest, as the services have it by default. */
const DEEPEST = 64;
/** Integers from here on JavaScript writes with an exponent, which the services take. */
const WRITTEN_WITH_EXPONENT = 1e21;
/** Under which a reference to a result says what it is in JSON. */
export const STANDS_FOR: unique symbol = Symbol('stands for');
const PLAIN_KEY = /^[A-Za-z_$][\w$]*$/;

/** JSON text of an input, which must be an object. Throws `InputRefusedError` with the path of what cannot be sent. */
export function renderInput(input: unknown, field = 'input'): string {
  if (typeof input === 'object' && input !== null && !Array.isArray(input)) return render(input, field, []);
  render(input, field, []); // says what it is where it is no JSON at all
  throw new InputRefusedError(field, 'must be an object');
}

function render(value: unknown, path: string, above: readonly object[]): string {
  switch (typeof value) {
    case 'string':
      return renderText(value, path);
    case 'number':
      return renderNumber(value, path);
    case 'boolean':
      return String(value);
    case 'undefined':
      throw new InputRefusedError(path, 'is undefined, which JSON drops; leave it out, or send null');
    case 'bigint':
      throw new InputRefusedError(path, 'is a bigint; send it as a string');
    case 'function':
      throw new InputRefusedError(path, 'is a function');
    case 'symbol':
      throw new InputRefusedError(path, 'is a symbol');
    case 'object':
      return value === null ? 'null' : renderObject(value, path, above);
  }
}

function renderText(text: string, path: string): string {
  // oxlint-disable-next-line no-control-regex -- U+0000 is what is looked for
  if (/\u0000|\p{Surrogate}/u.test(text)) {
    throw new InputRefusedError(path, 'holds U+0000 or a lone surrogate, which cannot be stored', 'text-invalid');
  }
  return JSON.stringify(text);
}

function renderNumber(value: number, path: string): string {
  if (!Number.isFinite(value)) throw new InputRefusedError(path, `is ${value}, which JSON has no number for`);
  if (Number.isInteger(value) && !Number.isSafeInteger(value) && Math.abs(value) < WRITTEN_WITH_EXPONENT) {
    throw new InputRefusedError(path, 'is an integer beyond 2^53-1; send it as a string', 'number-not-exact');
  }
  return JSON.stringify(value);
}

function renderObject(value: object, path: string, above: readonly object[]): string {
  const standsFor = (value as { readonly [STANDS_FOR]?: unknown })[STANDS_FOR];
  if (standsFor !== undefined) return JSON.stringify(standsFor);
  if (above.includes(value)) throw new InputRefusedError(path, 'refers to what it is in');
  if (above.length >= DEEPEST)
    throw new InputRefusedError(path, `nests deeper than ${DEEPEST} levels`, 'body-too-deep');
  const within = [...above, value];
  if (Array.isArray(value)) return renderArray(value, path, within);
  refuseInstance(value, path);
  const members = Object.entries(value).map(([name, member]: [string, unknown]) => {
    const at = PLAIN_KEY.test(name) ? `${path}.${name}` : `${path}[${JSON.stringify(name)}]`;
    return `${renderText(name, at)}:${render(member, at, within)}`;
  });
  return `{${members.join(',')}}`;
}

function renderArray(value: readonly unknown[], path: string, within: readonly object[]): string {
  const items: string[] = [];
  for (let index = 0; index < value.length; index += 1) {
    const at = `${path}[${index}]`;
    // A hole reads as undefined too.
    if (value[index] === undefined) throw new InputRefusedError(at, 'is undefined, which JSON makes null; send null');
    items.push(render(value[index], at, within));
  }
  const other = Object.keys(value).find((name) => !/^\d+$/.test(name));
  if (other !== undefined) throw new InputRefusedError(`${path}.${other}`, 'is a member of an array, which JSON drops');
  return `[${items.join(',')}]`;
}

/** Plain objects pass, also those of another realm, whose prototype is the top of its own chain. */
function refuseInstance(value: object, path: string): void {
  const prototype: unknown = Object.getPrototypeOf(value);
  const isPlain = prototype === null || Object.getPrototypeOf(prototype) === null;
  const kind = Object.prototype.toString.call(value).slice('[object '.length, -1);
  if (!isPlain || kind !== 'Object') throw new InputRefusedError(path, reasonOf(value, kind));
  const symbol = Object.getOwnPropertySymbols(value).find((each) =>
    Object.prototype.propertyIsEnumerable.call(value, each),
  );
  if (symbol !== undefined)
    throw new InputRefusedError(`${path}[${String(symbol)}]`, 'is a member under a symbol, which JSON drops');
}

function reasonOf(value: object, kind: string): string {
  switch (kind) {
    case 'Date':
      return 'is a Date; send its toISOString(), and read it back in the handler';
    case 'Map':
      return 'is a Map; send Object.fromEntries(map), or its entries as an array';
    case 'Set':
      return 'is a Set; send it as an array: [...set]';
    default: {
      const maker: unknown = (value as { constructor?: unknown }).constructor;
      const name = typeof maker === 'function' && maker.name !== '' ? maker.name : kind;
      const isBytes = ArrayBuffer.isView(value) || kind.endsWith('ArrayBuffer');
      return isBytes ? `is a ${name}; send bytes as base64 text` : `is an instance of ${name}; send plain data`;
    }
  }
}
