/** `ctx.addStep`: steps that a running step adds to its flow, in one transaction that holds the task's row, so that only the attempt with the claim passes. */
import { CATALOGUE } from '../../shared/errors/catalogue.ts';
import type { ErrorCode } from '../../shared/errors/catalogue.ts';
import { WarrenError } from '../../shared/errors/warren-error.ts';
import { readAddedStep } from '../../shared/flows/added-step.ts';
import type { StepToAdd } from '../../shared/flows/added-step.ts';
import { MOST_STEPS } from '../../shared/flows/flow-body.ts';
import { MOST_EDGES } from '../../shared/flows/planned-flow.ts';
import type { FlowLimits } from '../../shared/flows/planned-flow.ts';
import type { Metrics } from '../../shared/observability/metrics.ts';
import { arrayLiteral, run } from '../../shared/postgres/statement.ts';
import type { AddedSteps } from '../../shared/tasks/add-step.ts';
import { askUntilAnswered } from './ask-until-answered.ts';
import type { AskDeps, AttemptProof } from './ask-until-answered.ts';
import { addSteps } from './step-adder.sql.ts';

/** What a handler asks for. Plain data: it crosses threads. */
export interface AskedStep {
  /** As it was given. */
  readonly name: string;
  /** The options as JSON. */
  readonly options: string;
}

/** Adds steps; in a thread it asks the worker. */
export interface StepAdder {
  /** Throws what `TaskContext.addStep` throws, and `database-unavailable` once the signal has aborted. */
  add(proof: AttemptProof, asked: AskedStep, signal: AbortSignal): Promise<AddedSteps>;
}

/** What adding needs. */
export interface StepAdderDeps extends AskDeps {
  readonly metrics: Pick<Metrics, 'tasksAccepted'>;
}

/** Adds them in Postgres. */
export class DatabaseStepAdder implements StepAdder {
  readonly #deps: StepAdderDeps;
  readonly #limits: FlowLimits;

  constructor(deps: StepAdderDeps, limits: FlowLimits) {
    this.#deps = deps;
    this.#limits = limits;
  }

  /** Where the answer was lost after the commit, asking again finds what was added. */
  async add(proof: AttemptProof, { name, options }: AskedStep, signal: AbortSignal): Promise<AddedSteps> {
    const read = readAddedStep(name, options, this.#limits);
    if (read.kind === 'refused') {
      const { code, field, reason } = read.fault;
      throw new WarrenError(code, { field, reason });
    }
    const added = await askUntilAnswered(
      this.#deps,
      proof,
      { what: 'addStep', signal },
      async () => await this.#add(proof, read.step),
    );
    if (!added.duplicate) this.#deps.metrics.tasksAccepted.add(added.taskIds.length, read.step.spec.type, 'flow');
    return added;
  }

  async #add({ taskId, attempt, claimId }: AttemptProof, { name, spec, members }: StepToAdd): Promise<AddedSteps> {
    const inputs = members.map(({ input }) => input ?? null);
    const pieces = members.map((each) => (each.input === undefined ? arrayLiteral(each.pieces) : null));
    const refs = members.map((each) => (each.input === undefined ? each.refs : null));
    const proof = [taskId, attempt, claimId] as const;
    try {
      const found = await run(
        this.#deps.db,
        addSteps,
        ...proof,
        name,
        spec,
        inputs,
        pieces,
        refs,
        MOST_STEPS,
        MOST_EDGES,
      );
      const [added] = found;
      if (added === undefined) throw new WarrenError('claim-lost', { step: name });
      return { taskIds: added.task_ids ?? [], duplicate: added.is_new !== true };
    } catch (thrown) {
      throw refusalOf(thrown) ?? thrown;
    }
  }
}

/** The functions of the database say the code in `constraint`, as in `detail`, and the field in `column`. */
function refusalOf(thrown: unknown): WarrenError | undefined {
  if (typeof thrown !== 'object' || thrown === null) return undefined;
  const { constraint: code, column: field, detail, message } = thrown as Readonly<Record<string, unknown>>;
  if (typeof code !== 'string' || code !== detail || typeof field !== 'string' || !isCode(code)) return undefined;
  const text = String(message);
  return new WarrenError(code, { field, reason: text.startsWith(`${field} `) ? text.slice(field.length + 1) : text });
}

function isCode(code: string): code is ErrorCode {
  return Object.hasOwn(CATALOGUE, code);
}
