/** `warren ledger`: whether what was accepted is all accounted for. */
import { Option } from 'commander';
import type { Command } from 'commander';
import type { Clock } from '../shared/time/clock.ts';
import { usageError } from './cli-error.ts';
import type { Act } from './context.ts';
import { EXIT_CODES } from './exit-codes.ts';
import { renderLedger } from './ledger-view.ts';
import type { LedgerGrouping } from './ledger-view.ts';
import { doToMany, previewMany, SLICE_MS } from './many.ts';
import { instantOrDuration } from './parse.ts';
import { renderPreview } from './task-many.ts';
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
  const ledger = program
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
  addReconcile(ledger, act);
}

interface ReconcileOptions {
  readonly reason?: string;
  readonly yes?: true;
  readonly dryRun?: true;
}

function addReconcile(ledger: Command, act: Act): void {
  ledger
    .command('reconcile')
    .description('after Postgres was restored from a backup, before workers start: make every open task safe to run')
    .option('--reason <text>', 'why, for the record; required unless --dry-run')
    .option('--yes', 'do not ask')
    .option('--dry-run', 'only show how many tasks are open, and ten of them')
    .addHelpText(
      'after',
      `
What happened between the backup and now is not on record: a task that the backup shows as open may have been run since.
Each gets an entry in its history that says so, and its next attempt a number that no earlier one had, so that whoever
fences by the attempt is not taken in. What ran is freed, what waits is invited once more. Refused while a worker is alive.

Examples:
  warren ledger reconcile --dry-run
  warren ledger reconcile --reason 'restored the backup of 02:00' --yes`,
    )
    .action(
      act<ReconcileOptions>(async (context, { reason, yes, dryRun }) => {
        const api = await context.taskApi();
        const path = '/v1/ledger/reconcile';
        if (dryRun === true) {
          const preview = await previewMany(api, { path, selection: {} });
          context.printJson(preview.bytes);
          context.print(renderPreview(preview, context));
          return;
        }
        if (reason === undefined) throw usageError("Give --reason: 'restored the backup of 02:00'.");
        const counts = await doToMany(context, api, {
          path,
          selection: {},
          order: { reason, withinMs: SLICE_MS },
          isYes: yes === true,
          question: 'Lift their attempts?',
          nothing: 'No task is open: nothing is to be done.\n',
          narrow: 'try again later',
          counts: ['lifted'],
          besides: ['freed', 'invited'],
          renderPreview: (answer) => renderPreview(answer, context),
        });
        if (counts === undefined) return;
        const { lifted = 0, freed = 0, invited = 0 } = counts;
        context.printJson(counts);
        context.print(
          `${lifted} open tasks lifted; ${freed} that ran are free again; ${invited} were invited once more.\n` +
            'Workers may start now. In a few minutes `warren ledger` has compared the books.\n',
        );
      }),
    );
}
