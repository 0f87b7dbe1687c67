/** The statements of the product, found in its sources. */
import { readFile, readdir } from 'node:fs/promises';
import { join, relative } from 'node:path';
import { fileURLToPath, pathToFileURL } from 'node:url';
import type { Columns, Statement } from '../../shared/postgres/statement.ts';

/** Any statement. */
export type AnyStatement = Statement<readonly unknown[], Columns>;

/** A file of statements. */
export interface StatementFile {
  /** Path from the root of the repository. */
  readonly path: string;
  readonly source: string;
  readonly statements: readonly AnyStatement[];
}

const root = fileURLToPath(new URL('../..', import.meta.url));

/** Every `*.sql.ts` of the command line, the services and what they share, in the order of their paths. */
export async function findStatementFiles(): Promise<readonly StatementFile[]> {
  const paths: string[] = [];
  for (const folder of ['cli', 'services', 'shared']) {
    for (const entry of await readdir(join(root, folder), { recursive: true })) {
      if (entry.endsWith('.sql.ts')) paths.push(join(root, folder, entry));
    }
  }
  const files: StatementFile[] = [];
  // One after the other: jest's loader loses modules that two imports link at once.
  for (const path of paths.toSorted()) files.push(await readStatementFile(path));
  return files;
}

async function readStatementFile(path: string): Promise<StatementFile> {
  const module = (await import(pathToFileURL(path).href)) as Record<string, unknown>;
  return {
    path: relative(root, path),
    source: await readFile(path, 'utf8'),
    statements: Object.values(module).filter((member) => isStatement(member)),
  };
}

function isStatement(member: unknown): member is AnyStatement {
  return typeof member === 'object' && member !== null && 'text' in member && 'name' in member && 'columns' in member;
}
