/** Plans the steps of one flow. One that is nested has its own planner, which asks that of the flow around it for what it does not know. */
import type { ErrorCode } from '../errors/catalogue.ts';
import { limitKeysOf } from '../tasks/check-submission.ts';
import { nodeAt, TreeTooLarge } from '../tasks/json-tree.ts';
import type { JsonNode } from '../tasks/json-tree.ts';
import { renderPath } from '../tasks/json.ts';
import type { FlowBody, LaterBody, NestedFlowBody, StepBody } from './flow-body.ts';
import { emptyGroups } from './empty-groups.ts';
import { placeSteps } from './graph.ts';
import type { Placed } from './graph.ts';
import { MOST_EDGES, oneUp } from './planned-flow.ts';
import type { PlannedStep, PlannedTasks, Shared, StoredReference } from './planned-flow.ts';
import { planTask } from './plan-task.ts';
import { readTemplate } from './template.ts';
import type { Reference, Template } from './template.ts';

/** One flow, and where it stands. */
export interface Scope {
  readonly id: string;
  readonly body: Pick<FlowBody, 'name' | 'steps' | 'failureStep'> | NestedFlowBody;
  readonly node: JsonNode | undefined;
  /** Its place in the body of the outermost flow. */
  readonly at: readonly PropertyKey[];
  /** The step of another flow that it is. */
  readonly around: { readonly planner: FlowPlanner; readonly step: string } | undefined;
}

const MOST_FAULTS = 20;
/** Number of the step that the first steps of a nested flow wait for. */
const BEGIN = -1;
/** How the step that is made for failures is called. */
export const FAILURE_STEP = 'failureStep';

interface Draft {
  readonly name: string;
  readonly body: StepBody;
  /** One a task; of a nested flow none is given. */
  readonly templates: readonly (Template | undefined)[];
  readonly isGroup: boolean;
  readonly child: FlowPlanner | undefined;
  /** Number of its first task. */
  readonly first: number;
}

/** Drafts, places, and plans, in this order. */
export class FlowPlanner {
  readonly #shared: Shared;
  readonly #scope: Scope;
  readonly #drafts = new Map<string, Draft>();
  #placed: ReadonlyMap<string, Placed> = new Map();

  constructor(shared: Shared, scope: Scope) {
    this.#shared = shared;
    this.#scope = scope;
  }

  /** Reads the templates and numbers the tasks. False where anything is wrong. */
  draft(): boolean {
    const { counts } = this.#shared;
    let first = 0;
    for (const [name, body] of Object.entries(this.#scope.body.steps)) {
      const { input, inputs, flow } = body;
      if (input !== undefined && inputs !== undefined) {
        this.#fault('field-invalid', ['steps', name, 'inputs'], 'must not be given together with input');
      }
      const child = flow === undefined ? undefined : this.#nest(name, flow);
      const templates =
        inputs === undefined
          ? [child === undefined ? this.#template(['steps', name, 'input']) : undefined]
          : inputs.map((_each, index) => this.#template(['steps', name, 'inputs', index]));
      this.#drafts.set(name, { name, body, templates, isGroup: inputs !== undefined, child, first });
      first += templates.length;
      if (child === undefined) counts.tasks += templates.length;
      else counts.nested += 1;
    }
    return this.#shared.faults.length === 0;
  }

  #nest(name: string, body: NestedFlowBody): FlowPlanner {
    const place = ['steps', name, 'flow'];
    const child = new FlowPlanner(this.#shared, {
      id: this.#shared.nestedId(),
      body,
      node: nodeAt(this.#scope.node, place),
      at: [...this.#scope.at, ...place],
      around: { planner: this, step: name },
    });
    child.draft();
    return child;
  }

  /** Finds what waits for what. False where anything is wrong. */
  place(): boolean {
    const placed = placeSteps(
      [...this.#drafts.values()].map((draft) => ({
        name: draft.name,
        members: draft.templates.length,
        before: [
          ...(draft.body.after ?? []).map((each, index) => ({
            name: each,
            field: this.#fieldOf(['steps', draft.name, 'after', index]),
          })),
          ...resultsIn(draft).filter(({ name }) => this.#drafts.has(name) || !this.#isKnown(name)),
        ],
      })),
    );
    if (placed.kind === 'refused') this.#shared.faults.push(...placed.faults);
    else this.#placed = placed.placed;
    for (const { child } of this.#drafts.values()) child?.place();
    return this.#shared.faults.length === 0;
  }

  /** Results that steps of it refer to and that are of flows around it. */
  free(): readonly Reference[] {
    return [...this.#drafts.values()].flatMap((draft) =>
      resultsIn(draft).filter(({ name }) => !this.#drafts.has(name)),
    );
  }

  /** Every step. `delayMs`: what the first ones wait beside their own delay. */
  plan(delayMs = 0): PlannedTasks {
    const steps = [...this.#forward(delayMs)];
    const undo = [...this.#drafts.values()].flatMap((draft) => this.#undoOf(draft));
    const all = [...steps, ...undo.map((step, index) => ({ step: steps.length + index, ...step }))];
    const { failureStep } = this.#scope.body;
    if (failureStep !== undefined) all.push(this.#failure(failureStep, all.length));
    if (this.#scope.around !== undefined) {
      const next = steps.filter(({ name }) => this.#isFirst(name)).map(({ step }) => step);
      all.push({ step: BEGIN, kind: 'begin', name: 'begin', waitsFor: 0, next, level: 0 });
    }
    const undoOf = (draft: Draft, member: number): PlannedTaskOf | undefined =>
      this.#undoTask(draft, member, this.#undoInput(draft.name));
    const groups = emptyGroups(this.#drafts, this.#placed, undoOf, MOST_EDGES);
    if (groups === 'too many') {
      this.#fault('field-invalid', ['steps'], `have more than ${MOST_EDGES} tasks that wait for their empty groups`);
    }
    return { steps: all, ...(groups === undefined || groups === 'too many' ? {} : { groups }) };
  }

  #isFirst(name: string): boolean {
    return this.#placed.get(name)?.waitsFor.length === 0;
  }

  #forward(delayMs: number): readonly PlannedStep[] {
    const followers = this.#followers();
    if (followers === undefined) return [];
    return [...this.#drafts.values()].flatMap((draft): PlannedStep[] => {
      const { name, body, templates, isGroup, child, first } = draft;
      const { waitsFor, level } = this.#placed.get(name) as Placed;
      const { onFailure, signal } = body;
      const isFirst = this.#isFirst(name);
      const delay = (body.delayMs ?? 0) + (isFirst ? delayMs : 0);
      const before = waitsFor.reduce((sum, each) => sum + (this.#drafts.get(each)?.templates.length ?? 0), 0);
      const begin = Number(isFirst && this.#scope.around !== undefined);
      const shared = {
        kind: 'step' as const,
        name,
        waitsFor: before + Number(signal !== undefined) + begin,
        next: followers.get(name) ?? [],
        level,
        ...(onFailure === undefined ? {} : { onFailure }),
        ...(signal === undefined ? {} : { signal }),
      };
      if (child !== undefined) return [{ ...shared, step: first, child: this.#planNested(draft, child, delay) }];
      const taskOf = this.#taskOf(body, ['steps', name]);
      const delayOf = delay === 0 && body.delayMs === undefined ? undefined : delay;
      return templates.map((template, member): PlannedStep => {
        const field = isGroup ? ['steps', name, 'inputs', member] : ['steps', name, 'input'];
        const { task, template: made } = taskOf(template ?? this.#defaultInput(waitsFor), field);
        const own = isGroup ? member : undefined;
        return { step: first + member, member: own, task, template: made, delayMs: delayOf, ...shared };
      });
    });
  }

  #planNested({ first }: Draft, child: FlowPlanner, delayMs: number): string {
    const {
      id,
      body: { name, onFailure },
    } = child.#scope as Scope & { readonly body: NestedFlowBody };
    const planned = child.plan(delayMs);
    this.#shared.nested.push({ id, parentId: this.#scope.id, parentStep: first, name, onFailure, ...planned });
    return id;
  }

  /** The tasks that come after each step; `undefined` where they are too many. */
  #followers(): ReadonlyMap<string, readonly number[]> | undefined {
    const { counts } = this.#shared;
    const followers = new Map<string, number[]>([...this.#drafts.keys()].map((name) => [name, []]));
    for (const { name, waitsFor } of this.#placed.values()) {
      const { first, templates } = this.#drafts.get(name) as Draft;
      for (const each of waitsFor) {
        counts.edges += templates.length * (this.#drafts.get(each)?.templates.length ?? 0);
        if (counts.edges > MOST_EDGES) {
          const reason = `and the steps before it have more than ${MOST_EDGES} dependencies between their tasks; put a step between two large groups`;
          this.#fault('field-invalid', ['steps', name], reason);
          return undefined;
        }
        for (let member = 0; member < templates.length; member += 1) followers.get(each)?.push(first + member);
      }
    }
    return followers;
  }

  /** What undoes each task of a step. A nested flow that says nothing of that is undone by what its own steps say. */
  #undoOf(draft: Draft): Omit<PlannedStep, 'step'>[] {
    const {
      name,
      body: { undo },
      templates,
      isGroup,
      child,
      first,
    } = draft;
    const shared = {
      kind: 'undo' as const,
      name: `undo ${name}`,
      waitsFor: 0,
      next: [],
      level: this.#placed.get(name)?.level ?? 0,
    };
    if (undo === undefined) {
      return child !== undefined && child.#canBeUndone() ? [{ ...shared, child: child.#scope.id, undoOf: first }] : [];
    }
    const input = this.#undoInput(name);
    return templates.map((_template, member) => ({
      ...shared,
      ...(isGroup ? { member } : {}),
      ...this.#undoTask(draft, first + member, input),
      undoOf: first + member,
    }));
  }

  #undoInput(name: string): Template | undefined {
    return this.#template(['steps', name, 'undo', 'input']);
  }

  /** The task that undoes the task `step` of a step. */
  #undoTask({ name, body: { undo } }: Draft, step: number, input: Template | undefined): PlannedTaskOf | undefined {
    if (undo === undefined) return undefined;
    const template = input ?? { pieces: ['', ''], refs: [{ object: step, name }] };
    return this.#taskOf(undo, ['steps', name, 'undo'], { name, step })(template, ['steps', name, 'undo', 'input']);
  }

  #canBeUndone(): boolean {
    return [...this.#drafts.values()].some(
      ({ body: { undo }, child }) => undo !== undefined || (child !== undefined && child.#canBeUndone()),
    );
  }

  #failure(body: LaterBody, number: number): PlannedStep {
    const { businessType, businessKey } = this.#shared.about;
    const about = JSON.stringify({ flowId: this.#scope.id, name: this.#scope.body.name, businessType, businessKey });
    const told = { pieces: [`${about.slice(0, -1)},"failed":`, '}'], refs: [{ failed: true as const }] };
    const field = [FAILURE_STEP, 'input'];
    const task = this.#taskOf(body, [FAILURE_STEP])(this.#template(field) ?? told, field);
    return { step: number, kind: 'failure', name: FAILURE_STEP, ...task, waitsFor: 0, next: [], level: 0 };
  }

  /** A step that says nothing of its input gets the results of those before it; the first of a nested flow, what that would get were it a task. */
  #defaultInput(before: readonly string[]): PlannedStep['template'] {
    const [only] = before;
    if (only === undefined) {
      const { around } = this.#scope;
      if (around === undefined) return undefined;
      const outer = around.planner.#defaultInput(around.planner.#after(around.step));
      return outer === undefined ? undefined : { pieces: outer.pieces, refs: outer.refs.map((ref) => oneUp(ref)) };
    }
    const draft = this.#drafts.get(only);
    if (before.length === 1 && draft?.isGroup === false) {
      return { pieces: ['', ''], refs: [{ object: draft.first, name: only }] };
    }
    const pieces = before.map((name, index) => `${index === 0 ? '{' : ','}${JSON.stringify(name)}:`);
    return { pieces: [...pieces, '}'], refs: before.map((name) => this.#stored(name, [], undefined)) };
  }

  /** Steps that it names as those after which it comes: not those that its own steps refer to. Where a group is empty, those before that. */
  #after(name: string): readonly string[] {
    const named = this.#drafts.get(name)?.body.after ?? [];
    const isEmpty = (each: string): boolean => this.#drafts.get(each)?.templates.length === 0;
    return [...new Set(named.flatMap((each) => (isEmpty(each) ? (this.#placed.get(each)?.waitsFor ?? []) : [each])))];
  }

  #stored(name: string, path: readonly string[], own: Own | undefined): StoredReference {
    const where = path.length === 0 ? {} : { path };
    if (own?.name === name) return { step: own.step, ...where };
    const draft = this.#drafts.get(name);
    const { around } = this.#scope;
    if (draft === undefined && around !== undefined) return oneUp(around.planner.#stored(name, path, undefined));
    return draft?.isGroup === false ? { step: draft.first, ...where } : { group: name, ...where };
  }

  /** A maker of the tasks of a step, whose type is judged once, however many there are. `field`: where the input of one stands. */
  #taskOf(
    body: Pick<StepBody, 'type' | 'queue' | 'priority' | 'maxAttempts'>,
    at: readonly PropertyKey[],
    own?: Own,
  ): (template: Template | PlannedStep['template'], field: readonly PropertyKey[]) => PlannedTaskOf {
    const { task, type, faults } = planTask(body, this.#shared.catalog);
    for (const [code, member, reason] of faults) this.#fault(code, [...at, member], reason);
    return (template, field) => {
      if (template !== undefined && template.refs.length > 0) {
        const refs = template.refs.map((ref) => ('kind' in ref ? this.#resolve(ref, own) : ref));
        return { task: { input: '{}', ...task }, template: { pieces: template.pieces, refs } };
      }
      const input = template?.pieces[0] ?? '{}';
      const value: unknown = JSON.parse(input);
      for (const { field: inner, reason } of type?.checkInput?.(value) ?? []) {
        this.#fault('input-invalid', [], reason, inner.replace(/^input/, this.#fieldOf(field)));
      }
      const keys = type === undefined ? {} : limitKeysOf(type, value);
      return { task: { input, ...task, ...keys }, template: undefined };
    };
  }

  #resolve({ kind, name, path, field }: Reference, own: Own | undefined): StoredReference {
    if (kind === 'signal') {
      const signal = this.#signal(name, path);
      if (signal !== undefined) return signal;
      this.#fault('field-invalid', [], `names a signal that no step waits for: ${JSON.stringify(name)}`, field);
      return { signal: name };
    }
    if (!this.#isKnown(name))
      this.#fault('field-invalid', [], `names no step of this flow: ${JSON.stringify(name)}`, field);
    return this.#stored(name, path, own);
  }

  /** A signal that steps of this flow wait for, or of one around it. */
  #signal(name: string, path: readonly string[]): StoredReference | undefined {
    const { body, around } = this.#scope;
    if (Object.values(body.steps).some(({ signal }) => signal?.name === name)) {
      return { signal: name, ...(path.length === 0 ? {} : { path }) };
    }
    const outer = around === undefined ? undefined : around.planner.#signal(name, path);
    return outer === undefined ? undefined : oneUp(outer);
  }

  /** True where it is a step of this flow, or of one around it. */
  #isKnown(name: string): boolean {
    const { around } = this.#scope;
    return this.#drafts.has(name) || (around !== undefined && around.planner.#isKnown(name));
  }

  /** The template of the input at `path` of the flow; `undefined` where there is none. */
  #template(path: readonly (string | number)[]): Template | undefined {
    const node = nodeAt(this.#scope.node, path);
    if (node === undefined) return undefined;
    const { messageBytes, depth } = this.#shared.limits;
    try {
      const bounds = { maxLength: messageBytes, maxDepth: depth };
      const { template, faults } = readTemplate(node, [...this.#scope.at, ...path], bounds);
      for (const { field, reason } of faults) this.#fault('field-invalid', [], reason, field);
      return template;
    } catch (thrown) {
      if (!(thrown instanceof TreeTooLarge)) throw thrown;
      this.#fault('body-too-large', path, thrown.message);
      return undefined;
    }
  }

  #fieldOf(path: readonly PropertyKey[]): string {
    return renderPath([...this.#scope.at, ...path]);
  }

  #fault(code: ErrorCode, path: readonly PropertyKey[], reason: string, field: string = this.#fieldOf(path)): void {
    const { faults } = this.#shared;
    if (faults.length <= MOST_FAULTS) faults.push({ code, field, reason });
  }
}

type PlannedTaskOf = Required<Pick<PlannedStep, 'task'>> & { readonly template: PlannedStep['template'] };

interface Own {
  readonly name: string;
  readonly step: number;
}

/** Results that the inputs of a step refer to, or those of the flow that it is to steps around that. */
function resultsIn({ templates, child }: Draft): readonly Reference[] {
  if (child !== undefined) return child.free();
  return templates.flatMap((template) => (template?.refs ?? []).filter(({ kind }) => kind === 'result'));
}
