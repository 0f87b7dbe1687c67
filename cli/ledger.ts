/** `warren ledger`: whether what was accepted is all accounted for. */
import { Option } from 'commander';
import type { Command } from 'commander';
import type { Clock } from '../shared/time/clock.ts';
import type { Act } from './context.ts';
import { EXIT_CODES } from './exit-codes.ts';
import { renderLedger } from './ledger-view.ts';
import type { LedgerGrouping } from './ledger-view.ts';
import { instantOrDuration } from './parse.ts';
import { numberAt, viewAt } from './view.ts';

interface LedgerOptions {
  readonly type?: string;
  readonly from?: string;
  readonly to?: string;
  readonly by?: LedgerGrouping;
}

/** Adds the command. */
export function addLedgerCommand(program: Command, act: Act, clock: Clock): void {
  const past = instantOrDuration(() => clock.now(), 'past');
  program
    .command('ledger')
    .description('show the books: accepted = succeeded + dead + cancelled + expired + in progress')
    .option('--type <type>', 'only this task type')
    .option(
      '--from <when>',
      'from this hour on: an instant, or a duration back from now (default: 24h before --to)',
      past,
    )
    .option('--to <when>', 'up to this: an instant, or a duration back from now (default: now)', past)
    .addOption(new Option('--by <what>', 'a line for each of these only').choices(['hour', 'type']))
    .addHelpText(
      'after',
      `
An hour is the one in which the tasks were accepted, in UTC. Producers compare the tasks themselves with these counts: a
difference says of how many tasks, at the least, row or count is wrong. Exit code 1 where there is any.

Examples:
  warren ledger
  warren ledger --from 7d --by type
  warren ledger --type report.csv --from 2030-01-31T00:00:00Z --to 2030-02-01T00:00:00Z --json`,
    )
    .action(
      act<LedgerOptions>(async (context, { by, ...query }) => {
        const api = await context.taskApi();
        const answer = await api.get('/v1/ledger', query);
        context.printJson(answer.bytes);
        context.print(renderLedger(answer.value, by, context));
        const difference = numberAt(viewAt(answer.value, 'totals') ?? {}, 'difference') ?? 0;
        if (difference > 0) context.exitWith(EXIT_CODES.failed);
      }),
    );
}
