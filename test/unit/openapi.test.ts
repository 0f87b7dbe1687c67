/** Both APIs as their OpenAPI documents and reference pages describe them. */
import { Validator } from '@seriousme/openapi-schema-validator';
import { describe, expect, test } from '@jest/globals';
import { Ajv2020 } from 'ajv/dist/2020.js';
import { describeDeadLetterApi, describeTaskApi } from '../../scripts/reference/open-api.ts';
import { sampleOf } from '../../shared/http/reference-example.ts';
import { renderReferencePage } from '../../shared/http/reference-page.ts';
import type { JsonSchema, OpenApi, Operation } from '../../shared/http/open-api.ts';

const apis = [
  ['Task API', (await describeTaskApi()).document],
  ['Dead Letter API', (await describeDeadLetterApi()).document],
] as const;

const validate = async (document: unknown): Promise<unknown> =>
  await new Validator().validate(JSON.parse(JSON.stringify(document)) as Record<string, unknown>);

const operationsOf = ({ paths }: OpenApi): readonly (readonly [string, Operation])[] =>
  Object.entries(paths).flatMap(([path, methods]) =>
    Object.entries(methods).map(([method, operation]) => [`${method.toUpperCase()} ${path}`, operation] as const),
  );

/** Formats are left to those who call. */
const ajv = new Ajv2020({ strict: false, validateFormats: false });
const isSchema = (schema: JsonSchema): boolean => ajv.validateSchema(schema as object) === true;

describe.each(apis)('the %s', (_name, document) => {
  test('is a valid OpenAPI 3.1 document', async () => {
    expect(document).toMatchObject({ openapi: '3.1.0' });
    expect(await validate(document)).toEqual({ valid: true });
  });

  test('has only schemas that JSON Schema knows', () => {
    const schemas = operationsOf(document).flatMap(([name, { parameters = [], requestBody, responses = {} }]) => [
      ...parameters.map(({ schema }) => [name, schema] as const),
      ...[requestBody, ...Object.values(responses)].flatMap((each) =>
        Object.values(each?.content ?? {}).map(({ schema }) => [name, schema] as const),
      ),
    ]);
    expect(schemas.length).toBeGreaterThan(10);
    for (const [name, schema] of schemas) {
      if (schema === undefined) throw new Error(`${name} has a value without a schema`);
      expect([name, isSchema(schema), ajv.errors]).toEqual([name, true, null]);
    }
  });

  test('says of every operation what it does and which role it needs', () => {
    for (const [, { summary, description }] of operationsOf(document)) {
      expect(summary).toEqual(expect.stringMatching(/\S/));
      expect(description).toMatch(/^Needs the role `(viewer|operator|editor|admin)`\.$/);
    }
  });

  test('gives an example of every body that its own schema takes', () => {
    const bodies = operationsOf(document).flatMap(([name, { requestBody }]) => {
      const schema = requestBody?.content?.['application/json']?.schema;
      return schema === undefined ? [] : [{ name, schema }];
    });
    expect(bodies.length).toBeGreaterThan(0);
    for (const { name, schema } of bodies) {
      const check = ajv.compile(schema as object);
      expect([name, check(sampleOf(schema)), check.errors]).toEqual([name, true, null]);
    }
  });

  test('has a page with every operation, an example of it, and links that lead somewhere', () => {
    const page = renderReferencePage(document);
    const operations = operationsOf(document);
    const anchors = [...page.matchAll(/<section id="([^"]+)">/g)].map(([, id]) => id);
    expect(new Set(anchors).size).toBe(operations.length);
    for (const [, target] of page.matchAll(/href="#([^"]+)"/g)) expect(anchors).toContain(target);
    for (const [name] of operations) expect(page).toContain(`<code>${name}</code>`);
    expect(page.match(/curl -sS/g)).toHaveLength(operations.length);
  });

  test('has a page that needs nothing but itself', () => {
    const page = renderReferencePage(document);
    expect(page).not.toMatch(/<script|<img|<link|<iframe|\bsrc=|@import|url\(|\bon\w+="|\bstyle="/i);
    expect([...page.matchAll(/href="([^#][^"]*)"/g)].map(([, target]) => target)).toEqual(['openapi.json']);
  });
});

test('a document that is not OpenAPI is found out', async () => {
  const [[, document]] = apis;
  const planted = {
    ...document,
    paths: { '/v1/things': { get: { responses: { '2xx': { description: 'lower case' } } } } },
  };
  expect(await validate(planted)).toMatchObject({ valid: false });
});
