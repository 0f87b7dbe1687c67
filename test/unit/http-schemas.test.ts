/** Every schema of the HTTP API: strict, and without a text that would stand for faults that it does not describe. */
import { expect, test } from '@jest/globals';
import { z } from 'zod';
import { listSources } from '../support/source-files.ts';

/** A schema and all that is in it, each with its place. */
function* within(schema: z.core.$ZodType, place: string): Generator<readonly [string, z.core.$ZodType]> {
  yield [place, schema];
  const { def } = schema._zod;
  if (schema instanceof z.core.$ZodObject) {
    for (const [name, member] of Object.entries(schema._zod.def.shape)) yield* within(member, `${place}.${name}`);
  } else if (schema instanceof z.core.$ZodRecord) yield* within(schema._zod.def.valueType, `${place}.*`);
  else if (schema instanceof z.core.$ZodArray) yield* within(schema._zod.def.element, `${place}[]`);
  else if (schema instanceof z.core.$ZodUnion) {
    for (const option of schema._zod.def.options) yield* within(option, `${place}|`);
  } else if ('innerType' in def) yield* within(def.innerType as z.core.$ZodType, place);
}

const files = [...listSources('services'), ...listSources('shared')].filter((file) =>
  /\.schema\.ts$|-body\.ts$/.test(file),
);
const modules: { readonly file: string; readonly found: Readonly<Record<string, unknown>> }[] = [];
for (const file of files) {
  modules.push({ file, found: (await import(`../../${file}`)) as Readonly<Record<string, unknown>> }); // one by one: jest
}
const taken = modules.flatMap(({ file, found }) =>
  Object.entries(found)
    .filter(([name]) => /(Body|Query|Change)$/.test(name))
    .flatMap(([name, schema]) => [...within(schema as z.core.$ZodType, `${file}: ${name}`)]),
);

test('there are schemas of bodies and queries to look at', () => {
  expect(files.length).toBeGreaterThan(10);
  expect(taken.length).toBeGreaterThan(100);
});

test('every object that comes in is strict: what is not known is refused by name', () => {
  const open = taken.filter(
    ([, schema]) => schema instanceof z.core.$ZodObject && !(schema._zod.def.catchall instanceof z.core.$ZodNever),
  );
  expect(open.map(([place]) => place)).toEqual([]);
});

test('no object and no record has a text of its own: it would stand for unknown members and bad names as well', () => {
  const worded = taken.filter(
    ([, schema]) =>
      (schema instanceof z.core.$ZodObject || schema instanceof z.core.$ZodRecord) &&
      schema._zod.def.error !== undefined,
  );
  expect(worded.map(([place]) => place)).toEqual([]);
});
