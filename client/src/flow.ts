/**
 * Flows with types: what a step gives is what the next may take. `defineFlow` writes down the graph; nothing is called by it, and the
 * services check it once more.
 */
import { FlowWriter, headOf } from './flow-writer.ts';
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

/** What a step that is a flow may say: its steps say the rest. */
export type NestedOptions = Pick<StepOptions, 'after' | 'delayMs' | 'onFailure' | 'signal'>;

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
  /**
   * Adds a flow as a step. It is written down with this input, in which results of this flow may stand; its result is that of the step that it
   * returned, which must be a last one. Throws `InputRefusedError`, also where a step of it is called as one whose result it is given.
   */
  nest<Input, Result>(
    name: string,
    definition: FlowDefinition<Input, Result>,
    input: WithRefs<Input>,
    options?: NestedOptions,
  ): Step<Result>;
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

/** A flow that can be started with an input, or be a step of another. */
export interface FlowDefinition<in Input = unknown, out Result = unknown> {
  readonly name: string;
  readonly policy: FlowPolicy;
  /** The body of `POST /v1/flows` for this input, as JSON text without its last brace. Throws `InputRefusedError`. */
  render(input: Input): string;
  /** Adds its steps. */
  write(flow: FlowBuilder, input: Input): { readonly name: string; readonly result: Ref<Result> } | void;
}

/**
 * Defines a flow. `write` is called with each input that the flow is started with, and adds the steps. What it returns is its last step: the one
 * that gives the result where the flow is a step of another.
 *
 * ```ts
 * const coupon = defineFlow('coupon', (flow, { user }: { user: number }) => {
 *   const checked = flow.step('check', userCheck, { user });
 *   return flow.step('create', couponCreate, { user, percent: checked.result.percent, folder: 'coupons' });
 * });
 * ```
 */
export function defineFlow<Input, Result = unknown>(
  name: string,
  write: (flow: FlowBuilder, input: Input) => Step<Result> | void,
  policy: FlowPolicy = {},
): FlowDefinition<Input, Result> {
  return Object.freeze({
    name,
    policy,
    write,
    render: (input: Input): string => {
      const writer = new FlowWriter();
      write(writer, input);
      const { businessType } = policy;
      const about = businessType === undefined ? [] : [`"businessType":${JSON.stringify(businessType)}`];
      return `{${[...headOf(name, policy), ...about, ...writer.members()].join(',')}`;
    },
  });
}
