/** `ctx.stepResults`: results of the flow of which a running task is a step, read page by page. */
import { WarrenError } from '../../shared/errors/warren-error.ts';
import { FROM_START, nextAfter, PAGE_BYTES, PAGE_RESULTS } from '../../shared/flows/step-results.ts';
import { run } from '../../shared/postgres/statement.ts';
import type { StepResultsOptions } from '../../shared/tasks/step-results.ts';
import { parsePointer, pickAt } from '../../shared/text/json-pointer.ts';
import { askUntilAnswered } from './ask-until-answered.ts';
import type { AskDeps, AttemptProof } from './ask-until-answered.ts';
import { findOwnStep, readOwnResults } from './step-reader.sql.ts';

/** Which page. Plain data: it crosses threads. */
export interface AskedResults {
  readonly name: string;
  /** Number of the step after which it begins. */
  readonly after: number;
}

/** A page: JSON texts, null for what has no result. Plain data: it crosses threads. */
export interface ResultsPage {
  readonly results: readonly (string | null)[];
  /** After which the next one begins; `undefined` at the end. */
  readonly next: number | undefined;
}

/** Reads results; in a thread it asks the worker. */
export interface StepReader {
  /** Throws `step-not-found`, and `database-unavailable` once the signal has aborted. */
  read(proof: AttemptProof, asked: AskedResults, signal: AbortSignal): Promise<ResultsPage>;
}

/** Reads them in Postgres. No claim is asked for: what another attempt reads changes nothing. */
export class DatabaseStepReader implements StepReader {
  readonly #deps: AskDeps;

  constructor(deps: AskDeps) {
    this.#deps = deps;
  }

  async read(proof: AttemptProof, asked: AskedResults, signal: AbortSignal): Promise<ResultsPage> {
    const ask = async (): Promise<ResultsPage> => await this.#read(proof.taskId, asked);
    return await askUntilAnswered(this.#deps, proof, { what: 'stepResults', signal }, ask);
  }

  async #read(taskId: string, { name, after }: AskedResults): Promise<ResultsPage> {
    const { db } = this.#deps;
    const rows = await run(db, readOwnResults, taskId, name, after, PAGE_RESULTS, PAGE_BYTES);
    if (rows.length === 0 && after === FROM_START) await this.#refuseUnknown(taskId, name);
    return { results: rows.map(({ result }) => result?.toString('utf8') ?? null), next: nextAfter(rows) };
  }

  async #refuseUnknown(taskId: string, name: string): Promise<void> {
    const [found] = await run(this.#deps.db, findOwnStep, taskId, name);
    if (found?.is_known === true) return;
    throw found?.is_step === true
      ? new WarrenError('step-not-found', { field: 'name', reason: 'names no step of this flow', step: name })
      : new WarrenError('step-not-found', { field: 'task', reason: 'is no step of a flow, so there are no results' });
  }
}

/** What `ctx.stepResults` gives: one page at a time is held. `signal` ends it between pages. */
export async function* iterateResults<Result>(
  readPage: (asked: AskedResults) => Promise<ResultsPage>,
  signal: AbortSignal,
  name: string,
  { path: pointer = '' }: StepResultsOptions = {},
): AsyncGenerator<Result | null, void, undefined> {
  const path = parsePointer(String(pointer));
  if (path === undefined) {
    throw new WarrenError('field-invalid', { field: 'path', reason: 'must be an RFC 6901 pointer, such as /user/id' });
  }
  for (let after: number | undefined = FROM_START; after !== undefined;) {
    signal.throwIfAborted();
    const { results, next }: ResultsPage = await readPage({ name: String(name), after });
    for (const text of results) yield (text === null ? null : pickAt(JSON.parse(text), path)) as Result | null;
    after = next;
  }
}
