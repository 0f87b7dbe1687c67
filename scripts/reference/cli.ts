/** `docs/reference/cli.md`: the help of every command, and the help files that a test compares. */
import { helpTexts } from '../../cli/help-texts.ts';
import { systemClock } from '../../shared/time/clock.ts';
import { fenced, page } from './markdown.ts';

/** Help of each command by file name, as `test/golden/help/` keeps it. */
export async function renderHelpTexts(): Promise<ReadonlyMap<string, string>> {
  return await helpTexts({
    readStdin: async () => await Promise.resolve(Buffer.alloc(0)),
    env: {},
    clock: systemClock,
    random: () => 0,
    fetch: globalThis.fetch,
    interrupted: new AbortController().signal,
  });
}

/** Prints the page. What all commands share is shown once, with `warren` itself. */
export function renderCli(texts: ReadonlyMap<string, string>): string {
  return page(
    'Command line',
    'For whoever drives Warren by `warren`. In a clone it is `node dist/cli/main.js`, after `make build`.',
    [...texts].map(([file, text]) => {
      const words = commandOf(text, file);
      const shown = words === 'warren' ? text : withoutGlobalOptions(text);
      return `## ${words}\n\n${fenced('text', shown)}`;
    }),
  );
}

/** The words of a command: from its usage line, since a file name does not say where a dash was. */
function commandOf(text: string, file: string): string {
  return /^Usage: (warren(?: [a-z-]+)*)/.exec(text)?.[1] ?? file.replace(/\.txt$/, '').replaceAll('-', ' ');
}

function withoutGlobalOptions(text: string): string {
  return text.replace(/\nGlobal Options:\n(?: .*\n)+/, '');
}
