/**
 * Flows with types: what a step gives is what the next may take. `defineFlow` writes down the graph; nothing is called by it, and the
 * services check it once more.
 */
import { InputRefusedError } from './errors.ts';
import { renderInput, STANDS_FOR } from './input.ts';
import { nameOf } from './task-type.ts';
import type { TypeOrName } from './task-type.ts';

declare const refOf: unique symbol;

/**
 * Stands in an input for the result of a step, or for a part of it: `create.result.id`. Reading a member makes a reference to that; it has
 * no value before the flow runs.
 */
export type Ref<Value> = { readonly [refOf]: Value } & (Value extends readonly (infer Item)[]
  ? { readonly [index: number]: Ref<Item> }
  : Value extends object
    ? { readonly [Name in keyof Value]-?: Ref<NonNullable<Value[Name]>> }
    : unknown);

/** An input in which references may stand for values. */
export type WithRefs<Value> =
  | Value
  | Ref<Value>
  | (Value extends readonly (infer Item)[]
      ? readonly WithRefs<Item>[]
      : Value extends object
        ? { readonly [Name in keyof Value]: WithRefs<Value[Name]> }
        : never);

/** What a step of a flow may say beside its input. */
export interface StepOptions {
  /** Steps that must have succeeded before, beside those that the input refers to. */
  readonly after?: readonly { readonly name: string }[];
  /** Default: that of the type. */
  readonly queue?: string;
  /** 0 to 9. Default: that of the type. */
  readonly priority?: number;
  /** Runs that may fail, 1 to 100, the first included. Default: that of the type. */
  readonly maxAttempts?: number;
  /** Milliseconds that it waits once the steps before it are done. */
  readonly delayMs?: number;
  /** What its flow does when it ends otherwise than by success. Default: as the flow says. */
  readonly onFailure?: 'stop' | 'continue' | 'ignore';
  /** A signal that it waits for as well, and for how many milliseconds. */
  readonly signal?: { readonly name: string; readonly timeoutMs?: number };
}

/** A step of a flow that is being written down. */
export interface Step<in out Result> {
  readonly name: string;
  /** Its result, for the inputs of later steps; of a group the list of them. */
  readonly result: Ref<Result>;
  /** The task that undoes it, where its flow compensates; of a group, one for each member, whose result `result` is then. */
  undo<Input extends object>(type: TypeOrName<Input>, input: WithRefs<Input>): this;
}

/** Writes down the steps of a flow. */
export interface FlowBuilder {
  /** Adds a step. Throws `InputRefusedError` for an input that JSON would change, and for a name that is there. */
  step<Input extends object, Result>(
    name: string,
    type: TypeOrName<Input, Result>,
    input: WithRefs<Input>,
    options?: StepOptions,
  ): Step<Result>;
  /** Adds a group: a task for each input. */
  group<Input extends object, Result>(
    name: string,
    type: TypeOrName<Input, Result>,
    inputs: readonly WithRefs<Input>[],
    options?: StepOptions,
  ): Step<Result[]>;
  /** Stands for what came with a signal that a step waits for. */
  signal<Data = unknown>(name: string): Ref<Data>;
  /** A task that runs once when the flow fails. Without an input it is told what failed. */
  onFailure<Input extends object>(type: TypeOrName<Input>, input?: WithRefs<Input>): void;
}

/** What a flow says of itself. */
export interface FlowPolicy {
  /** What it does when a step ends otherwise than by success. Default `stop`. */
  readonly onFailure?: 'stop' | 'continue' | 'compensate';
  /** With a business key: the kind of thing that the flow is about. */
  readonly businessType?: string;
}

/** A flow that can be started with an input. */
export interface FlowDefinition<Input = unknown> {
  readonly name: string;
  /** The body of `POST /v1/flows` for this input, as JSON text without its last brace. Throws `InputRefusedError`. */
  render(input: Input): string;
}

/**
 * Defines a flow. `write` is called with each input that the flow is started with, and adds the steps.
 *
 * ```ts
 * const coupon = defineFlow('coupon', (flow, { user }: { user: number }) => {
 *   const checked = flow.step('check', userCheck, { user });
 *   flow.step('create', couponCreate, { user, percent: checked.result.percent, folder: 'coupons' });
 * });
 * ```
 */
export function defineFlow<Input>(
  name: string,
  write: (flow: FlowBuilder, input: Input) => void,
  policy: FlowPolicy = {},
): FlowDefinition<Input> {
  return Object.freeze({
    name,
    render: (input: Input): string => {
      const writer = new Writer();
      write(writer, input);
      const members = [
        `"name":${JSON.stringify(name)}`,
        ...(policy.businessType === undefined ? [] : [`"businessType":${JSON.stringify(policy.businessType)}`]),
        ...(policy.onFailure === undefined ? [] : [`"onFailure":${JSON.stringify(policy.onFailure)}`]),
        ...writer.members(),
      ];
      return `{${members.join(',')}`;
    },
  });
}

interface Written {
  readonly members: Record<string, string>;
  undo?: string;
}

class Writer implements FlowBuilder {
  readonly #steps = new Map<string, Written>();
  #failure: string | undefined;

  step<Input extends object, Result>(
    name: string,
    type: TypeOrName<Input, Result>,
    input: WithRefs<Input>,
    options: StepOptions = {},
  ): Step<Result> {
    return this.#add(name, type, { input: renderInput(input, `steps.${name}.input`) }, options);
  }

  group<Input extends object, Result>(
    name: string,
    type: TypeOrName<Input, Result>,
    inputs: readonly WithRefs<Input>[],
    options: StepOptions = {},
  ): Step<Result[]> {
    const rendered = inputs.map((input, index) => renderInput(input, `steps.${name}.inputs[${index}]`));
    return this.#add(name, type, { inputs: `[${rendered.join(',')}]` }, options);
  }

  signal<Data>(name: string): Ref<Data> {
    return reference({ $signal: name }, []) as Ref<Data>;
  }

  onFailure<Input extends object>(type: TypeOrName<Input>, input?: WithRefs<Input>): void {
    this.#failure = taskOf(type, input, 'failureStep.input');
  }

  members(): readonly string[] {
    const steps = [...this.#steps].map(([name, { members, undo }]) => {
      const all = Object.entries(undo === undefined ? members : { ...members, undo });
      return `${JSON.stringify(name)}:{${all.map(([member, text]) => `${JSON.stringify(member)}:${text}`).join(',')}}`;
    });
    return [`"steps":{${steps.join(',')}}`, ...(this.#failure === undefined ? [] : [`"failureStep":${this.#failure}`])];
  }

  #add<Result>(
    name: string,
    type: TypeOrName,
    inputs: Record<string, string>,
    { after, ...options }: StepOptions,
  ): Step<Result> {
    if (this.#steps.has(name)) throw new InputRefusedError(`steps.${name}`, 'is there already', 'field-invalid');
    const said = Object.entries({ ...options, after: after?.map((step) => step.name) }).filter(
      ([, value]) => value !== undefined,
    );
    const written: Written = {
      members: {
        type: JSON.stringify(nameOf(type)),
        ...inputs,
        ...Object.fromEntries(said.map(([key, value]) => [key, JSON.stringify(value)])),
      },
    };
    this.#steps.set(name, written);
    const step: Step<Result> = {
      name,
      result: reference({ $result: name }, []) as Ref<Result>,
      undo: (undoType, input) => {
        written.undo = taskOf(undoType, input, `steps.${name}.undo.input`);
        return step;
      },
    };
    return step;
  }
}

function taskOf(type: TypeOrName, input: unknown, field: string): string {
  return `{"type":${JSON.stringify(nameOf(type))}${input === undefined ? '' : `,"input":${renderInput(input, field)}`}}`;
}

/** A reference whose members are references. What it stands for in JSON is under a symbol, so that any name may be a member. */
function reference(base: Readonly<Record<string, string>>, path: readonly string[]): unknown {
  const pointer = path.map((part) => `/${part.replaceAll('~', '~0').replaceAll('/', '~1')}`).join('');
  return new Proxy(Object.freeze({}), {
    get: (_target, name) => {
      if (name === STANDS_FOR) return path.length === 0 ? base : { ...base, path: pointer };
      return typeof name === 'symbol' ? undefined : reference(base, [...path, name]);
    },
  });
}
