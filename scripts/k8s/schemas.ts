/** Says what is wrong with a document by the schema of its kind. What a schema does not know is a fault: a typo is not ignored. */
import { readFileSync, readdirSync } from 'node:fs';
import { createRequire } from 'node:module';
import { join } from 'node:path';
import { Ajv } from 'ajv';
import type { ValidateFunction } from 'ajv';
import { toError } from '../../shared/errors/to-error.ts';
import type { K8sObject } from './documents.ts';

// The packages' ESM files import CommonJS ones by names that Node does not find in them.
const load = createRequire(import.meta.url);

/** Packages that carry the schemas of a group of APIs; what is in none of them is one of Kubernetes' own. */
const PACKAGES: readonly (readonly [group: RegExp, name: string])[] = [
  [/^keda\.sh\//, '@kubernetes-models/keda'],
  [/^monitoring\.coreos\.com\//, '@kubernetes-models/prometheus-operator'],
];

/** KEDA's schema leaves the metadata of a job's pods open. */
const FREE = /^\/spec\/jobTargetRef\/template\/metadata\/(labels|annotations)$/;

interface Model {
  validate(): void;
}

/** Says what is wrong; `schemas` are those of `readSchemas`. An unknown kind is a fault. */
export function faultsOf(document: K8sObject, schemas: ReadonlyMap<string, ValidateFunction>): readonly string[] {
  const own = schemas.get(`${document.apiVersion} ${document.kind}`);
  if (own !== undefined) {
    if (own(document)) return [];
    return (own.errors ?? []).map(({ instancePath, message, params }) => {
      const member: unknown = params['additionalProperty'] ?? params['allowedValues'] ?? '';
      return `${instancePath} ${message ?? 'is wrong'} ${JSON.stringify(member)}`;
    });
  }
  return faultsOfModel(document);
}

/** The schemas under `k8s/schemas`, by `apiVersion kind`. */
export function readSchemas(root: string): ReadonlyMap<string, ValidateFunction> {
  const folder = join(root, 'k8s/schemas');
  const ajv = new Ajv({ allErrors: true, strict: true });
  return new Map(
    readdirSync(folder)
      .filter((name) => name.endsWith('.json'))
      .map((name) => {
        const schema = JSON.parse(readFileSync(join(folder, name), 'utf8')) as {
          readonly properties: Readonly<Record<'apiVersion' | 'kind', { readonly const: string }>>;
        };
        const { apiVersion, kind } = schema.properties;
        return [`${apiVersion.const} ${kind.const}`, ajv.compile(schema)];
      }),
  );
}

function faultsOfModel(document: K8sObject): readonly string[] {
  const Kind = findModel(document);
  if (Kind === undefined) return [`there is no schema for ${document.apiVersion} ${document.kind}`];
  const faults: string[] = [];
  const watched = new Watched(new Kind(document));
  try {
    watched.value.validate();
  } catch (thrown) {
    faults.push(toError(thrown).message);
  }
  const unread = watched.unread().filter((path) => !FREE.test(path));
  return [...faults, ...unread.map((path) => `${path} is not in the schema`)];
}

function findModel({ apiVersion, kind }: K8sObject): (new (data: object) => Model) | undefined {
  const name = PACKAGES.find(([group]) => group.test(apiVersion))?.[1] ?? 'kubernetes-models';
  try {
    const module = load(`${name}/${apiVersion}/${kind}`) as Record<string, new (data: object) => Model>;
    return module[kind];
  } catch {
    return undefined; // the caller says it
  }
}

/** The validators let pass what they do not know; but they never read it either, and that can be seen. */
class Watched<T extends object> {
  readonly value: T;
  readonly #target: T;
  readonly #read = new Map<object, Set<string>>();
  readonly #proxies = new WeakMap<object, object>();

  constructor(target: T) {
    this.#target = target;
    this.value = this.#watch(target);
  }

  /** Paths of members that nobody read. */
  unread(): readonly string[] {
    const found: string[] = [];
    const walk = (at: object, path: string): void => {
      const read = this.#read.get(at);
      for (const [name, member] of Object.entries(at)) {
        if (read?.has(name) !== true) found.push(`${path}/${name}`);
        else if (typeof member === 'object' && member !== null) walk(member as object, `${path}/${name}`);
      }
    };
    walk(this.#target, '');
    return found;
  }

  #watch<O extends object>(target: O): O {
    const known = this.#proxies.get(target);
    if (known !== undefined) return known as O;
    const read = new Set<string>();
    this.#read.set(target, read);
    const proxy = new Proxy(target, {
      get: (object, key): unknown => {
        const value: unknown = Reflect.get(object, key);
        if (typeof key === 'string') read.add(key);
        return typeof value === 'object' && value !== null ? this.#watch(value) : value;
      },
    });
    this.#proxies.set(target, proxy);
    return proxy;
  }
}
