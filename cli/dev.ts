/** `warren dev`: the whole fleet in one process, for trying things out. */
import type { Command } from 'commander';
import type { Act } from './context.ts';

/** Options of `dev`. */
export interface DevOptions {
  readonly tasks?: readonly string[];
  readonly queues?: string;
  readonly migrate: boolean;
}

/** Adds the command. */
export function addDevCommand(program: Command, act: Act): void {
  program
    .command('dev')
    .description('run producer, worker and dead-letter-handler in this one process, until Ctrl-C')
    .option('--tasks <module...>', 'modules of task types to load (default: worker.tasks of the configuration)')
    .option(
      '--queues <queues>',
      'queues of the worker with their concurrency, high:8,low:2 (default: those of its types)',
    )
    .option('--no-migrate', 'do not apply missing migrations first')
    .addHelpText(
      'after',
      `
Needs RabbitMQ (AMQP_URL) and Postgres (DATABASE_URL). Prints the URLs once all is up; logs go to stderr, from
warnings on unless WARREN_LOG_LEVEL says otherwise.

Examples:
  warren dev --tasks ./dist/examples/tasks/report-csv.js
  warren dev --tasks ./tasks/mail.js --queues default:10,high:4`,
    )
    .action(
      act<DevOptions>(async (context, options) => {
        const { runDevFleet } = await import('./dev-fleet.ts');
        await runDevFleet(context, options);
      }),
    );
}
