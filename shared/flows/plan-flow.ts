/** Checks a flow and plans it: every task that it is, what waits for what, and what their inputs are made of. Pure. */
import type { ErrorCode } from '../errors/catalogue.ts';
import { limitKeysOf } from '../tasks/check-submission.ts';
import { WEBHOOK_TYPE } from '../tasks/callback.ts';
import { readTree, TreeTooLarge } from '../tasks/json-tree.ts';
import type { JsonNode } from '../tasks/json-tree.ts';
import { renderPath } from '../tasks/json.ts';
import type { SubmissionFault } from '../tasks/submission.ts';
import type { Catalog } from '../tasks/type-catalog.ts';
import { emptyGroups } from './empty-groups.ts';
import type { PlannedGroup } from './empty-groups.ts';
import { MOST_STEPS } from './flow-body.ts';
import type { FlowBody, LaterBody, StepBody } from './flow-body.ts';
import { placeSteps } from './graph.ts';
import type { Placed } from './graph.ts';
import { readTemplate } from './template.ts';
import type { Reference, Template } from './template.ts';

/** A reference as it is stored; `flow_reference` in `0022_flows.sql` reads it. */
export type StoredReference = { readonly path?: readonly string[] } & (
  | { readonly step: number }
  /** The result of a step, where that is an object; else an object with it under the name. */
  | { readonly object: number; readonly name: string }
  | { readonly group: string }
  | { readonly signal: string }
  /** What failed. */
  | { readonly failed: true }
);

/** The task of a step. */
export interface PlannedTask {
  readonly type: string;
  readonly queue: string;
  /** 0 to 9. */
  readonly priority: number;
  readonly maxAttempts: number;
  /** JSON text; `{}` where the input is made of a template. */
  readonly input: string;
  readonly concurrencyKey?: string;
  readonly rateKey?: string;
}

/** A step as it is stored. */
export interface PlannedStep {
  /** Its number in the flow, from 0. */
  readonly step: number;
  readonly kind: 'step' | 'undo' | 'failure';
  readonly name: string;
  /** Its place in its group. */
  readonly member?: number;
  readonly task: PlannedTask;
  readonly template?: { readonly pieces: readonly string[]; readonly refs: readonly StoredReference[] };
  /** Tasks, and signals, that it waits for. */
  readonly waitsFor: number;
  readonly next: readonly number[];
  readonly level: number;
  readonly onFailure?: StepBody['onFailure'];
  readonly undoOf?: number;
  readonly delayMs?: number;
  readonly signal?: { readonly name: string; readonly timeoutMs?: number | undefined };
}

/** The steps of a flow, or what is wrong with it. */
export type FlowPlan =
  | {
      readonly kind: 'ok';
      readonly steps: readonly PlannedStep[];
      /** Its empty groups, by their names; absent where there are none. */
      readonly groups?: Readonly<Record<string, PlannedGroup>>;
    }
  | { readonly kind: 'refused'; readonly faults: readonly [SubmissionFault, ...SubmissionFault[]] };

/** Bounds. */
export interface FlowLimits {
  /** Characters of one input. */
  readonly messageBytes: number;
  readonly depth: number;
}

/** Dependencies between tasks at most: two groups that follow each other have as many as the product of their sizes. */
export const MOST_EDGES = 200_000;
const MOST_FAULTS = 20;
/** How the step that is made for failures is called. */
export const FAILURE_STEP = 'failureStep';

/** Plans the flow `id`. `raw`: the text of its body, whose grammar `parseExact` has judged. Never throws. */
export function planFlow(body: FlowBody, raw: string, catalog: Catalog, limits: FlowLimits, id: string): FlowPlan {
  const planner = new Planner(body, raw, catalog, limits, id);
  const planned = planner.plan();
  const [first, ...others] = planner.faults;
  return first === undefined
    ? { kind: 'ok', ...planned }
    : { kind: 'refused', faults: [first, ...others].slice(0, MOST_FAULTS) as [SubmissionFault] };
}

interface Draft {
  readonly name: string;
  readonly body: StepBody;
  /** One a task. */
  readonly templates: readonly (Template | undefined)[];
  readonly isGroup: boolean;
  /** Number of its first task. */
  first: number;
}

class Planner {
  readonly faults: SubmissionFault[] = [];
  readonly #body: FlowBody;
  readonly #tree: JsonNode;
  readonly #catalog: Catalog;
  readonly #limits: FlowLimits;
  readonly #id: string;
  readonly #drafts = new Map<string, Draft>();

  constructor(body: FlowBody, raw: string, catalog: Catalog, limits: FlowLimits, id: string) {
    this.#body = body;
    this.#tree = readTree(raw);
    this.#catalog = catalog;
    this.#limits = limits;
    this.#id = id;
  }

  plan(): Omit<Extract<FlowPlan, { kind: 'ok' }>, 'kind'> {
    this.#draft();
    if (this.faults.length > 0) return { steps: [] };
    const placed = placeSteps(
      [...this.#drafts.values()].map(({ name, body, templates }) => ({
        name,
        members: templates.length,
        before: [
          ...(body.after ?? []).map((each, index) => ({
            name: each,
            field: renderPath(['steps', name, 'after', index]),
          })),
          ...templates.flatMap((template) =>
            (template?.refs ?? [])
              .filter(({ kind }) => kind === 'result')
              .map((ref) => ({ name: ref.name, field: ref.field })),
          ),
        ],
      })),
    );
    if (placed.kind === 'refused') {
      this.faults.push(...placed.faults);
      return { steps: [] };
    }
    const steps = [...this.#forward(placed.placed)];
    const undo = [...this.#drafts.values()].flatMap((draft) => this.#undoOf(draft, placed.placed, steps.length));
    const all = [...steps, ...undo.map((step, index) => ({ ...step, step: steps.length + index }))];
    const { failureStep } = this.#body;
    const groups = emptyGroups(
      this.#drafts,
      placed.placed,
      ({ name, body }, member) =>
        body.undo === undefined ? undefined : this.#undoTask(body.undo, name, member, this.#undoInput(name)),
      MOST_EDGES,
    );
    if (groups === 'too many') {
      this.#fault('field-invalid', ['steps'], `have more than ${MOST_EDGES} tasks that wait for their empty groups`);
      return { steps: [] };
    }
    return {
      steps: failureStep === undefined ? all : [...all, this.#failure(failureStep, all.length)],
      ...(groups === undefined ? {} : { groups }),
    };
  }

  /** Reads the templates and numbers the tasks. */
  #draft(): void {
    let first = 0;
    for (const [name, body] of Object.entries(this.#body.steps)) {
      const { input, inputs } = body;
      if (input !== undefined && inputs !== undefined) {
        this.#fault('field-invalid', ['steps', name, 'inputs'], 'must not be given together with input');
      }
      const templates =
        inputs === undefined
          ? [this.#template(['steps', name, 'input'])]
          : inputs.map((_each, index) => this.#template(['steps', name, 'inputs', index]));
      this.#drafts.set(name, { name, body, templates, isGroup: inputs !== undefined, first });
      first += templates.length;
    }
    if (first > MOST_STEPS)
      this.#fault('field-invalid', ['steps'], `are ${first} tasks; a flow has ${MOST_STEPS} at most`);
  }

  #forward(placed: ReadonlyMap<string, Placed>): readonly PlannedStep[] {
    const followers = new Map<string, number[]>([...this.#drafts.keys()].map((name) => [name, []]));
    let edges = 0;
    for (const { name, waitsFor } of placed.values()) {
      const { first, templates } = this.#drafts.get(name) as Draft;
      for (const each of waitsFor) {
        edges += templates.length * (this.#drafts.get(each)?.templates.length ?? 0);
        if (edges > MOST_EDGES) {
          const reason = `and the steps before it have more than ${MOST_EDGES} dependencies between their tasks; put a step between two large groups`;
          this.#fault('field-invalid', ['steps', name], reason);
          return [];
        }
        for (let member = 0; member < templates.length; member += 1) followers.get(each)?.push(first + member);
      }
    }
    return [...this.#drafts.values()].flatMap((draft) => {
      const { name, body, templates, isGroup, first } = draft;
      const { waitsFor, level } = placed.get(name) as Placed;
      const { onFailure, delayMs, signal } = body;
      const before = waitsFor.reduce((sum, each) => sum + (this.#drafts.get(each)?.templates.length ?? 0), 0);
      return templates.map((template, member) => ({
        step: first + member,
        kind: 'step' as const,
        name,
        ...(isGroup ? { member } : {}),
        ...this.#task(body, isGroup ? ['steps', name, 'inputs', member] : ['steps', name, 'input'], {
          template: template ?? this.#defaultInput(waitsFor),
          at: ['steps', name],
          own: undefined,
        }),
        waitsFor: before + Number(signal !== undefined),
        next: followers.get(name) ?? [],
        level,
        ...(onFailure === undefined ? {} : { onFailure }),
        ...(delayMs === undefined ? {} : { delayMs }),
        ...(signal === undefined ? {} : { signal }),
      }));
    });
  }

  /** What undoes each task of a step. */
  #undoOf(
    { name, body: { undo }, templates, isGroup, first }: Draft,
    placed: ReadonlyMap<string, Placed>,
    number: number,
  ): PlannedStep[] {
    if (undo === undefined) return [];
    const input = this.#undoInput(name);
    return templates.map((_template, member) => ({
      step: number,
      kind: 'undo' as const,
      name: `undo ${name}`,
      ...(isGroup ? { member } : {}),
      ...this.#undoTask(undo, name, first + member, input),
      waitsFor: 0,
      next: [],
      level: placed.get(name)?.level ?? 0,
      undoOf: first + member,
    }));
  }

  #undoInput(name: string): Template | undefined {
    return this.#template(['steps', name, 'undo', 'input']);
  }

  /** The task that undoes the task `step` of a step. */
  #undoTask(
    undo: LaterBody,
    name: string,
    step: number,
    input: Template | undefined,
  ): Pick<PlannedStep, 'task' | 'template'> {
    return this.#task(undo, ['steps', name, 'undo', 'input'], {
      template: input ?? { pieces: ['', ''], refs: [{ object: step, name }] },
      at: ['steps', name, 'undo'],
      own: { name, step },
    });
  }

  #failure(body: LaterBody, number: number): PlannedStep {
    const { name, businessType, businessKey } = this.#body;
    const about = JSON.stringify({ flowId: this.#id, name, businessType, businessKey });
    const told = { pieces: [`${about.slice(0, -1)},"failed":`, '}'], refs: [{ failed: true as const }] };
    const field = [FAILURE_STEP, 'input'];
    const task = this.#task(body, field, {
      template: this.#template(field) ?? told,
      at: [FAILURE_STEP],
      own: undefined,
    });
    return { step: number, kind: 'failure', name: FAILURE_STEP, ...task, waitsFor: 0, next: [], level: 0 };
  }

  /** A step that says nothing of its input gets the results of those before it. */
  #defaultInput(before: readonly string[]): PlannedStep['template'] {
    const [only] = before;
    if (only === undefined) return undefined;
    const draft = this.#drafts.get(only);
    if (before.length === 1 && draft?.isGroup === false) {
      return { pieces: ['', ''], refs: [{ object: draft.first, name: only }] };
    }
    const pieces = before.map((name, index) => `${index === 0 ? '{' : ','}${JSON.stringify(name)}:`);
    return { pieces: [...pieces, '}'], refs: before.map((name) => this.#stored(name, [], undefined)) };
  }

  #stored(name: string, path: readonly string[], own: Own | undefined): StoredReference {
    const where = path.length === 0 ? {} : { path };
    if (own?.name === name) return { step: own.step, ...where };
    const draft = this.#drafts.get(name);
    return draft?.isGroup === false ? { step: draft.first, ...where } : { group: name, ...where };
  }

  /** The task of a step, judged by its type. */
  #task(
    { type: name, queue, priority, maxAttempts }: LaterBody,
    field: readonly PropertyKey[],
    {
      template,
      at,
      own,
    }: {
      readonly template: Template | PlannedStep['template'];
      readonly at: readonly PropertyKey[];
      readonly own: Own | undefined;
    },
  ): Pick<PlannedStep, 'task' | 'template'> {
    const type = this.#catalog.find(name);
    if (type === undefined) this.#fault('task-type-unknown', [...at, 'type'], 'names no announced task type');
    if (name === WEBHOOK_TYPE) this.#fault('field-invalid', [...at, 'type'], 'is for Warren alone');
    if (queue !== undefined && queue !== type?.queue && !this.#catalog.hasQueue(queue)) {
      this.#fault('queue-unknown', [...at, 'queue'], 'names no queue that there is');
    }
    const task = {
      type: name,
      queue: queue ?? type?.queue ?? '',
      priority: priority ?? type?.priority ?? 0,
      maxAttempts: maxAttempts ?? type?.maxAttempts ?? 1,
    };
    if (template !== undefined && template.refs.length > 0) {
      const refs = template.refs.map((ref) => ('kind' in ref ? this.#resolve(ref, own) : ref));
      return { task: { ...task, input: '{}' }, template: { pieces: template.pieces, refs } };
    }
    const input = template?.pieces[0] ?? '{}';
    const value: unknown = JSON.parse(input);
    for (const { field: inner, reason } of type?.checkInput?.(value) ?? []) {
      this.#fault('input-invalid', [], reason, inner.replace(/^input/, renderPath(field)));
    }
    return { task: { ...task, input, ...(type === undefined ? {} : limitKeysOf(type, value)) } };
  }

  #resolve({ kind, name, path, field }: Reference, own: Own | undefined): StoredReference {
    if (kind === 'signal') {
      const isKnown = Object.values(this.#body.steps).some(({ signal }) => signal?.name === name);
      if (!isKnown)
        this.#fault('field-invalid', [], `names a signal that no step waits for: ${JSON.stringify(name)}`, field);
      return { signal: name, ...(path.length === 0 ? {} : { path }) };
    }
    if (!this.#drafts.has(name))
      this.#fault('field-invalid', [], `names no step of this flow: ${JSON.stringify(name)}`, field);
    return this.#stored(name, path, own);
  }

  /** The template of the input at `path` of the body; `undefined` where there is none. */
  #template(path: readonly (string | number)[]): Template | undefined {
    let node: JsonNode | undefined = this.#tree;
    for (const part of path) {
      if (node?.kind === 'object') node = node.members.get(String(part));
      else node = node?.kind === 'list' ? node.items[part as number] : undefined;
    }
    if (node === undefined) return undefined;
    const { messageBytes, depth } = this.#limits;
    try {
      const { template, faults } = readTemplate(node, path, { maxLength: messageBytes, maxDepth: depth });
      for (const { field, reason } of faults) this.#fault('field-invalid', [], reason, field);
      return template;
    } catch (thrown) {
      if (!(thrown instanceof TreeTooLarge)) throw thrown;
      this.#fault('body-too-large', path, thrown.message);
      return undefined;
    }
  }

  #fault(code: ErrorCode, path: readonly PropertyKey[], reason: string, field: string = renderPath(path)): void {
    if (this.faults.length <= MOST_FAULTS) this.faults.push({ code, field, reason });
  }
}

interface Own {
  readonly name: string;
  readonly step: number;
}
