/** `warren task history`, `logs`, `once`, `forget`: what happened to a task, what it said, what it did once. */
import type { Command } from 'commander';
import { pathStep } from './api.ts';
import type { Act, CommandContext } from './context.ts';
import { escapeText } from './escape.ts';
import { renderHistory, renderLogs, renderOnceRuns } from './history-view.ts';
import { addPaging, fetchListing, printListing } from './pages.ts';
import type { PagingOptions } from './pages.ts';
import { integerIn } from './parse.ts';
import { numberAt, viewsAt } from './view.ts';

const MOST_ATTEMPTS = 2_147_483_647;
const EXAMPLE_ID = '0198f3a2-7c10-7d3e-9a4b-2f6c1d8e5b70';

/** Adds the commands to the group. */
export function addHistoryCommands(task: Command, act: Act): void {
  addHistory(task, act);
  addLogs(task, act);
  addOnce(task, act);
  addForgetOnce(task, act);
}

function addHistory(task: Command, act: Act): void {
  addPaging(
    task
      .command('history')
      .description('everything that happened to a task, oldest first, with who or what caused it')
      .argument('<id>', 'id of the task'),
    'entries',
  )
    .addHelpText(
      'after',
      `
Examples:
  warren task history ${EXAMPLE_ID}
  warren task history ${EXAMPLE_ID} --all --json`,
    )
    .action(
      act<PagingOptions>(async (context, { all, ...query }, id) => {
        const path = `/v1/tasks/${pathStep(id)}/history`;
        const listing = await fetchListing(await context.taskApi(), path, { query, isAll: all === true });
        printListing(context, listing, (items) => renderHistory(items, context));
      }),
    );
}

function addLogs(task: Command, act: Act): void {
  task
    .command('logs')
    .description('what an attempt of a task logged: the first and the last of its lines')
    .argument('<id>', 'id of the task')
    .option('--attempt <number>', 'which attempt (default: the last)', integerIn(1, MOST_ATTEMPTS))
    .addHelpText(
      'after',
      `
Lines are kept of attempts that did not succeed, and of all attempts of task types with keepLogs.

Examples:
  warren task logs ${EXAMPLE_ID}
  warren task logs ${EXAMPLE_ID} --attempt 2 --json`,
    )
    .action(
      act<{ readonly attempt?: number }>(async (context, options, id) => {
        const attempt = options.attempt ?? (await lastAttempt(context, id));
        if (attempt === 0) {
          context.printJson({ attempt: 0, lines: [] });
          context.remark('The task has not started yet.\n');
          return;
        }
        const api = await context.taskApi();
        const answer = await api.get(`/v1/tasks/${pathStep(id)}/attempts/${attempt}/logs`);
        context.printJson(answer.bytes);
        const { text, remark } = renderLogs(answer.value, context.paint);
        if (text !== '') context.print(text);
        if (remark !== undefined) context.remark(remark);
      }),
    );
}

function addOnce(task: Command, act: Act): void {
  task
    .command('once')
    .description('what a task did once (ctx.once), and what was cut in the middle of it')
    .argument('<id>', 'id of the task')
    .addHelpText('after', `\nExamples:\n  warren task once ${EXAMPLE_ID}`)
    .action(
      act(async (context, _options, id) => {
        const api = await context.taskApi();
        const answer = await api.get(`/v1/tasks/${pathStep(id)}/once`);
        context.printJson(answer.bytes);
        const items = viewsAt(answer.value, 'items');
        if (items.length === 0) context.remark('Nothing found.\n');
        else context.print(renderOnceRuns(items, context));
      }),
    );
}

function addForgetOnce(task: Command, act: Act): void {
  task
    .command('forget')
    .description('forget what a task did once, so that its next attempt does it again')
    .argument('<id>', 'id of the task')
    .argument('<key>', 'the key that was given to ctx.once')
    .requiredOption('--reason <text>', 'why, for the record')
    .addHelpText(
      'after',
      `
Find out first whether it was done: after this the task does it again when it runs.

Examples:
  warren task forget ${EXAMPLE_ID} charge --reason 'the bank has no such charge'`,
    )
    .action(
      act<{ readonly reason: string }>(async (context, { reason }, id, key) => {
        const api = await context.taskApi();
        const answer = await api.post(`/v1/tasks/${pathStep(id)}/once/forget`, JSON.stringify({ key, reason }));
        context.printJson(answer.bytes);
        context.print(`Forgotten. The next attempt does ${escapeText(String(key))} again.\n`);
      }),
    );
}

async function lastAttempt(context: CommandContext, id: string): Promise<number> {
  const api = await context.taskApi();
  return numberAt((await api.get(`/v1/tasks/${pathStep(id)}`)).value, 'attempt') ?? 0;
}
