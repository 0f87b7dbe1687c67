/** Reads answers of the APIs, which may come from a newer service: what is missing or of another kind is `undefined`. */
import { parseExact, sliceMember } from '../shared/tasks/json.ts';
import type { ApiAnswer } from './api.ts';

/** An object of an answer. */
export type View = Readonly<Record<string, unknown>>;

/** The text under `name`. */
export function textAt(view: View, name: string): string | undefined {
  const value = view[name];
  return typeof value === 'string' ? value : undefined;
}

/** The number under `name`. */
export function numberAt(view: View, name: string): number | undefined {
  const value = view[name];
  return typeof value === 'number' ? value : undefined;
}

/** The object under `name`. */
export function viewAt(view: View, name: string): View | undefined {
  const value = view[name];
  return isView(value) ? value : undefined;
}

/** The objects in the list under `name`; an empty list where there is none. */
export function viewsAt(view: View, name: string): readonly View[] {
  const value = view[name];
  return Array.isArray(value) ? value.filter((item) => isView(item)) : [];
}

/** The texts in the list under `name`, or `undefined`. */
export function textsAt(view: View, name: string): readonly string[] | undefined {
  const value = view[name];
  return Array.isArray(value) ? value.filter((item) => typeof item === 'string') : undefined;
}

/** JSON text of the member `name` of an answer, as it came; `undefined` where there is none. */
export function rawMember({ bytes, value }: ApiAnswer, name: string): string | undefined {
  if (value[name] === undefined) return undefined;
  const parsed = parseExact(bytes, { maxDepth: 512, maxBytes: Number.MAX_SAFE_INTEGER });
  const span = parsed.kind === 'ok' ? parsed.members.get(name) : undefined;
  return span === undefined ? JSON.stringify(value[name]) : sliceMember(bytes, span).toString('utf8');
}

function isView(value: unknown): value is View {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}
