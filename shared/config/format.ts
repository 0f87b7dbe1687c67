/** The kinds of values that settings can have: how they are read from text, checked, and described. */

/** One setting of the schema, as convict takes it, with what our loader adds. */
export interface Setting<T> {
  /** One sentence with the unit. */
  readonly doc: string;
  readonly default: T;
  /** Values that are allowed, for people: `1 to 65535`, `true or false`. */
  readonly allowed: string;
  /** Throws an Error whose message completes "… must …". Never repeats the value. */
  readonly format: (value: unknown) => void;
  /** Turns text of the environment, or a value of the file, into what `format` checks. What it cannot read stays. */
  readonly read: (given: unknown) => unknown;
  /** Environment variable. Filled in from the path where it is left out. */
  readonly env?: string;
  /** True for a secret: never shown, and readable from the file that `<env>_FILE` names. */
  readonly sensitive: boolean;
  /** Shows a secret without what is secret in it. Default: `***`. */
  readonly mask?: (value: T) => string;
}

/** A bearer token of the HTTP APIs. */
export interface Token {
  /** Who it is, as actions record it. */
  readonly name: string;
  readonly role: Role;
  readonly token: string;
}

/** A rule that puts failures into a group of its own name. */
export interface GroupRule {
  /** Name of the group. */
  readonly group: string;
  /** Which failures, in the filter language. */
  readonly filter: string;
}

/** What a token may do, each more than the one before: look; act on tasks and letters; edit; everything. */
export const ROLES = ['viewer', 'operator', 'editor', 'admin'] as const;
/** One of `ROLES`. */
export type Role = (typeof ROLES)[number];

/** A queue that a worker consumes, and how many attempts of it run at once. */
export interface QueueSlots {
  readonly name: string;
  readonly concurrency: number;
}

/** A whole number from `min` to `max`. */
export function integer(doc: string, value: number, min: number, max: number): Setting<number> {
  return {
    doc,
    default: value,
    allowed: `${min} to ${max}`,
    sensitive: false,
    read: (given) => (typeof given === 'string' && /^\s*-?\d{1,15}\s*$/.test(given) ? Number(given) : given),
    format: (given) => {
      const isInside = typeof given === 'number' && Number.isInteger(given) && given >= min && given <= max;
      if (!isInside) throw new Error(`must be a whole number from ${min} to ${max}`);
    },
  };
}

/** `true` or `false`. */
export function flag(doc: string, value: boolean): Setting<boolean> {
  const words: ReadonlyMap<unknown, boolean> = new Map([
    ['true', true],
    ['false', false],
  ]);
  return {
    doc,
    default: value,
    allowed: 'true or false',
    sensitive: false,
    read: (given) => words.get(given) ?? given,
    format: (given) => {
      if (typeof given !== 'boolean') throw new Error('must be true or false');
    },
  };
}

/** One of a few words. */
export function oneOf<const W extends string>(doc: string, value: W, words: readonly W[]): Setting<W> {
  return {
    doc,
    default: value,
    allowed: words.join(', '),
    sensitive: false,
    read: (given) => given,
    format: (given) => {
      if (!(words as readonly unknown[]).includes(given)) throw new Error(`must be one of ${words.join(', ')}`);
    },
  };
}

/** A text that `pattern` matches; `allowed` says it in words. */
export function text(doc: string, value: string, pattern: RegExp, allowed: string): Setting<string> {
  return {
    doc,
    default: value,
    allowed,
    sensitive: false,
    read: (given) => given,
    format: (given) => {
      if (typeof given !== 'string' || !pattern.test(given)) throw new Error(`must be ${allowed}`);
    },
  };
}

/** A path of a file or folder; empty where there is none. */
export function filePath(doc: string): Setting<string> {
  return text(doc, '', /^[^\0]*$/, 'a path, or empty');
}

/** A secret that `pattern` matches, empty where none is given; `allowed` says it in words. */
export function secretText(doc: string, pattern: RegExp, allowed: string): Setting<string> {
  return { ...text(doc, '', pattern, allowed), sensitive: true };
}

/** A list of texts; in the environment separated by commas. */
export function list(doc: string, pattern: RegExp, allowed: string): Setting<readonly string[]> {
  return {
    doc,
    default: [],
    allowed: `list, each ${allowed}`,
    sensitive: false,
    read: splitAtCommas,
    format: (given) => {
      if (!Array.isArray(given)) throw new Error('must be a list');
      const index = given.findIndex((item: unknown) => typeof item !== 'string' || !pattern.test(item));
      if (index >= 0) throw new Error(`must be a list, each ${allowed}; item ${index + 1} is not`);
    },
  };
}

/** A list of secrets; in the environment separated by commas. Never repeated in what is said of it. */
export function secretList(doc: string, pattern: RegExp, allowed: string): Setting<readonly string[]> {
  return {
    ...list(doc, pattern, allowed),
    sensitive: true,
    mask: (value) => (value.length === 0 ? 'none' : `${value.length} secrets`),
  };
}

/** A URL with one of the schemes, which may hold a password. */
export function secretUrl(doc: string, value: string, schemes: readonly string[]): Setting<string> {
  return {
    doc,
    default: value,
    allowed: `URL: ${schemes.map((scheme) => `${scheme}://`).join(' or ')}`,
    sensitive: true,
    mask: maskUrl,
    read: (given) => given,
    format: (given) => checkUrl(given, schemes),
  };
}

/** One URL or more, in the environment separated by commas (a comma inside one is `%2C`). */
export function secretUrls(
  doc: string,
  value: readonly string[],
  schemes: readonly string[],
): Setting<readonly string[]> {
  return {
    doc,
    default: value,
    allowed: `URLs, separated by commas: ${schemes.map((scheme) => `${scheme}://`).join(' or ')}`,
    sensitive: true,
    mask: (urls) => urls.map((url) => maskUrl(url)).join(','),
    read: splitAtCommas,
    format: (given) => {
      if (!Array.isArray(given) || given.length === 0) throw new Error('must be a URL, or several separated by commas');
      for (const url of given as unknown[]) checkUrl(url, schemes);
    },
  };
}

const QUEUE_NAME = /^[a-z][a-z0-9]*([._-][a-z0-9]+)*$/;

/** `name:concurrency,…`; in the file also a list of `{name, concurrency}`. */
export function queueSlots(doc: string, value: readonly QueueSlots[]): Setting<readonly QueueSlots[]> {
  const allowed = 'name:concurrency, separated by commas; concurrency 1 to 1000, default 10';
  return {
    doc,
    default: value,
    allowed,
    sensitive: false,
    read: (given) => {
      if (typeof given !== 'string') return given;
      return splitAtCommas(given).map((item) => {
        const [name, concurrency, ...more] = item.split(':');
        if (concurrency === undefined) return { name, concurrency: 10 };
        const isCount = more.length === 0 && /^\d{1,6}$/.test(concurrency);
        return { name, concurrency: isCount ? Number(concurrency) : Number.NaN };
      });
    },
    format: (given) => {
      if (!Array.isArray(given) || given.length === 0) throw new Error(`must be ${allowed}`);
      const names = new Set<unknown>();
      for (const item of given as unknown[]) {
        const { name, concurrency } = membersOf(item, ['name', 'concurrency'], `must be ${allowed}`);
        const isName = typeof name === 'string' && name.length <= 100 && QUEUE_NAME.test(name);
        const isCount =
          Number.isInteger(concurrency) && (concurrency as number) >= 1 && (concurrency as number) <= 1_000;
        if (!isName || !isCount) throw new Error(`must be ${allowed}`);
        if (names.has(name)) throw new Error(`must name each queue once; ${name} stands twice`);
        names.add(name);
      }
    },
  };
}

/** Bearer tokens: a JSON list of `{name, role, token}`. */
export function tokens(doc: string): Setting<readonly Token[]> {
  const allowed = `JSON list of {name, role, token}; roles ${ROLES.join(', ')}; tokens of 16 to 512 characters`;
  return {
    doc,
    default: [],
    allowed,
    sensitive: true,
    mask: (value) => (value.length === 0 ? 'none' : value.map(({ name, role }) => `${name} (${role})`).join(', ')),
    read: (given) => (typeof given === 'string' ? (parseJson(given) ?? given) : given),
    format: (given) => {
      if (!Array.isArray(given)) throw new Error(`must be a ${allowed}`);
      const names = new Set<unknown>();
      const secrets = new Set<unknown>();
      for (const [index, item] of (given as unknown[]).entries()) {
        const { name, role, token } = membersOf(item, ['name', 'role', 'token'], `must be a ${allowed}`);
        const fail = (what: string): never => {
          throw new Error(`token ${index + 1}: ${what}`);
        };
        if (typeof name !== 'string' || !/^[a-zA-Z0-9][a-zA-Z0-9@._-]{0,63}$/.test(name))
          fail('its name must be 1 to 64 of a-z A-Z 0-9 @ . _ -');
        if (!(ROLES as readonly unknown[]).includes(role)) fail(`its role must be one of ${ROLES.join(', ')}`);
        if (typeof token !== 'string' || !/^[\x21-\x7e]{16,512}$/.test(token))
          fail('it must be 16 to 512 printable ASCII characters without spaces');
        if (names.has(name)) fail('its name stands twice');
        if (secrets.has(token)) fail('it stands twice');
        names.add(name);
        secrets.add(token);
      }
    },
  };
}

/** Rules of failure groups: a JSON list of `{group, filter}`. What the filters mean is checked by whoever uses them. */
export function groupRules(doc: string): Setting<readonly GroupRule[]> {
  const allowed = 'JSON list of {group, filter}';
  const isText = (value: unknown, most: number): boolean =>
    typeof value === 'string' && value.trim() !== '' && value.length <= most && !value.includes('\0');
  return {
    doc,
    default: [],
    allowed,
    sensitive: false,
    read: (given) => (typeof given === 'string' ? (parseJson(given) ?? given) : given),
    format: (given) => {
      if (!Array.isArray(given)) throw new Error(`must be a ${allowed}`);
      for (const [index, item] of (given as unknown[]).entries()) {
        const { group, filter } = membersOf(item, ['group', 'filter'], `must be a ${allowed}`);
        if (!isText(group, 200)) throw new Error(`rule ${index + 1}: its group must be a text of 1 to 200 characters`);
        if (!isText(filter, 4_000))
          throw new Error(`rule ${index + 1}: its filter must be a text of 1 to 4000 characters`);
      }
    },
  };
}

/** A URL without user, password and parameters. What is no URL becomes `***`. */
export function maskUrl(url: string): string {
  try {
    const { protocol, username, password, host, pathname } = new URL(url);
    return `${protocol}//${username === '' && password === '' ? '' : '***@'}${host}${pathname}`;
  } catch {
    return '***';
  }
}

/** Parses JSON; `undefined` for what is none. */
export function parseJson(given: string): unknown {
  try {
    return JSON.parse(given) as unknown;
  } catch {
    return undefined; // the caller says what is wrong, without repeating a secret
  }
}

/** Throws where it is no URL with one of the schemes. The message does not repeat it. */
export function checkUrl(given: unknown, schemes: readonly string[]): void {
  const fail = (): never => {
    throw new Error(`must be a URL that begins with ${schemes.map((scheme) => `${scheme}://`).join(' or ')}`);
  };
  if (typeof given !== 'string') return fail();
  try {
    const { protocol, username, password } = new URL(given);
    decodeURIComponent(username + password);
    if (!schemes.includes(protocol.slice(0, -1))) fail();
  } catch {
    fail();
  }
}

function splitAtCommas<T>(given: T): T extends string ? string[] : T;
function splitAtCommas(given: unknown): unknown {
  if (typeof given !== 'string') return given;
  return given
    .split(',')
    .map((item) => item.trim())
    .filter((item) => item !== '');
}

/** The members of an object; throws `complaint` where it is none or has others than `names`. */
export function membersOf(
  item: unknown,
  names: readonly string[],
  complaint: string,
): Readonly<Record<string, unknown>> {
  const isObject = typeof item === 'object' && item !== null && !Array.isArray(item);
  if (!isObject || Object.keys(item).some((name) => !names.includes(name))) throw new Error(complaint);
  return item as Readonly<Record<string, unknown>>;
}
