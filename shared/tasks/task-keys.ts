/** What tasks are found by: the keys of the filter language, the same in the API, on the command line and on screens. */
import type { FilterKeys } from '../filter/filter.ts';
import type { KeyKind } from '../filter/values.ts';
import { TASK_STATES } from './state-machine.ts';

/** Each key with what its values are. */
export const TASK_KEYS = {
  state: TASK_STATES,
  type: 'name',
  queue: 'name',
  tag: 'name',
  key: 'name',
  externalId: 'name',
  publisher: 'name',
  correlation: 'name',
  priority: 'number',
  attempts: 'number',
  failures: 'number',
  age: 'age',
  accepted: 'instant',
  runAt: 'instant',
  deadline: 'instant',
  finished: 'instant',
  error: 'text',
  text: 'text',
  worker: 'uuid',
  id: 'uuid',
  input: 'json',
} as const satisfies Readonly<Record<string, KeyKind>>;

/** One of `TASK_KEYS`. */
export type TaskKey = keyof typeof TASK_KEYS;

/** The language of tasks: a word without a key is searched in the input. */
export const TASK_LANGUAGE: FilterKeys = {
  kinds: new Map<string, KeyKind>(Object.entries(TASK_KEYS)),
  bareWord: 'text',
};
