/** `warren flow results`: what the members of a group, or a single step, gave. */
import type { Command } from 'commander';
import { pathStep } from './api.ts';
import type { Act, CommandContext } from './context.ts';
import { addPaging, fetchPages, printPages } from './pages.ts';
import type { PagingOptions } from './pages.ts';
import { renderTable, stateCell } from './render.ts';
import { shortenText } from './task-view.ts';
import { numberAt, textAt } from './view.ts';
import type { View } from './view.ts';

/** Adds the command. */
export function addFlowResults(flow: Command, act: Act): void {
  addPaging(
    flow
      .command('results')
      .description('what the members of a group gave, or a single step, in their order')
      .argument('<id>', 'id of the flow')
      .argument('<step>', 'name of the step, or of the group'),
    'results',
  )
    .addHelpText(
      'after',
      `
A page ends early where its results have about a MiB together.

Examples:
  warren flow results 0198f3a2-7c10-7d3e-9a4b-2f6c1d8e5b70 encode
  warren flow results 0198f3a2-7c10-7d3e-9a4b-2f6c1d8e5b70 encode --all --json | jq '.items[].result'`,
    )
    .action(
      act<PagingOptions>(async (context, { all, ...query }, id, step) => {
        const path = `/v1/flows/${pathStep(id)}/steps/${pathStep(step ?? '')}/results`;
        const pages = fetchPages(await context.taskApi(), path, { query: { ...query }, isAll: all === true });
        await printPages(context, pages, (items) => renderResults(items, context));
      }),
    );
}

function renderResults(items: readonly View[], { io, paint }: Pick<CommandContext, 'io' | 'paint'>): string {
  return renderTable(
    ['MEMBER', 'TASK', 'STATE', 'RESULT'],
    items.map((item) => [
      String(numberAt(item, 'member') ?? ''),
      textAt(item, 'taskId') ?? '',
      stateCell(textAt(item, 'state') ?? 'deleted'),
      Object.hasOwn(item, 'result') ? (shortenText(JSON.stringify(item['result'])) ?? '') : '',
    ]),
    { paint, columns: io.stdout.columns },
  );
}
