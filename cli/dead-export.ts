/** `warren dead export`: dead letters as JSON Lines, to standard output or into a file that is there whole or not at all. */
import type { Command } from 'commander';
import type { Query } from './api.ts';
import type { Act, CommandContext } from './context.ts';
import { escapeJson, escapeText } from './escape.ts';
import { FILTER_HELP, filterOf } from './filters.ts';
import { writeWhole } from './write-whole.ts';
import type { Write } from './write-whole.ts';

const PROGRESS_EVERY_MS = 200;
const NEWLINE = 0x0a;

/** Adds the command. */
export function addExport(dead: Command, act: Act): void {
  dead
    .command('export')
    .description('write out whole dead letters as JSON Lines, newest first')
    .argument('[filter...]', 'only those that this fits; see the examples')
    .option('--output <file>', 'write there instead of to standard output; what is there is replaced at the end')
    .option('--reason <text>', 'why, for the record')
    .addHelpText(
      'after',
      `${FILTER_HELP}

Examples:
  warren dead export --output letters.jsonl
  warren dead export 'reason:timeout age:<1d' | wc -l`,
    )
    .action(
      act<{ readonly output?: string; readonly reason?: string }>(async (context, { output, reason }, ...words) => {
        const asked = { filter: filterOf(words), why: reason };
        if (output === undefined) {
          const decoder = new TextDecoder();
          await download(context, asked, async (bytes) => {
            context.io.stdout.write(escapeJson(decoder.decode(bytes, { stream: true })));
            await Promise.resolve();
          });
          return;
        }
        const letters = await writeWhole(output, async (write) => await download(context, asked, write));
        context.printJson({ file: output, letters });
        context.remark(`${letters} dead letters are in ${escapeText(output)}.\n`);
      }),
    );
}

/** Fetches the letters, and shows on a terminal how many have come. Returns their number. */
async function download(context: CommandContext, asked: Query, write: Write): Promise<number> {
  const { clock, stderr } = context.io;
  let letters = 0;
  let shownAt = clock.monotonicMs();
  const api = await context.deadLetterApi();
  try {
    await api.getLines('/v1/dead-letters/export', asked, async (bytes) => {
      for (const byte of bytes) if (byte === NEWLINE) letters += 1;
      await write(bytes);
      if (!stderr.isTTY || context.isJson || clock.monotonicMs() - shownAt < PROGRESS_EVERY_MS) return;
      shownAt = clock.monotonicMs();
      stderr.write(`\r\u001b[K${letters} dead letters`);
    });
    return letters;
  } finally {
    if (stderr.isTTY && !context.isJson) stderr.write('\r\u001b[K');
  }
}
