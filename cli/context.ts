/** What every command works with: the world, the options that all commands take, and clients made when first needed. */
import { readFile } from 'node:fs/promises';
import type { Command } from 'commander';
import { codeOf } from '../shared/errors/to-error.ts';
import { ApiClient } from './api.ts';
import { CliError } from './cli-error.ts';
import { escapeJson } from './escape.ts';
import { EXIT_CODES } from './exit-codes.ts';
import type { ExitCode } from './exit-codes.ts';
import type { CliIo } from './io.ts';
import { painterFor } from './render.ts';
import type { Painter } from './render.ts';

/** Options that every command takes. */
export interface CommonOptions {
  readonly json?: true;
  readonly url?: string;
  readonly deadLettersUrl?: string;
  readonly tokenFile?: string;
  readonly caFile?: string;
  readonly config?: string;
}

/** One run of one command. */
export interface CommandContext {
  readonly io: CliIo;
  readonly options: CommonOptions;
  /** True where stdout gets one JSON document and nothing else. */
  readonly isJson: boolean;
  /** Paints for stdout. */
  readonly paint: Painter;
  /** Writes text for people to stdout; nothing with `--json`. */
  print(text: string): void;
  /** Writes the JSON document of `--json`: a value, or the bytes of JSON as they came. */
  printJson(document: unknown): void;
  /** Writes a remark for people to stderr; nothing with `--json`. */
  remark(text: string): void;
  taskApi(): Promise<ApiClient>;
  deadLetterApi(): Promise<ApiClient>;
  /** Sets the exit code of a command that ends without an error. */
  exitWith(code: ExitCode): void;
}

/** What a command does, given its context, its own options and its arguments. */
export type Action<Options> = (context: CommandContext, options: Options, ...args: string[]) => Promise<void>;

/** Turns an action into what commander calls. */
export type Act = <Options>(action: Action<Options>) => (...given: unknown[]) => Promise<void>;

/** Where the Task API is looked for without configuration. */
export const DEFAULT_TASK_URL = 'http://127.0.0.1:8080';
/** Where the Dead Letter API is looked for without configuration. */
export const DEFAULT_DEAD_LETTERS_URL = 'http://127.0.0.1:8081';

/** Makes the context of one command; `exitWith` is told the code. */
export function createContext(command: Command, io: CliIo, exitWith: (code: ExitCode) => void): CommandContext {
  const options = command.optsWithGlobals<CommonOptions>();
  const isJson = options.json === true;
  const client = async (given: string | undefined, setting: string, fallback: string): Promise<ApiClient> =>
    new ApiClient(
      { fetch: await chooseFetch(options, io), clock: io.clock, interrupted: io.interrupted },
      {
        baseUrl: checkUrl(given ?? nonEmpty(io.env[setting]) ?? fallback, setting),
        token: await readToken(options, io),
        setting,
      },
    );
  return {
    io,
    options,
    isJson,
    paint: painterFor(io.stdout, io.env),
    print: (text) => {
      if (!isJson) io.stdout.write(text);
    },
    printJson: (document) => {
      if (isJson)
        io.stdout.write(
          `${escapeJson(Buffer.isBuffer(document) ? document.toString('utf8').trim() : JSON.stringify(document, undefined, 2))}\n`,
        );
    },
    remark: (text) => {
      if (!isJson) io.stderr.write(text);
    },
    taskApi: async () => await client(options.url, 'WARREN_URL', DEFAULT_TASK_URL),
    deadLetterApi: async () =>
      await client(options.deadLettersUrl, 'WARREN_DEAD_LETTERS_URL', DEFAULT_DEAD_LETTERS_URL),
    exitWith,
  };
}

function checkUrl(text: string, setting: string): string {
  const fail = (reason: string): never => {
    throw new CliError(EXIT_CODES.configuration, {
      code: 'config-invalid',
      title: 'The address of the service is wrong.',
      field: setting,
      reason,
      hint: `Write it as ${DEFAULT_TASK_URL}.`,
    });
  };
  if (!URL.canParse(text)) return fail('is not a URL');
  const url = new URL(text);
  if (url.protocol !== 'http:' && url.protocol !== 'https:') return fail('must begin with http:// or https://');
  if (url.username !== '' || url.password !== '') return fail('holds a password; use WARREN_TOKEN_FILE instead');
  if (url.search !== '' || url.hash !== '') return fail('must end with its path');
  return url.href.replace(/\/+$/, '');
}

/** --ca-file, else WARREN_CA_FILE, else what node trusts. */
async function chooseFetch(options: CommonOptions, io: CliIo): Promise<typeof globalThis.fetch> {
  const file = options.caFile ?? nonEmpty(io.env['WARREN_CA_FILE']);
  if (file === undefined) return io.fetch;
  const { fetchTrusting } = await import('./fetch.ts');
  return await fetchTrusting(file, options.caFile === undefined ? 'WARREN_CA_FILE' : '--ca-file');
}

/** --token-file, else WARREN_TOKEN, else WARREN_TOKEN_FILE; an option that was typed wins over what is inherited. */
async function readToken(options: CommonOptions, io: CliIo): Promise<string | undefined> {
  if (options.tokenFile !== undefined) return await readTokenFile(options.tokenFile, '--token-file');
  const token = nonEmpty(io.env['WARREN_TOKEN']);
  if (token !== undefined) return checkToken(token.trim(), 'WARREN_TOKEN');
  const file = nonEmpty(io.env['WARREN_TOKEN_FILE']);
  return file === undefined ? undefined : await readTokenFile(file, 'WARREN_TOKEN_FILE');
}

async function readTokenFile(path: string, setting: string): Promise<string> {
  let text: string;
  try {
    text = await readFile(path, 'utf8');
  } catch (thrown) {
    throw tokenError(setting, `cannot be read: ${codeOf(thrown) ?? 'unknown reason'}`);
  }
  return checkToken(text.trim(), setting);
}

function checkToken(token: string, setting: string): string {
  if (token === '') throw tokenError(setting, 'is empty');
  if (!/^[\u0021-\u007e]+$/.test(token)) throw tokenError(setting, 'must be one line of ASCII without spaces');
  return token;
}

function tokenError(field: string, reason: string): CliError {
  return new CliError(EXIT_CODES.configuration, {
    code: 'config-invalid',
    title: 'The bearer token cannot be used.',
    field,
    reason,
  });
}

function nonEmpty(text: string | undefined): string | undefined {
  return text === '' ? undefined : text;
}
