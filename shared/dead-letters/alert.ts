/** An alert: what the dead-letter-handler finds and a worker delivers. The handler writes it, so that what it says stays the same. */
import { z } from 'zod';
import { storableText } from '../tasks/outcome.ts';

/** The task type that delivers an alert. What dies of it never raises one: that would go in a circle. */
export const ALERT_TYPE = 'warren.alert';

/** What there are alerts for. */
export const ALERT_KINDS = {
  new_group: 'a failure group that was not there before, or whose fault came back',
  growing_group: 'many letters of a failure group within a short time',
  oldest_letter: 'a dead letter that has been open for long',
} as const;

/** A kind of alert. */
export type AlertKind = keyof typeof ALERT_KINDS;

/** Stands for the group where an alert is about no single one. */
export const NO_GROUP = '00000000-0000-0000-0000-000000000000';

const instant = z.iso.datetime({ offset: true });
const text = z.string().max(2_000);

const group = z.object({
  id: z.guid(),
  /** What died: `task`, `refused`, `foreign`. */
  kind: text,
  type: text.nullable(),
  /** Name of the rule that makes the group, whatever types its letters have; null: their fingerprint does. */
  rule: text.nullable(),
  errorType: text.nullable(),
  /** With what varies taken out. */
  errorMessage: text.nullable(),
  state: text,
  letters: z.int(),
  openLetters: z.int(),
  firstAt: instant,
  lastAt: instant,
  queues: z.array(text).max(20),
  codeVersions: z.array(text).max(20),
});

const letter = z.object({
  id: z.uuid(),
  type: text.nullable(),
  reason: text,
  diedAt: instant,
});

/** An alert in the input of its task. What a newer handler adds is dropped by an older worker. */
export const alertSchema = z.object({
  id: z.uuid(),
  kind: z.enum(Object.keys(ALERT_KINDS) as [AlertKind, ...AlertKind[]]),
  /** The prefix of the installation: which of several it is. */
  installation: text,
  foundAt: instant,
  group: group.nullable(),
  /** Of `growing_group`: about how many letters came in how many milliseconds. */
  growth: z.object({ letters: z.int(), windowMs: z.int() }).nullable(),
  /** Of `oldest_letter`: the letter. */
  oldest: letter.nullable(),
  /** Of `oldest_letter`: all that are open, groups that are ignored left out. */
  openLetters: z.int().nullable(),
});

/** An alert. */
export type Alert = z.output<typeof alertSchema>;
/** A failure group in an alert. */
export type AlertGroup = z.output<typeof group>;

/** Input of the task: where the alert goes, and the alert. */
export const alertInput = z.object({ channel: z.string().max(100), alert: alertSchema });

/** What is said of an alert: a line, and names with values. Plain text, each line whole, to be escaped by whoever shows it. */
export interface AlertText {
  readonly title: string;
  readonly facts: readonly (readonly [name: string, value: string])[];
}

const LONGEST_VALUE = 300;

/** Puts an alert in words. */
export function describeAlert(alert: Alert): AlertText {
  const { installation, group: about, growth, oldest, openLetters, foundAt } = alert;
  const facts: (readonly [string, string | undefined])[] = [
    ['error', about === null ? undefined : errorOf(about)],
    ['letters', about === null ? undefined : `${about.letters}, ${about.openLetters} of them open`],
    ['first', about?.firstAt],
    ['last', about?.lastAt],
    ['queues', about?.queues.join(', ')],
    ['code versions', about?.codeVersions.join(', ')],
    ['failure group', about?.id],
    ['dead letter', oldest?.id],
    ['type', oldest?.type ?? undefined],
    ['reason', oldest?.reason],
    ['died', oldest?.diedAt],
    ['open letters', openLetters === null ? undefined : String(openLetters)],
    ['found', foundAt],
    ['installation', installation],
  ];
  const subject = about === null ? '' : `${about.rule ?? about.type ?? `${about.kind} messages`}: ${errorOf(about)}`;
  const titles: Readonly<Record<AlertKind, string>> = {
    new_group: `new failure of ${subject}`,
    growing_group: `${growth?.letters ?? 0} letters in ${hours(growth?.windowMs ?? 0)} of ${subject}`,
    oldest_letter: `a dead letter has been open for ${hours(ageMs(alert))}`,
  };
  return {
    title: shorten(`Warren: ${titles[alert.kind]}`, 200),
    facts: facts.flatMap(([name, value]) =>
      value === undefined || value === '' ? [] : [[name, shorten(value, LONGEST_VALUE)] as const],
    ),
  };
}

function errorOf({ errorType, errorMessage }: AlertGroup): string {
  return [errorType, errorMessage].filter((part) => part !== null && part !== '').join(': ') || 'no error given';
}

function ageMs({ oldest, foundAt }: Alert): number {
  return oldest === null ? 0 : Date.parse(foundAt) - Date.parse(oldest.diedAt);
}

function hours(ms: number): string {
  return ms < 3_600_000 ? `${Math.max(1, Math.round(ms / 60_000))} min` : `${Math.round(ms / 3_600_000)} h`;
}

/** In one line: a line break would end a header, or begin a line that was never meant. */
function shorten(value: string, most: number): string {
  return storableText(value.replaceAll(/[\p{Cc}\u2028\u2029]+/gu, ' ').trim(), most);
}
