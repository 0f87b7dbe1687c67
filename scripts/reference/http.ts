/** `docs/reference/http.md`: both APIs, printed from their OpenAPI documents. */
import type { JsonSchema, Operation } from '../../shared/http/open-api.ts';
import type { Api } from './open-api.ts';
import { code, page, table } from './markdown.ts';

/** Prints the page. */
export function renderHttp(apis: readonly Api[]): string {
  return page('HTTP', 'For whoever calls Warren over HTTP.', [
    'Each service also answers its whole OpenAPI 3.1 document at `/openapi.json`, with every member of every answer, and at `/reference` a page made of it, with examples. A body is ' +
      'JSON in UTF-8, sent as `application/json`. A failure is a problem document, RFC 9457: see [Errors](errors.md). ' +
      '`/livez`, `/readyz` and `/metrics` are open to everybody and are there on workers too.',
    'On a loopback address a call without a token acts as `local`, with the role `admin`; beyond loopback every call needs a ' +
      'bearer token. Roles, each may do what those before it may: `viewer`, `operator`, `editor`, `admin`. See ' +
      '[Configuration and tokens](../guides/configuration-and-tokens.md).',
    ...apis.flatMap((api) => renderApi(api)),
  ]);
}

function renderApi({ document, roles }: Api): string[] {
  return [
    `## ${document.info.title.replace(/^Warren /, '')}`,
    ...Object.entries(document.paths).flatMap(([path, methods]) =>
      Object.entries(methods).flatMap(([method, operation]) => {
        const role = roles.get(`${method.toUpperCase()} ${path.replaceAll(/\{(\w+)\}/g, ':$1')}`) ?? 'viewer';
        return renderOperation(`${method.toUpperCase()} ${path}`, role, operation);
      }),
    ),
  ];
}

function renderOperation(name: string, role: string, operation: Operation): string[] {
  const answers = Object.keys(operation.responses ?? {}).map((status) => code(status.toLowerCase()));
  const parameters = (operation.parameters ?? []).filter((each) => each.in !== 'path');
  const body = Object.values(operation.requestBody?.content ?? {})[0]?.schema;
  return [
    `### ${name}`,
    `${operation.summary ?? ''}. Needs ${code(role)}. Answers ${answers.join(', ')}.`,
    ...(parameters.length === 0
      ? []
      : [
          table(
            ['query', 'meaning'],
            parameters.map(({ name: parameter, description, schema }) => [
              code(parameter),
              description ?? schema?.description ?? '',
            ]),
          ),
        ]),
    ...(body?.properties === undefined ? [] : [membersOf(body)]),
  ];
}

const typeOf = (type: JsonSchema['type'] = ''): string => [type].flat().join(' or ');

function membersOf({ properties = {}, required = [] }: JsonSchema): string {
  return table(
    ['member of the body', 'type', 'meaning'],
    Object.entries(properties).map(([name, { type, description, items }]) => [
      `${code(name)}${required.includes(name) ? ', required' : ''}`,
      items?.type === undefined ? typeOf(type) : `${typeOf(type ?? 'array')} of ${typeOf(items.type)}`,
      description ?? '',
    ]),
  );
}
