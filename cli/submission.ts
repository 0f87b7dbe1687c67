/** Makes the body of a submission out of options. The input's bytes go into it as they were given, never re-written. */
import { isUtf8 } from 'node:buffer';
import { readFile } from 'node:fs/promises';
import { codeOf } from '../shared/errors/to-error.ts';
import { renderWithRaw } from '../shared/tasks/json.ts';
import { readTree, renderTree } from '../shared/tasks/json-tree.ts';
import { CliError, usageError } from './cli-error.ts';
import { EXIT_CODES } from './exit-codes.ts';
import type { CliIo } from './io.ts';

/** Options of `task submit` that become members of the body. */
export interface SubmitOptions {
  readonly input?: string;
  readonly inputFile?: string;
  readonly queue?: string;
  readonly priority?: number;
  /** Milliseconds. */
  readonly delay?: number;
  readonly runAt?: string;
  readonly deadline?: string;
  readonly maxAttempts?: number;
  readonly tag?: readonly string[];
  readonly businessKey?: string;
  readonly uniqueKey?: string;
  readonly uniqueWhile?: string;
  /** Milliseconds. */
  readonly uniqueWithin?: number;
  readonly onConflict?: string;
}

/** JSON text of the body. Throws exit 2 for options that exclude each other, 65 for an input that is not JSON. */
export async function renderSubmission(type: string, options: SubmitOptions, io: CliIo): Promise<string> {
  if (options.delay !== undefined && options.runAt !== undefined) {
    throw usageError('Give --delay or --run-at, not both.');
  }
  const { uniqueKey, uniqueWhile, uniqueWithin, onConflict } = options;
  if (uniqueWhile !== undefined && uniqueWithin !== undefined) {
    throw usageError('Give --unique-while or --unique-within, not both.');
  }
  if (uniqueKey === undefined && (uniqueWhile ?? uniqueWithin ?? onConflict) !== undefined) {
    throw usageError('Give --unique-key with --unique-while, --unique-within and --on-conflict.');
  }
  return renderWithRaw(
    {
      type,
      queue: options.queue,
      priority: options.priority,
      delayMs: options.delay,
      runAt: options.runAt,
      deadline: options.deadline,
      maxAttempts: options.maxAttempts,
      tags: options.tag,
      businessKey: options.businessKey,
      unique:
        uniqueKey === undefined
          ? undefined
          : { key: uniqueKey, while: uniqueWhile, withinMs: uniqueWithin, onConflict },
    },
    { input: await readInput(options, io) },
  );
}

/** The bytes of a JSON document, from a file; `-` is standard input. Throws exit 2 and 65 as `renderSubmission`. */
export async function readJsonFile(file: string, io: CliIo): Promise<Buffer> {
  const whole = file === '-' ? 'standard input' : JSON.stringify(file);
  return checkJson(await readBytes({ inputFile: file }, io), { title: `${whole} is not valid JSON.` });
}

/** The input's bytes as they were given; `{}` where none was. Throws exit 2 and 65 as `renderSubmission`. */
export async function readInput(options: Pick<SubmitOptions, 'input' | 'inputFile'>, io: CliIo): Promise<Buffer> {
  if (options.input !== undefined && options.inputFile !== undefined) {
    throw usageError('Give --input or --input-file, not both.');
  }
  const hint = `Quote it for the shell, such as --input '{"rows": 10}', or use --input-file.`;
  return checkJson(await readBytes(options, io), { title: 'The input is not valid JSON.', field: 'input', hint });
}

async function readBytes({ input, inputFile }: Pick<SubmitOptions, 'input' | 'inputFile'>, io: CliIo): Promise<Buffer> {
  if (inputFile === undefined) return Buffer.from(input ?? '{}');
  if (inputFile === '-') return await io.readStdin();
  try {
    return await readFile(inputFile);
  } catch (thrown) {
    throw usageError(
      `The input file ${JSON.stringify(inputFile)} cannot be read: ${codeOf(thrown) ?? 'unknown reason'}.`,
    );
  }
}

/** Refuses what is not one JSON value: `1,"priority":9` would otherwise become a member of the body. */
function checkJson(
  bytes: Buffer,
  told: { readonly title: string; readonly field?: string; readonly hint?: string },
): Buffer {
  const refuse = (reason: string): never => {
    throw new CliError(EXIT_CODES.badData, { code: 'body-invalid', reason, ...told });
  };
  if (!isUtf8(bytes)) return refuse('is not UTF-8');
  try {
    JSON.parse(bytes.toString('utf8'));
  } catch (thrown) {
    const position = /at position (\d+)/.exec(String(thrown))?.[1];
    return refuse(
      bytes.length === 0 ? 'is empty' : `is no JSON${position === undefined ? '' : ` from character ${position} on`}`,
    );
  }
  return bytes;
}

/** A JSON object with other members set; all else stays as it was written. Throws exit 2 for what is no object. */
export function withMembers(json: Buffer, members: Readonly<Record<string, unknown>>): string {
  const tree = readTree(json.toString('utf8'));
  if (tree.kind !== 'object') throw usageError('That is to be a JSON object: {…}.');
  const set = Object.entries(members)
    .filter(([, value]) => value !== undefined)
    .map(([name, value]) => [name, readTree(JSON.stringify(value))] as const);
  return renderTree(
    { kind: 'object', members: new Map([...tree.members, ...set]) },
    { maxLength: Infinity, maxDepth: Infinity },
  );
}
