/** Examples of calls, made of what the OpenAPI document says of them. */
import type { JsonSchema, Operation } from './open-api.ts';

const ID = '01890a5d-ac96-774b-bcce-b302099a8057';
const INSTANT = '2030-01-31T12:00:00Z';
/** Levels of objects that an example shows. */
const DEEPEST = 6;

/** A call of an operation with curl, as a shell takes it: what must be given, and nothing else. */
export function renderCurl(method: string, path: string, { parameters = [], requestBody }: Operation): string {
  const filled = parameters
    .filter((each) => each.in === 'path')
    .reduce((text, { name, schema }) => text.replace(`{${name}}`, encodeURIComponent(String(sampleOf(schema)))), path);
  const query = parameters
    .filter((each) => each.in === 'query' && each.required === true)
    .map(({ name, schema }) => `${encodeURIComponent(name)}=${encodeURIComponent(String(sampleOf(schema)))}`);
  const url = query.length === 0 ? filled : `${filled}?${query.join('&')}`;
  const body = requestBody?.content?.['application/json']?.schema;
  return [
    `curl -sS${method === 'GET' ? '' : ` -X ${method}`} "$WARREN_URL${url}"`,
    '-H "authorization: Bearer $WARREN_TOKEN"',
    ...(body === undefined
      ? []
      : ["-H 'content-type: application/json'", `-d ${quote(JSON.stringify(sampleOf(body)))}`]),
  ].join(' \\\n  ');
}

/** A value that a schema may take. Of an object the members that must be there; of those that may, none. */
export function sampleOf(schema: JsonSchema = {}, depth = 0): unknown {
  const [choice] = schema.anyOf ?? schema.oneOf ?? [];
  if (choice !== undefined) return sampleOf(choice, depth);
  if (schema.const !== undefined) return schema.const;
  if (schema.default !== undefined) return schema.default;
  if (schema.enum?.[0] !== undefined) return schema.enum[0];
  const [type = ''] = [schema.type ?? ''].flat();
  switch (type) {
    case 'object':
      return depth >= DEEPEST
        ? {}
        : Object.fromEntries(
            (schema.required ?? []).map((name) => [name, sampleOf(schema.properties?.[name], depth + 1)]),
          );
    case 'array':
      return depth >= DEEPEST ? [] : [sampleOf(schema.items, depth + 1)];
    case 'integer':
    case 'number':
      return Math.max(1, schema.minimum ?? 1);
    case 'boolean':
      return true;
    case 'null':
      return null;
    default:
      return sampleText(schema);
  }
}

function sampleText({ format, minLength = 0 }: JsonSchema): string {
  if (format === 'uuid') return ID;
  if (format === 'date-time') return INSTANT;
  return 'example'.padEnd(minLength, '-');
}

/** One word of a shell. */
function quote(text: string): string {
  return `'${text.replaceAll("'", String.raw`'\''`)}'`;
}
