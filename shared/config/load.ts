/** Reads the configuration from its file, the environment and files of secrets, and finds every fault at once. */
import { readFileSync } from 'node:fs';
import { isIP } from 'node:net';
import convict from 'convict';
import { WarrenError } from '../errors/warren-error.ts';
import { codeOf, toError } from '../errors/to-error.ts';
import { accessFaults, withAccess } from './access-settings.ts';
import { parseJson } from './format.ts';
import type { Setting } from './format.ts';
import { SCHEMA, isSetting, listSettings } from './schema.ts';
import type { Config, Source } from './schema.ts';

/** Which process loads: some rules concern only some. */
export type ConfigUser = 'producer' | 'dead-letter-handler' | 'worker' | 'cli';

/** Where configuration comes from. */
export interface ConfigInput {
  readonly user: ConfigUser;
  /** Path of the JSON file. Default: what `WARREN_CONFIG` names, else none. */
  readonly file?: string | undefined;
  /** Default: the environment of the process. An empty variable counts as absent. */
  readonly env?: Readonly<Record<string, string | undefined>>;
}

/** The configuration, and where each value came from. */
export interface LoadedConfig {
  readonly config: Config;
  /** By path, such as `amqp.urls`. */
  readonly sources: ReadonlyMap<string, Source>;
}

type Tree = Record<string, unknown>;

/** Reads and checks everything. Throws `config-invalid` with `facts.faults`: one line each, secrets never shown. */
export function loadConfig(input: ConfigInput): LoadedConfig {
  const env = input.env ?? process.env;
  const faults: string[] = [];
  const sources = new Map<string, Source>();
  const file = input.file ?? nonEmpty(env['WARREN_CONFIG']);
  const values = file === undefined ? {} : readFile(file, faults);
  const given: Tree = {};
  for (const { path, env: variable, setting } of listSettings()) {
    const found = find(path, variable, setting, values, env, faults);
    sources.set(path, found?.source ?? 'default');
    if (found === undefined) continue;
    const value = setting.read(found.value);
    const fault = check(setting, value);
    if (fault === undefined) put(given, path, value);
    else
      faults.push(`${path}${setting.sensitive ? '' : ` is ${show(found.value)} but`} ${fault} (from ${found.origin})`);
  }
  const config = build(given);
  faults.push(...crossCheck(config, input.user), ...accessFaults(config.amqp, config.postgres));
  if (faults.length > 0) throw new WarrenError('config-invalid', { faults });
  return { config: deepFreeze(fillInAccess(config)), sources };
}

interface Found {
  readonly value: unknown;
  readonly source: Source;
  /** For people: the variable or the file. */
  readonly origin: string;
}

/** The environment wins over the file. */
function find(
  path: string,
  variable: string,
  setting: Setting<unknown>,
  values: Tree,
  env: Readonly<Record<string, string | undefined>>,
  faults: string[],
): Found | undefined {
  const direct = nonEmpty(env[variable]);
  const secretFile = setting.sensitive ? nonEmpty(env[`${variable}_FILE`]) : undefined;
  if (secretFile !== undefined) {
    if (direct !== undefined) faults.push(`${path} is given twice: ${variable} and ${variable}_FILE`);
    const secret = readSecret(path, `${variable}_FILE`, secretFile, faults);
    return secret === undefined
      ? undefined
      : { value: secret, source: `file ${secretFile}`, origin: `${variable}_FILE` };
  }
  if (direct !== undefined) return { value: direct, source: 'environment', origin: variable };
  const fromFile = take(values, path);
  return fromFile === undefined ? undefined : { value: fromFile, source: 'file', origin: 'the file' };
}

function readSecret(path: string, variable: string, file: string, faults: string[]): string | undefined {
  try {
    return readFileSync(file, 'utf8').trim();
  } catch (thrown) {
    faults.push(`${path} cannot be read: ${variable} names ${show(file)} (${codeOf(thrown) ?? 'unreadable'})`);
    return undefined;
  }
}

function readFile(file: string, faults: string[]): Tree {
  let content: string;
  try {
    content = readFileSync(file, 'utf8');
  } catch (thrown) {
    faults.push(`the file ${show(file)} cannot be read (${codeOf(thrown) ?? 'unreadable'})`);
    return {};
  }
  const parsed = parseJson(content);
  if (!isTree(parsed)) {
    // The parser's own message would repeat a piece of the file, which holds secrets.
    faults.push(
      `the file ${show(file)} is not ${parsed === undefined ? `valid JSON${placeOfFault(content)}` : 'a JSON object'}`,
    );
    return {};
  }
  findUnknown(parsed, SCHEMA, [], faults);
  return parsed;
}

function placeOfFault(content: string): string {
  try {
    JSON.parse(content);
  } catch (thrown) {
    const position = /at position (\d+)/.exec(toError(thrown).message)?.[1];
    if (position !== undefined) {
      const lines = content.slice(0, Number(position)).split('\n');
      return `: see line ${lines.length}, column ${(lines.at(-1) ?? '').length + 1}`;
    }
  }
  return '';
}

function findUnknown(values: Tree, schema: object, above: readonly string[], faults: string[]): void {
  for (const [name, value] of Object.entries(values)) {
    const path = [...above, name].join('.');
    const member: unknown = Object.hasOwn(schema, name) ? (schema as Tree)[name] : undefined;
    if (member === undefined) faults.push(`${show(path)} is no setting (from the file)`);
    else if (!isSetting(member)) {
      if (isTree(value)) findUnknown(value, member as object, [...above, name], faults);
      else faults.push(`${path} must be a group of settings (from the file)`);
    }
  }
}

/** Convict merges the defaults and checks the whole once more; environment and arguments were read above. */
function build(given: Tree): Config {
  const loaded = convict<Config>(SCHEMA as unknown as convict.Schema<Config>, { env: {}, args: [] });
  loaded.load(given);
  loaded.validate({ allowed: 'strict' });
  return loaded.getProperties();
}

/** Everything that connects reads the URLs alone. */
function fillInAccess(config: Config): Config {
  const { amqp, postgres } = config;
  return {
    ...config,
    amqp: { ...amqp, urls: amqp.urls.map((url) => withAccess(url, amqp)) },
    postgres: { ...postgres, url: withAccess(postgres.url, postgres) },
  };
}

/** Rules between settings. */
function crossCheck({ amqp, postgres, lease, http, alerts, files }: Config, user: ConfigUser): readonly string[] {
  const faults: string[] = [];
  if (amqp.reconnectMinMs > amqp.reconnectMaxMs) {
    faults.push('amqp.reconnectMinMs must not be more than amqp.reconnectMaxMs');
  }
  for (const [group, { tlsCertFile, tlsKeyFile }] of Object.entries({ amqp, postgres, http })) {
    if ((tlsCertFile === '') !== (tlsKeyFile === '')) {
      faults.push(`${group}.tlsCertFile and ${group}.tlsKeyFile must be given together`);
    }
  }
  if (amqp.tlsCaFile + amqp.tlsCertFile !== '' && !amqp.urls.some((url) => url.startsWith('amqps:'))) {
    faults.push(
      'amqp.urls must begin with amqps:// where amqp.tlsCaFile or amqp.tlsCertFile is given: amqp:// goes without TLS',
    );
  }
  if (lease.renewMs * 3 > lease.lapseMs) faults.push('lease.lapseMs must be at least three times lease.renewMs');
  const known = alerts.channels.map(({ name }) => name);
  const missing = alerts.sendTo.find((name) => known.length > 0 && !known.includes(name));
  if (missing !== undefined) faults.push(`alerts.sendTo names ${missing}, which alerts.channels does not have`);
  const hasApi = user === 'producer' || user === 'dead-letter-handler';
  if (hasApi && !isLoopback(http.host) && http.tokens.length === 0) {
    faults.push('http.tokens must hold a token when http.host is not loopback: else everybody could submit tasks');
  }
  if (files.store === 'fs' && files.directory === '') {
    faults.push('files.directory must name a folder when files.store is fs');
  }
  if (files.store === 's3' && files.s3Bucket === '') {
    faults.push('files.s3Bucket must name a bucket when files.store is s3');
  }
  if ((files.s3AccessKeyId === '') !== (files.s3SecretAccessKey === '')) {
    faults.push('files.s3AccessKeyId and files.s3SecretAccessKey must be given together');
  }
  if (user === 'producer' && files.store !== 'none' && !isLoopback(http.host) && files.linkSecret === '') {
    faults.push('files.linkSecret must be given when http.host is not loopback: it keeps strangers from making links');
  }
  return faults;
}

/** True for an address, or the name, of this machine alone. A name is not looked up. */
export function isLoopback(host: string): boolean {
  const bare = host.toLowerCase().replace(/^\[(.*)\]$/, '$1');
  if (bare === 'localhost' || bare === '::1') return true;
  return isIP(bare) === 4 && bare.startsWith('127.');
}

function check(setting: Setting<unknown>, value: unknown): string | undefined {
  try {
    setting.format(value);
    return undefined;
  } catch (thrown) {
    return toError(thrown).message;
  }
}

function take(values: Tree, path: string): unknown {
  let at: unknown = values;
  for (const name of path.split('.')) {
    if (!isTree(at) || !Object.hasOwn(at, name)) return undefined;
    at = at[name];
  }
  return at;
}

/** The path comes from the schema, never from input, so it cannot reach a prototype. */
function put(into: Tree, path: string, value: unknown): void {
  const names = path.split('.');
  const last = names.pop() as string;
  let at = into;
  for (const name of names) at = (at[name] ??= {}) as Tree;
  at[last] = value;
}

function show(value: unknown): string {
  const shown = JSON.stringify(value) ?? String(value);
  return shown.length > 100 ? `${shown.slice(0, 100)}…` : shown;
}

function nonEmpty(value: string | undefined): string | undefined {
  return value === '' ? undefined : value;
}

function isTree(value: unknown): value is Tree {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

function deepFreeze<T>(value: T): T {
  if (typeof value === 'object' && value !== null && !Object.isFrozen(value)) {
    Object.freeze(value);
    for (const member of Object.values(value)) deepFreeze(member as unknown);
  }
  return value;
}
