/**
 * What makes two deaths the same: type, error, the message without what differs from one time to the next, and the place in
 * the task author's code. Pure, and the same in every process, so that replicas agree without asking each other.
 */
import { createHash } from 'node:crypto';
import type { LetterKind } from './reason.ts';

/** What a fingerprint is taken of. */
export interface Failure {
  readonly kind: LetterKind;
  /** Task type, or of a foreign letter its queue. */
  readonly type: string | null;
  readonly reason: string;
  readonly errorType: string | null;
  readonly errorCode: string | null;
  readonly errorMessage: string | null;
  readonly errorStack: string | null;
}

/** A fingerprint with what it was made of, as a failure group shows it. */
export interface Fingerprint {
  /** A UUIDv8 (RFC 9562): the first 122 bits of a SHA-256. It is the id of the failure group. */
  readonly id: string;
  /** Name of the error's type; where there is none, its code, or the reason. */
  readonly errorType: string;
  /** The message without ids, numbers, times, quoted text, addresses and paths; `null` where there is none. */
  readonly message: string | null;
  /** Function and file of the top frame of code that is no library's; `null` where the stack has none. */
  readonly frame: string | null;
}

/** Characters of a message that count. */
const MESSAGE_LENGTH = 300;
/** Lines of a stack that are looked at. */
const STACK_LINES = 60;

/** Takes the fingerprint of a failure. `rule`: name of a rule that says what it belongs to, whatever else it is. */
export function fingerprintOf(failure: Failure, rule?: string): Fingerprint {
  const errorType = failure.errorType ?? failure.errorCode ?? failure.reason;
  const message = failure.errorMessage === null ? null : generalize(failure.errorMessage);
  const frame = failure.errorStack === null ? null : topFrame(failure.errorStack);
  const parts = rule === undefined ? [failure.kind, failure.type, errorType, message, frame] : ['rule', rule];
  return { id: idOf(parts), errorType, message, frame };
}

/** In this order: what is longest and surest first. Each pattern is linear in the length of the text. */
const VARIABLE_PARTS: readonly (readonly [pattern: RegExp, name: string])[] = [
  [/\b[a-z][a-z0-9+.-]{1,15}:\/\/[^\s"'`<>)\]]+/gi, '<url>'],
  [/[\w.+-]{1,64}@[\w-]{1,64}(?:\.[\w-]{1,64}){1,4}/g, '<address>'],
  [/\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b/gi, '<id>'],
  [/\b\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d(?:[.,]\d{1,9})?)?)?(?:Z|[+-]\d\d:?\d\d)?/g, '<time>'],
  [/\b\d\d:\d\d:\d\d(?:[.,]\d{1,9})?\b/g, '<time>'],
  [/"[^"\n]{0,500}"|`[^`\n]{0,500}`|(?<![\p{L}\p{N}])'[^'\n]{0,500}'(?![\p{L}\p{N}])|“[^”\n]{0,500}”/gu, '<text>'],
  [/\b\d{1,3}(?:\.\d{1,3}){3}(?::\d{1,5})?\b/g, '<address>'],
  [/\[?[0-9a-f]{0,4}(?::[0-9a-f]{0,4}){3,7}\]?(?::\d{1,5})?/gi, '<address>'],
  [/\b[a-z]:\\[^\s:*?"<>|]+/gi, '<path>'],
  [/(?<![\w<])(?:~|[\w.@%+-]{0,64})(?:\/[\w.@%+-]+){2,}\/?/g, '<path>'],
  // A name with a space in it parts a path.
  [/<path>(?: <path>)+/g, '<path>'],
  [/\b0x[0-9a-f]+\b/gi, '<id>'],
  [/\b(?=[a-f]{0,39}\d)(?=\d{0,39}[a-f])[0-9a-f]{8,128}\b/gi, '<id>'],
  [/\b(?=[A-Za-z_-]{0,63}\d)(?=[\w-]{20,128}(?![\w-]))[\w-]+/g, '<id>'],
  [/[+-]?\d+(?:[.,]\d+)*(?:e[+-]?\d+)?/gi, '<n>'],
];

/** A message without its variable parts. */
export function generalize(message: string): string {
  let text = message.slice(0, MESSAGE_LENGTH * 4);
  for (const [pattern, name] of VARIABLE_PARTS) text = text.replaceAll(pattern, name);
  return text.replaceAll(/\s+/g, ' ').trim().slice(0, MESSAGE_LENGTH);
}

/**
 * `function@folder/file` of the first frame that is neither Node's nor a package's; `null` where none can be read. Without
 * line and column: the next deployment moves them, and the failure is the same.
 */
export function topFrame(stack: string): string | null {
  for (const line of stack.split('\n', STACK_LINES)) {
    const frame = readFrame(line);
    if (frame !== undefined) return frame;
  }
  return null;
}

/** One file with Warren's worker and its packages (decision 0027): a frame there is a package's, since those of Warren carry their sources' names. */
const PROGRAM = /[/\\]dist[/\\]services[/\\]worker[/\\](?:main|thread-main)\.js$/;

/** A frame as V8 prints it. Source: v8.dev/docs/stack-trace-api. */
function readFrame(line: string): string | undefined {
  const [, called = '', place = ''] =
    /^\s+at (?:async )?(?:(.{1,200}?) \()?([^()]{1,1000}?)(?::\d+){0,2}\)?$/.exec(line.slice(0, 1_300)) ?? [];
  if (place === '' || /^(?:node:|native$|<anonymous>$|index \d+$)/.test(place)) return undefined;
  if (/[/\\]node_modules[/\\]/.test(place) || PROGRAM.test(place)) return undefined;
  const steps = place.split(/[/\\]/).slice(-2);
  const name = called.replace(/^(?:new |Object\.|Module\.)/, '').replace(/ \[as .*\]$/, '');
  return `${/^(?:<anonymous>)?$/.test(name) ? '' : name}@${steps.join('/')}`;
}

function idOf(parts: readonly (string | null)[]): string {
  const bytes = createHash('sha256').update(JSON.stringify(parts)).digest().subarray(0, 16);
  bytes.writeUInt8((bytes.readUInt8(6) & 0x0f) | 0x80, 6);
  bytes.writeUInt8((bytes.readUInt8(8) & 0x3f) | 0x80, 8);
  const hex = bytes.toString('hex');
  return [hex.slice(0, 8), hex.slice(8, 12), hex.slice(12, 16), hex.slice(16, 20), hex.slice(20)].join('-');
}
