/** Results of other steps, as a handler reads them. */

/** What part of each result is wanted. */
export interface StepResultsOptions {
  /** RFC 6901 pointer into each result, such as `/user/id`; what is not there is null. Default: the whole result. */
  readonly path?: string;
}

/** See `TaskContext.stepResults`. */
export type StepResults = <Result = unknown>(
  name: string,
  options?: StepResultsOptions,
) => AsyncIterable<Result | null>;
