/** Parsers of option values. Each throws commander's InvalidArgumentError, which becomes exit 2 and names the option. */
import { InvalidArgumentError } from 'commander';
import { durationMs } from '../shared/time/duration.ts';

const LONGEST_MS = 31_536_000_000_000;

/** Milliseconds of `250ms`, `10s`, `1.5m`, `2h`, `1d`, or of several in a row: `1h30m`. A bare 0 is allowed. */
export function parseDuration(text: string): number {
  if (text === '0') return 0;
  const ms = durationMs(text);
  if (ms === undefined) {
    throw new InvalidArgumentError('A duration is a number with a unit: 250ms, 10s, 5m, 2h, 1d.');
  }
  if (ms > LONGEST_MS) throw new InvalidArgumentError('That is longer than 1000 years.');
  return ms;
}

/** An ISO 8601 instant with a zone, as UTC text. */
export function parseInstant(text: string): string {
  const isComplete = /^\d{4}-\d\d-\d\d([T ]\d\d:\d\d(:\d\d(\.\d+)?)?(Z|[+-]\d\d:?\d\d))?$/i.test(text);
  const ms = isComplete ? Date.parse(text.replace(' ', 'T')) : Number.NaN;
  if (Number.isNaN(ms)) {
    throw new InvalidArgumentError('An instant is ISO 8601 with a zone: 2030-01-31T18:00:00Z, 2030-01-31T18:00+02:00.');
  }
  return new Date(ms).toISOString();
}

/** An instant, or a duration that is counted from `now()`; `past` counts it back. */
export function instantOrDuration(now: () => Date, direction: 'ahead' | 'past'): (text: string) => string {
  return (text) => {
    if (!/^\d/.test(text)) {
      throw new InvalidArgumentError(
        'It is an instant with a zone (2030-01-31T18:00:00Z) or a duration (10s, 5m, 2h, 7d).',
      );
    }
    if (!/^\d+(\.\d+)?(ms|s|m|h|d)/.test(text)) return parseInstant(text);
    const ms = parseDuration(text);
    return new Date(now().getTime() + (direction === 'ahead' ? ms : -ms)).toISOString();
  };
}

/** An integer from `least` to `most`, written plainly. */
export function integerIn(least: number, most: number): (text: string) => number {
  return (text) => {
    const value = /^-?\d{1,15}$/.test(text) ? Number(text) : Number.NaN;
    if (!(value >= least && value <= most)) {
      throw new InvalidArgumentError(`It must be an integer from ${least} to ${most}.`);
    }
    return value;
  };
}

/** Collects an option that may be given more than once. */
export function collect(value: string, before: readonly string[] | undefined): readonly string[] {
  return [...(before ?? []), value];
}

/** Collects words of a closed set from an option that may be given more than once, or with commas. */
export function oneOf(
  words: readonly string[],
): (text: string, before: readonly string[] | undefined) => readonly string[] {
  return (text, before) => {
    const given = text.split(',');
    const wrong = given.find((word) => !words.includes(word));
    if (wrong !== undefined) throw new InvalidArgumentError(`Allowed choices are ${words.join(', ')}.`);
    return [...(before ?? []), ...given];
  };
}

/** One word of a closed set. */
export function choiceOf(words: readonly string[]): (text: string) => string {
  return (text) => {
    if (!words.includes(text)) throw new InvalidArgumentError(`Allowed choices are ${words.join(', ')}.`);
    return text;
  };
}

/** Where a letter goes. */
export interface Destination {
  readonly exchange: string;
  readonly routingKey: string;
}

/** `exchange/routing-key`; the routing key may hold slashes. */
export function parseDestination(text: string): Destination {
  const at = text.indexOf('/');
  if (at < 0) throw new InvalidArgumentError('A destination is exchange/routing-key, or /queue.');
  return { exchange: text.slice(0, at), routingKey: text.slice(at + 1) };
}

/** Collects `acme=3` from an option that may be given more than once: a key, which may hold `=` itself, and a number from 1 to 100. */
export function weightOf(
  text: string,
  before: readonly (readonly [string, number])[] | undefined,
): readonly (readonly [string, number])[] {
  const [, key, tasks] = /^(.*)=([^=]*)$/s.exec(text) ?? [];
  if (key === undefined || tasks === undefined)
    throw new InvalidArgumentError('It must be a key and a number: acme=3.');
  return [...(before ?? []), [key, integerIn(1, 100)(tasks)]];
}
