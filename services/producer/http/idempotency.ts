/**
 * The Idempotency-Key header: a request that comes again is not done again.
 * Source: draft-ietf-httpapi-idempotency-key-header-07.
 */
import { createHash } from 'node:crypto';
import { WarrenError } from '../../../shared/errors/warren-error.ts';
import type { Submission } from '../../../shared/tasks/submission.ts';

/** Header of an answer that was given before. */
export const REPLAYED_HEADER = 'idempotent-replayed';

const LONGEST_KEY = 255;
/** A structured field's string (RFC 8941), or what most clients send: the key without quotes. */
const QUOTED = /^"((?:[\x20\x21\x23-\x5b\x5d-\x7e]|\\["\\])*)"$/;
const BARE = /^[\x21\x23-\x2b\x2d-\x5b\x5d-\x7e]+$/;

type Idempotency = NonNullable<Submission['idempotency']>;

/** The keys of requests that are under way in this process. */
export class IdempotencyKeys {
  readonly #underWay = new Set<string>();

  /**
   * Calls `work` with the key of a request, or with nothing where it has none. Throws `idempotency-key-invalid`, and
   * `idempotency-key-in-flight` while a request under the same key is under way here; one that is under way in another process is
   * waited for by Postgres.
   */
  async guard<T>(
    { actor, header, body }: { readonly actor: string; readonly header: unknown; readonly body: Buffer },
    work: (idempotency: Idempotency | undefined) => Promise<T>,
  ): Promise<T> {
    if (header === undefined) return await work(undefined);
    const key = parseKey(header);
    const scoped = JSON.stringify([actor, key]);
    if (this.#underWay.has(scoped)) throw new WarrenError('idempotency-key-in-flight', { retryAfterSeconds: 1 });
    this.#underWay.add(scoped);
    try {
      return await work({ key, digest: createHash('sha256').update(body).digest() });
    } finally {
      this.#underWay.delete(scoped);
    }
  }
}

/** The key of an item of a batch. A tab is in no key of a request, so it is never one of those. */
export function itemKeyOf({ key, digest }: Idempotency, index: number): Idempotency {
  return { key: `${key}\t${index}`, digest };
}

function parseKey(header: unknown): string {
  const text = typeof header === 'string' ? header.trim() : '';
  const quoted = QUOTED.exec(text)?.[1]?.replaceAll(/\\(["\\])/g, '$1');
  const key = quoted ?? (BARE.test(text) ? text : '');
  if (key === '' || key.length > LONGEST_KEY) throw new WarrenError('idempotency-key-invalid');
  return key;
}
