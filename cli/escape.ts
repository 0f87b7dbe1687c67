/**
 * Makes data safe to show. Task types, errors and inputs come from anybody, and a terminal obeys what it prints: escape
 * sequences, carriage returns, and characters that turn the direction of text or cannot be seen.
 */

// C0, DEL, C1, soft hyphen, Arabic letter mark, zero-width and direction marks, line separators, direction overrides and
// isolates, byte order mark, interlinear marks, tags, lone surrogates. Source: unicode.org/reports/tr36 ("Trojan Source").
const UNSAFE =
  // oxlint-disable-next-line no-control-regex -- control characters are what is looked for
  /[\u0000-\u001f\u007f-\u009f\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]|[\u{e0000}-\u{e007f}]|\p{Surrogate}/gu;

const SHORT: ReadonlyMap<string, string> = new Map([
  ['\n', String.raw`\n`],
  ['\r', String.raw`\r`],
  ['\t', String.raw`\t`],
]);

/** One line of text in which every unsafe character is shown as an escape (`\u001b`). */
export function escapeText(text: string): string {
  return text.replaceAll(UNSAFE, (character) => SHORT.get(character) ?? escapeUnits(character));
}

/** Text of several lines: as `escapeText`, but line breaks stay, and tabs become two spaces. */
export function escapeLines(text: string): string {
  return text
    .split(/\r?\n/)
    .map((line) => escapeText(line.replaceAll('\t', '  ')))
    .join('\n');
}

/** JSON text that means the same and holds no unsafe character raw. Line breaks between members stay. */
export function escapeJson(json: string): string {
  // What is below U+0020 can stand raw only between members, where it is harmless white space.
  return json.replaceAll(UNSAFE, (character) => (character < ' ' ? character : escapeUnits(character)));
}

function escapeUnits(character: string): string {
  return Array.from({ length: character.length }, (_, at) => character.charCodeAt(at))
    .map((unit) => String.raw`\u` + unit.toString(16).padStart(4, '0'))
    .join('');
}
