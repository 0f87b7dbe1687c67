/**
 * Where the sample types read and write. What an input names is data: it can only name files below these directories.
 */
import { mkdir } from 'node:fs/promises';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import { dirname, join, resolve, sep } from 'node:path';
import { z } from 'zod';
import { NonRetryable } from '../../shared/tasks/handler-errors.ts';

/** Data and pictures that the package vega-datasets ships: flights-200k.json, gimp.png, seattle-weather.csv, … */
export function dataDirectory(): string {
  return join(dirname(createRequire(import.meta.url).resolve('vega-datasets')), '..', 'data');
}

/** Where the samples write, one directory a user. Sources that start with `inbox/` are read from here too. */
export const OUTPUT_DIRECTORY = join(tmpdir(), `warren-examples-${process.getuid?.() ?? 'user'}`);

/** A relative path in an input. */
export const RelativePath = z
  .string()
  .min(1)
  .max(200)
  .regex(/^[\w][\w.-]*(\/[\w][\w.-]*)*$/, 'must be a relative path');

/** The file that a source names: of the data, or of the inbox. Throws NonRetryable where it leaves its directory. */
export function sourcePath(source: string): string {
  return within(source.startsWith('inbox/') ? OUTPUT_DIRECTORY : dataDirectory(), source);
}

/** The file that an output names; its directory is made. Throws NonRetryable where it leaves its directory. */
export async function outputPath(output: string): Promise<string> {
  const path = within(OUTPUT_DIRECTORY, output);
  await mkdir(dirname(path), { recursive: true, mode: 0o700 });
  return path;
}

function within(directory: string, path: string): string {
  const found = resolve(directory, path);
  if (path.includes('\0') || !found.startsWith(directory + sep))
    throw new NonRetryable('the path leaves its directory');
  return found;
}
