/** Steps that a handler adds to its flow while it runs: what it says, and what it is told. */

/** A step that is added, or members of a group. */
export interface AddStepOptions {
  /** Task type, as an announced one is named. Its queue, priority and attempts hold where nothing else is said here. */
  readonly type: string;
  /**
   * The input: plain JSON, an object. `{"$result": "check", "path": "/id"}` in it stands for what that step gave, as in the body of a flow.
   * Without `input` and `inputs` it is the result of the step that adds it.
   */
  readonly input?: object;
  /**
   * In place of `input`: a group, one task for each; 0 to 10 000. Where the flow has a group of this name already, they are members of that, after
   * those that are there.
   */
  readonly inputs?: readonly object[];
  /** Named queue. Default: that of the type. */
  readonly queue?: string;
  /** 0 to 9, 9 first. Default: that of the type. */
  readonly priority?: number;
  /** Runs that may fail, the first included; 1 to 100. Default: that of the type. */
  readonly maxAttempts?: number;
  /** Milliseconds that it waits once the steps before it are done; at most 31 622 400 000. */
  readonly delayMs?: number;
  /** What its failure means for the flow. Default: as the flow, or its group, says. */
  readonly onFailure?: 'stop' | 'continue' | 'ignore';
  /** Names of further steps of the flow that it waits for. */
  readonly after?: readonly string[];
}

/** What came of it. */
export interface AddedSteps {
  /** Its tasks, in the order of the inputs; of a single step one. */
  readonly taskIds: readonly string[];
  /** True where they were there already, since an earlier attempt, or this one, added them. */
  readonly duplicate: boolean;
}

/** See `TaskContext.addStep`. */
export type AddStep = (name: string, options: AddStepOptions) => Promise<AddedSteps>;

/** Members of a group that are made at once at most: with its flow, or added by one call. */
export const MOST_MEMBERS = 10_000;
