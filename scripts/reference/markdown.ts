/** The few forms of Markdown that the reference pages are made of. */

/** What every printed page says below its title, so that nobody edits it by hand. */
export const PRINTED = 'Printed from the code by `make golden`; a test compares.';

/** A page: a title, whom it is for, and its blocks, with an empty line between them. */
export function page(title: string, intro: string, blocks: readonly string[]): string {
  return `${[`# ${title}`, `${intro} ${PRINTED}`, ...blocks].join('\n\n')}\n`;
}

/** A table. Cells may hold a pipe. */
export function table(head: readonly string[], rows: readonly (readonly string[])[]): string {
  const line = (cells: readonly string[]): string =>
    `| ${cells.map((cell) => cell.replaceAll('|', '\\|')).join(' | ')} |`;
  return [line(head), `|${'---|'.repeat(head.length)}`, ...rows.map((row) => line(row))].join('\n');
}

/** A fenced block. */
export function fenced(language: string, text: string): string {
  return `\`\`\`${language}\n${text.trimEnd()}\n\`\`\``;
}

/** Code in a line. */
export function code(text: string): string {
  return `\`${text}\``;
}
