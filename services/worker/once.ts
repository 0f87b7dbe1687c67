/**
 * `ctx.once`: a side effect is written down before it begins and when it is finished. What was begun and never finished was cut
 * in the middle, and nobody but its author can know whether it was done: it is reported, not repeated.
 */
import { randomUUID } from 'node:crypto';
import { toError } from '../../shared/errors/to-error.ts';
import { WarrenError } from '../../shared/errors/warren-error.ts';
import type { Logger } from '../../shared/observability/log.ts';
import { MOST_ONCE_KEYS, faultOfOnceKey } from '../../shared/tasks/once.ts';
import type { Once, OnceOptions } from '../../shared/tasks/once.ts';
import type { AttemptProof } from './ask-until-answered.ts';
import type { OnceAnswer, OnceStep, OnceStore } from './once-store.ts';
import { renderJson } from './result-json.ts';

/** What the side effects of one attempt need. */
export interface OnceRunsDeps {
  readonly store: OnceStore;
  readonly proof: AttemptProof;
  readonly signal: AbortSignal;
  readonly log: Logger;
  /** Largest result that is kept, in bytes of JSON. */
  readonly maxBytes: number;
}

/** The side effects of one attempt. */
export class OnceRuns {
  readonly #deps: OnceRunsDeps;
  readonly #underWay = new Map<string, Promise<unknown>>();

  constructor(deps: OnceRunsDeps) {
    this.#deps = deps;
  }

  /** See `Once`. */
  readonly once: Once = async <Value>(
    key: string,
    fn: () => Promise<Value> | Value,
    options: OnceOptions<Value> = {},
  ): Promise<Value> => {
    const fault = faultOfOnceKey(key);
    if (fault !== undefined) throw new WarrenError('once-invalid', { field: 'key', reason: fault });
    if (typeof fn !== 'function') throw new WarrenError('once-invalid', { key, reason: 'pass a function' });
    const shared = this.#underWay.get(key);
    if (shared !== undefined) return (await shared) as Value;
    const own = this.#begin(key, fn, options);
    this.#underWay.set(key, own);
    try {
      return await own;
    } finally {
      this.#underWay.delete(key);
    }
  };

  async #begin<Value>(key: string, fn: () => Promise<Value> | Value, options: OnceOptions<Value>): Promise<Value> {
    const runId = randomUUID();
    const begun = await this.#ask({ kind: 'start', key, runId });
    if (begun.kind === 'done') return await this.#run({ key, runId }, fn, options);
    if (begun.kind === 'finished') return parse<Value>(begun.result);
    if (begun.kind === 'full') {
      throw new WarrenError('once-invalid', { key, reason: `a task keeps ${MOST_ONCE_KEYS} keys` });
    }
    if (begun.kind !== 'unknown') throw new WarrenError('claim-lost', { key });
    const { startedAt, attempt } = begun;
    if (options.ifUnknown === undefined) {
      throw new WarrenError('once-unknown', { key, startedAt: startedAt.toISOString(), attempt });
    }
    const decision: unknown = await options.ifUnknown(startedAt, attempt);
    if (decision === 'again') {
      await this.#ask({ kind: 'takeOver', key, runId, from: begun.runId });
      return await this.#run({ key, runId }, fn, options);
    }
    if (typeof decision !== 'object' || decision === null || !('result' in decision)) {
      throw new WarrenError('once-invalid', { key, reason: "ifUnknown must answer 'again' or { result }" });
    }
    return await this.#finish<Value>({ key, runId: begun.runId }, decision.result);
  }

  async #run<Value>(
    run: { readonly key: string; readonly runId: string },
    fn: () => Promise<Value> | Value,
    { unknownIf }: OnceOptions<Value>,
  ): Promise<Value> {
    let value: Value;
    try {
      value = await fn();
    } catch (thrown) {
      // Cut off in the middle: what was thrown is most likely the abort, and says nothing of the effect.
      if (!this.#deps.signal.aborted && !isUnknown(thrown, unknownIf)) await this.#drop(run);
      throw thrown;
    }
    return await this.#finish<Value>(run, value);
  }

  async #finish<Value>(run: { readonly key: string; readonly runId: string }, value: unknown): Promise<Value> {
    const rendered = renderJson(value, this.#deps.maxBytes);
    // It was done, and what it gave is lost: the run stays unknown, so that nothing does it again.
    if ('fault' in rendered) throw new WarrenError('once-invalid', { key: run.key, reason: rendered.fault });
    await this.#ask({ kind: 'finish', ...run, result: rendered.bytes });
    return parse<Value>(rendered.bytes);
  }

  /** Without it the run only stays unknown; what the function threw says more than that. */
  async #drop(run: { readonly key: string; readonly runId: string }): Promise<void> {
    try {
      await this.#ask({ kind: 'drop', ...run });
    } catch (thrown) {
      this.#deps.log.warn('side effect that failed stays unknown', { key: run.key, err: toError(thrown) });
    }
  }

  async #ask(step: OnceStep): Promise<OnceAnswer> {
    const { store, proof, signal } = this.#deps;
    const answer = await store.ask(proof, step, signal);
    if (answer.kind === 'fenced') throw new WarrenError('claim-lost', { key: step.key });
    return answer;
  }
}

/** A predicate that throws cannot vouch for the effect. */
function isUnknown(thrown: unknown, unknownIf: ((thrown: unknown) => boolean) | undefined): boolean {
  try {
    return unknownIf?.(thrown) === true;
  } catch {
    return true;
  }
}

function parse<Value>(bytes: Uint8Array | undefined): Value {
  return (bytes === undefined ? undefined : JSON.parse(new TextDecoder().decode(bytes))) as Value;
}
