/** Writes down the steps of a flow as JSON, and those of flows nested in it. */
import { InputRefusedError } from './errors.ts';
import type {
  FlowBuilder,
  FlowDefinition,
  FlowPolicy,
  NestedOptions,
  Ref,
  Step,
  StepOptions,
  WithRefs,
} from './flow.ts';
import { renderInput, STANDS_FOR } from './input.ts';
import { nameOf } from './task-type.ts';
import type { TypeOrName } from './task-type.ts';

interface Written {
  readonly members: Record<string, string>;
  readonly isGroup: boolean;
  undo?: string;
}

/** A reference that an input holds: what it stands for, and the flow in which that is. */
interface Used {
  readonly kind: '$result' | '$signal';
  readonly name: string;
  readonly owner: unknown;
}

/** Under which a reference says whose it is. */
const USED: unique symbol = Symbol('used');

/** Name and policy of a flow, as members of its JSON. */
export function headOf(name: string, { onFailure }: FlowPolicy): readonly string[] {
  return [
    `"name":${JSON.stringify(name)}`,
    ...(onFailure === undefined ? [] : [`"onFailure":${JSON.stringify(onFailure)}`]),
  ];
}

/** Takes the steps of one flow. */
export class FlowWriter implements FlowBuilder {
  readonly #steps = new Map<string, Written>();
  /** Of the inputs of its steps, and of those of flows nested in it. */
  readonly #used: Used[] = [];
  readonly #followed = new Set<string>();
  readonly #signals = new Set<string>();
  #failure: string | undefined;

  step<Input extends object, Result>(
    name: string,
    type: TypeOrName<Input, Result>,
    input: WithRefs<Input>,
    options: StepOptions = {},
  ): Step<Result> {
    this.#note(input);
    const members = { type: JSON.stringify(nameOf(type)), input: renderInput(input, `steps.${name}.input`) };
    return this.#add(name, { members, isGroup: false }, options);
  }

  group<Input extends object, Result>(
    name: string,
    type: TypeOrName<Input, Result>,
    inputs: readonly WithRefs<Input>[],
    options: StepOptions = {},
  ): Step<Result[]> {
    this.#note(inputs);
    const rendered = inputs.map((input, index) => renderInput(input, `steps.${name}.inputs[${index}]`));
    const members = { type: JSON.stringify(nameOf(type)), inputs: `[${rendered.join(',')}]` };
    return this.#add(name, { members, isGroup: true }, options);
  }

  nest<Input, Result>(
    name: string,
    definition: FlowDefinition<Input, Result>,
    input: WithRefs<Input>,
    options: NestedOptions = {},
  ): Step<Result> {
    const inner = new FlowWriter();
    // What it is given are values or what stands for them; the one is written down as the other is.
    const last = definition.write(inner, input as Input);
    const members = inner.members();
    for (const used of inner.#foreign(`steps.${name}.flow`)) this.#use(used);
    const path = last === undefined ? [] : inner.#pathOfResult(last.name, `steps.${name}.flow`);
    const flow = `{${[...headOf(definition.name, definition.policy), ...members].join(',')}}`;
    return this.#add(name, { members: { flow }, isGroup: false }, options, path);
  }

  signal<Data>(name: string): Ref<Data> {
    return reference({ kind: '$signal', name, owner: this }, []) as Ref<Data>;
  }

  onFailure<Input extends object>(type: TypeOrName<Input>, input?: WithRefs<Input>): void {
    this.#failure = taskOf(type, input, 'failureStep.input');
  }

  /** The steps, and the one for failures. */
  members(): readonly string[] {
    const steps = [...this.#steps].map(([name, { members, undo }]) => {
      const all = Object.entries(undo === undefined ? members : { ...members, undo });
      return `${JSON.stringify(name)}:{${all.map(([member, text]) => `${JSON.stringify(member)}:${text}`).join(',')}}`;
    });
    return [`"steps":{${steps.join(',')}}`, ...(this.#failure === undefined ? [] : [`"failureStep":${this.#failure}`])];
  }

  #add<Result>(
    name: string,
    written: Written,
    { after, ...options }: StepOptions,
    path: readonly string[] = [],
  ): Step<Result> {
    if (this.#steps.has(name)) throw new InputRefusedError(`steps.${name}`, 'is there already', 'field-invalid');
    const said = Object.entries({ ...options, after: after?.map((step) => step.name) }).filter(
      ([, value]) => value !== undefined,
    );
    for (const each of after ?? []) this.#followed.add(each.name);
    if (options.signal !== undefined) this.#signals.add(options.signal.name);
    for (const [key, value] of said) written.members[key] = JSON.stringify(value);
    this.#steps.set(name, written);
    const step: Step<Result> = {
      name,
      result: reference({ kind: '$result', name, owner: this }, path) as Ref<Result>,
      undo: (undoType, input) => {
        written.undo = taskOf(undoType, input, `steps.${name}.undo.input`);
        return step;
      },
    };
    return step;
  }

  /** Finds the references in an input. */
  #note(value: unknown, above: readonly object[] = []): void {
    if (typeof value !== 'object' || value === null || above.includes(value)) return;
    const used = (value as { readonly [USED]?: Used })[USED];
    if (used !== undefined) this.#use(used);
    else for (const member of Object.values(value)) this.#note(member, [...above, value]);
  }

  #use(used: Used): void {
    this.#used.push(used);
    if (used.kind === '$result' && used.owner === this) this.#followed.add(used.name);
  }

  /** References to flows around this one. Names are looked up inside first: one that is known here too would mean another step. */
  #foreign(field: string): readonly Used[] {
    const foreign = this.#used.filter(({ owner }) => owner !== this);
    for (const { kind, name } of foreign) {
      if (!(kind === '$result' ? this.#steps.has(name) : this.#signals.has(name))) continue;
      const what = kind === '$result' ? 'a step' : 'a signal';
      const reason = `has ${what} ${JSON.stringify(name)} of its own, and is given that of the flow around it; call one of them otherwise`;
      throw new InputRefusedError(field, reason, 'field-invalid');
    }
    return foreign;
  }

  /** Where in the result of this flow that of one of its steps is. */
  #pathOfResult(name: string, field: string): readonly string[] {
    const last = [...this.#steps].flatMap(([each, { isGroup }]) => (isGroup || this.#followed.has(each) ? [] : [each]));
    if (last.includes(name)) return last.length === 1 ? [] : [name];
    const reason = `returns the step ${JSON.stringify(name)}, which is a group or not a last one, so that its result is not that of the flow`;
    throw new InputRefusedError(field, reason, 'field-invalid');
  }
}

function taskOf(type: TypeOrName, input: unknown, field: string): string {
  return `{"type":${JSON.stringify(nameOf(type))}${input === undefined ? '' : `,"input":${renderInput(input, field)}`}}`;
}

/** A reference whose members are references. What it stands for in JSON is under a symbol, so that any name may be a member. */
function reference(used: Used, path: readonly string[]): unknown {
  const base = { [used.kind]: used.name };
  const pointer = path.map((part) => `/${part.replaceAll('~', '~0').replaceAll('/', '~1')}`).join('');
  return new Proxy(Object.freeze({}), {
    get: (_target, name) => {
      if (name === STANDS_FOR) return path.length === 0 ? base : { ...base, path: pointer };
      if (name === USED) return used;
      return typeof name === 'symbol' ? undefined : reference(used, [...path, name]);
    },
  });
}
