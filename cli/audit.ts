/** `warren audit …`: who did what. */
import type { Command } from 'commander';
import type { Clock } from '../shared/time/clock.ts';
import type { Act, CommandContext } from './context.ts';
import { addPaging, fetchListing, printListing } from './pages.ts';
import type { PagingOptions } from './pages.ts';
import { instantOrDuration } from './parse.ts';
import { renderAge, renderTable } from './render.ts';
import { textAt, viewAt } from './view.ts';
import type { View } from './view.ts';

interface ListOptions extends PagingOptions {
  readonly target?: string;
  readonly actor?: string;
  readonly action?: string;
  readonly after?: string;
  readonly before?: string;
}

/** Adds the group. */
export function addAuditCommands(program: Command, act: Act, clock: Clock): void {
  const past = instantOrDuration(() => clock.now(), 'past');
  addPaging(
    program
      .command('audit')
      .helpCommand(false)
      .description('look up who did what, when, why and from where')
      .command('list')
      .description('list what was done, newest first')
      .option('--target <id>', 'only with this dead letter, task or replay')
      .option('--actor <name>', 'only by this token; local is a program of the same machine without one')
      .option('--action <action>', 'only this, such as dead-letter.replay, dead-letter.discard or task.cancel')
      .option('--after <when>', 'done after this instant, or within this duration: 2h', past)
      .option('--before <when>', 'done before this instant, or longer ago than this duration', past),
    'lines',
  )
    .addHelpText(
      'after',
      `
Every line was written in the transaction of the act itself; no line can be changed or removed. --json shows all of it.

Examples:
  warren audit list --after 1d
  warren audit list --actor ops --action dead-letter.discard --all --json`,
    )
    .action(
      act<ListOptions>(async (context, { all, ...query }) => {
        const listing = await fetchListing(await context.deadLetterApi(), '/v1/audit', {
          query: { ...query },
          isAll: all === true,
        });
        printListing(context, listing, (items) => renderAudit(items, context));
      }),
    );
}

function renderAudit(lines: readonly View[], { io, paint }: CommandContext): string {
  return renderTable(
    ['DONE', 'ACTOR', 'FROM', 'ACTION', 'TARGET', 'REASON'],
    lines.map((line) => [
      renderAge(textAt(line, 'at') ?? '', io.clock.now()),
      textAt(line, 'actor') ?? '',
      textAt(line, 'address') ?? '',
      textAt(line, 'action') ?? '',
      textAt(line, 'target') ?? '',
      textAt(viewAt(line, 'detail') ?? {}, 'reason') ?? '',
    ]),
    { paint, columns: io.stdout.columns },
  );
}
