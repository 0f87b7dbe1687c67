/**
 * The page on which people read an API: made of the OpenAPI document alone, one file without scripts, images or anything from
 * another host, so that it can be kept and opened anywhere.
 */
import { createHash } from 'node:crypto';
import { STATUS_CODES } from 'node:http';
import type { Content, JsonSchema, OpenApi, Operation, Parameter } from './open-api.ts';
import { renderCurl } from './reference-example.ts';

const STYLE = `
:root { color-scheme: light dark; --line: #8884; --soft: #8881; --link: #0a58ca; }
@media (prefers-color-scheme: dark) { :root { --link: #6ea8fe; } }
body { font: 16px/1.5 system-ui, sans-serif; margin: 0 auto; max-width: 60rem; padding: 1rem; }
a { color: var(--link); }
code, pre { font: 0.9em/1.5 ui-monospace, monospace; }
pre { background: var(--soft); border-radius: 4px; overflow-x: auto; padding: 0.75rem; }
nav ul { list-style: none; padding: 0; }
section { border-top: 1px solid var(--line); margin-top: 2rem; padding-top: 0.5rem; }
h2 { font-size: 1.15rem; overflow-wrap: anywhere; }
h3 { font-size: 1rem; margin-bottom: 0.25rem; }
table { border-collapse: collapse; width: 100%; }
th, td { border-bottom: 1px solid var(--line); padding: 0.3rem 0.75rem 0.3rem 0; text-align: left; vertical-align: top; }
ul.members { border-left: 1px solid var(--line); list-style: none; margin: 0.25rem 0; padding-left: 1rem; }
summary { cursor: pointer; }
.type { opacity: 0.75; }
@media print { details > * { display: block; } }
`;

/** Headers of the page: nothing may be loaded or run, and only this style may apply. Source: w3.org/TR/CSP3. */
export const REFERENCE_HEADERS: Readonly<Record<string, string>> = {
  'content-type': 'text/html; charset=utf-8',
  'content-security-policy':
    `default-src 'none'; style-src 'sha256-${createHash('sha256').update(STYLE).digest('base64')}'; ` +
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
  'referrer-policy': 'no-referrer',
  'x-content-type-options': 'nosniff',
};

/** Levels of members that are shown within each other. */
const DEEPEST = 8;

interface Entry {
  readonly method: string;
  readonly path: string;
  readonly anchor: string;
  readonly operation: Operation;
}

/** Makes the page. */
export function renderReferencePage({ info, paths }: OpenApi): string {
  const entries = Object.entries(paths).flatMap(([path, methods]) =>
    Object.entries(methods).map(([name, operation]): Entry => {
      const method = name.toUpperCase();
      return { method, path, operation, anchor: anchorOf(method, path) };
    }),
  );
  const title = escape(info.title);
  return `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>${title}</title>
<style>${STYLE}</style>
</head>
<body>
<header>
<h1>${title}</h1>
<p>For whoever calls it over HTTP. The same for programs: <a href="openapi.json"><code>openapi.json</code></a>, OpenAPI 3.1. In the
examples <code>$WARREN_URL</code> is the address of this service and <code>$WARREN_TOKEN</code> a token of its configuration; on a
loopback address no token is needed. A failure is answered with a problem document, RFC 9457.</p>
</header>
<nav aria-label="Operations">
<ul>
${entries.map(({ method, path, anchor, operation }) => `<li><a href="#${anchor}"><code>${method} ${escape(path)}</code></a> ${escape(operation.summary ?? '')}</li>`).join('\n')}
</ul>
</nav>
<main>
${entries.map((entry) => renderEntry(entry)).join('\n')}
</main>
</body>
</html>
`;
}

function renderEntry({ method, path, anchor, operation }: Entry): string {
  const { summary = '', description = '', parameters = [], requestBody, responses = {} } = operation;
  const parts = [
    `<h2><a href="#${anchor}"><code>${method} ${escape(path)}</code></a></h2>`,
    `<p>${escape(summary)}${summary === '' ? '' : '.'} ${prose(description)}</p>`,
    ...(parameters.length === 0 ? [] : [renderParameters(parameters)]),
    ...renderBody('Body', requestBody?.content, true),
    '<h3>Example</h3>',
    `<pre><code>${escape(renderCurl(method, path, operation))}</code></pre>`,
    '<h3>Answers</h3>',
    ...Object.entries(responses).flatMap(([status, response]) =>
      renderBody(statusText(status), response.content, false),
    ),
  ];
  return `<section id="${anchor}">\n${parts.join('\n')}\n</section>`;
}

function renderParameters(parameters: readonly Parameter[]): string {
  const rows = parameters.map(
    ({ name, in: place, required, description, schema = {} }) =>
      `<tr><td><code>${escape(name)}</code></td><td>${escape(place)}${required === true ? ', required' : ''}</td>` +
      `<td><span class="type">${escape(typeOf(schema))}</span> ${prose(description ?? schema.description ?? '')}</td></tr>`,
  );
  return `<h3>Parameters</h3>\n<table><thead><tr><th>name</th><th>where</th><th>meaning</th></tr></thead>\n<tbody>${rows.join('\n')}</tbody></table>`;
}

function renderBody(title: string, content: Content | undefined, isOpen: boolean): string[] {
  const [found] = Object.entries(content ?? {});
  if (found === undefined) return isOpen ? [] : [`<p>${escape(title)}</p>`];
  const [mediaType, { schema = {} }] = found;
  return [
    `<details${isOpen ? ' open' : ''}><summary>${escape(title)} <span class="type">${escape(mediaType)}</span></summary>`,
    renderSchema(schema, isOpen ? 'required' : 'always there', 0),
    '</details>',
  ];
}

/** What is within a value: members of an object, items of an array, choices. `mark` says of a member that it must be there. */
function renderSchema(schema: JsonSchema, mark: string, depth: number): string {
  if (depth >= DEEPEST) return '';
  const choices = schema.anyOf ?? schema.oneOf;
  if (choices !== undefined) {
    const inner = choices
      .map((choice) => `<li>${describe(choice)}${renderSchema(choice, mark, depth + 1)}</li>`)
      .join('');
    return choices.some((choice) => choice.properties !== undefined) ? `<ul class="members">${inner}</ul>` : '';
  }
  if (schema.items !== undefined) return renderSchema(schema.items, mark, depth);
  const members = Object.entries(schema.properties ?? {});
  if (members.length === 0) return '';
  const items = members.map(
    ([name, member]) =>
      `<li><code>${escape(name)}</code>${schema.required?.includes(name) === true ? ` (${mark})` : ''} ` +
      `${describe(member)}${renderSchema(member, mark, depth + 1)}</li>`,
  );
  return `<ul class="members">\n${items.join('\n')}\n</ul>`;
}

function describe(schema: JsonSchema): string {
  return `<span class="type">${escape(typeOf(schema))}</span> ${prose(schema.description ?? '')}`;
}

/** A type in words: `integer, 0 to 9`. */
function typeOf(schema: JsonSchema): string {
  const choices = schema.anyOf ?? schema.oneOf;
  if (choices !== undefined) return choices.map((choice) => typeOf(choice)).join(' or ');
  if (schema.const !== undefined) return JSON.stringify(schema.const);
  if (schema.enum !== undefined) return schema.enum.map((value) => JSON.stringify(value)).join(' | ');
  if (schema.items !== undefined)
    return `array of ${typeOf(schema.items)}${span(schema.minItems, schema.maxItems, 'items')}`;
  const name = [schema.type ?? 'any value'].flat().join(' or ');
  const format = schema.format === undefined ? '' : ` (${schema.format})`;
  return (
    name + format + span(schema.minimum, schema.maximum, '') + span(schema.minLength, schema.maxLength, 'characters')
  );
}

/** Bounds in words. What JavaScript cannot count beyond is no bound of ours. */
function span(least: number | undefined, most: number | undefined, unit: string): string {
  const lower = least === undefined || least <= Number.MIN_SAFE_INTEGER ? undefined : least;
  const upper = most === undefined || most >= Number.MAX_SAFE_INTEGER ? undefined : most;
  const end = unit === '' ? '' : ` ${unit}`;
  if (lower !== undefined && upper !== undefined) return `, ${lower} to ${upper}${end}`;
  if (lower !== undefined) return `, at least ${lower}${end}`;
  return upper === undefined ? '' : `, at most ${upper}${end}`;
}

function statusText(status: string): string {
  const meaning = status.toUpperCase() === '4XX' ? 'the fault of the request' : STATUS_CODES[Number(status)];
  return meaning === undefined ? status : `${status.toLowerCase()} ${meaning}`;
}

function anchorOf(method: string, path: string): string {
  return `${method} ${path}`
    .toLowerCase()
    .replaceAll(/[^a-z0-9]+/g, '-')
    .replaceAll(/^-|-$/g, '');
}

/** Text whose `code` is marked as in the descriptions. */
function prose(text: string): string {
  return escape(text).replaceAll(/`([^`]+)`/g, '<code>$1</code>');
}

const ESCAPES: Readonly<Record<string, string>> = {
  '&': '&amp;',
  '<': '&lt;',
  '>': '&gt;',
  '"': '&quot;',
  "'": '&#39;',
};

function escape(text: string): string {
  return text.replaceAll(/[&<>"']/g, (character) => ESCAPES[character] ?? character);
}
