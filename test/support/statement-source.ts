/** Reads the parameters of a statement from its source: they are types, so nothing of them is left at run time. */

/** A parameter as it is written. */
export interface WrittenParameter {
  /** Empty where it has none. */
  readonly name: string;
  /** Its TypeScript type, such as `readonly string[]`. */
  readonly type: string;
}

/** The parameters of the statement that is named `name`; `undefined` if not found. */
export function parametersOf(source: string, name: string): readonly WrittenParameter[] | undefined {
  const end = source.indexOf(`name: '${name}'`);
  const start = source.lastIndexOf('statement<', end);
  if (end < 0 || start < 0) return undefined;
  const written = source.slice(start + 'statement<'.length, source.lastIndexOf('>()', end)).trim();
  const tuple = written.startsWith('[')
    ? written
    : (new RegExp(`type ${written} = (\\[[^;]*\\]);`).exec(source)?.[1] ?? '');
  if (!tuple.startsWith('[')) return undefined;
  return splitAtTopLevel(tuple.slice(1, -1)).map((element) => {
    const [, label = ''] = /^(\w+)\??:\s/.exec(element) ?? [];
    return { name: label, type: element.replace(/^\w+\??:\s*/, '') };
  });
}

/** True where Postgres takes what the TypeScript type holds, or where the type is not one that we know. */
export function isParameterFitting(typescript: string, postgres: string): boolean {
  const bare = typescript.replaceAll(/\s*\|\s*(null|undefined)\b/g, '').trim();
  const element = /^readonly (?:\((.*)\)|([\w]+))\[\]$/.exec(bare);
  if (element !== null) {
    return postgres.endsWith('[]') && isParameterFitting(element[1] ?? element[2] ?? '', postgres.slice(0, -2));
  }
  const accepted: ReadonlyMap<string, RegExp> = new Map([
    ['number', /^(int2|int4|int8|float8|numeric)$/],
    ['boolean', /^bool$/],
    ['Date', /^timestamptz$/],
    ['Buffer', /^bytea$/],
    ['string', /^(?!(int2|int4|float8|bool|bytea|timestamptz)$)(?!.*\[\]$)/],
  ]);
  return accepted.get(bare)?.test(postgres) ?? true;
}

function splitAtTopLevel(list: string): readonly string[] {
  const parts: string[] = [];
  let depth = 0;
  let part = '';
  for (const letter of list) {
    if ('[({<'.includes(letter)) depth += 1;
    if ('])}>'.includes(letter)) depth -= 1;
    if (letter === ',' && depth === 0) {
      parts.push(part);
      part = '';
    } else part += letter;
  }
  return [...parts, part].map((text) => text.trim()).filter((text) => text !== '');
}
