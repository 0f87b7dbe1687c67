/** `warren types apply`: announces task types without a worker, for deploys and for fleets scaled to zero. */
import type { Command } from 'commander';
import type { Act } from './context.ts';
import { renderDuration, renderTable } from './render.ts';
import { usageError } from './cli-error.ts';

interface ApplyOptions {
  readonly tasks?: readonly string[];
  readonly codeVersion?: string;
}

/** Adds the group. */
export function addTypesCommands(program: Command, act: Act): void {
  program
    .command('types')
    .helpCommand(false)
    .description('task types')
    .command('apply')
    .description('announce the task types of modules in the database, and with them their queues')
    .option('--tasks <module...>', 'modules: paths or package names (default: worker.tasks of the configuration)')
    .option('--code-version <version>', 'version of the task code (default: worker.codeVersion of the configuration)')
    .addHelpText(
      'after',
      `
Producers validate what is submitted by what was announced last. \`warren topology apply\` then declares the queues.

Examples:
  warren types apply --tasks ./dist/examples/tasks/report-csv.js
  warren types apply --tasks ./tasks/mail.js ./tasks/image.js --code-version 1.4.0 --json`,
    )
    .action(
      act<ApplyOptions>(async (context, options) => {
        const { loadCliConfig, loadTypes, withDatabase } = await import('./installation.ts');
        const { announceTypes } = await import('../shared/tasks/announce.ts');
        const { describeTask } = await import('../shared/tasks/define-task.ts');
        const { checkMigrations, claimPrefix } = await import('../shared/postgres/migrate.ts');
        const { MIGRATIONS_DIR } = await import('../shared/tasks/backbone.ts');
        const { config } = loadCliConfig(context);
        const modules = options.tasks ?? config.worker.tasks;
        if (modules.length === 0)
          throw usageError('No module is given.', 'Name at least one with --tasks or WARREN_TASKS.');
        const types = (await loadTypes(context.io.clock, modules)).map((type) => describeTask(type));
        const version =
          options.codeVersion ?? (config.worker.codeVersion === '' ? 'unknown' : config.worker.codeVersion);
        await withDatabase(context, config, async (database) => {
          await checkMigrations(database, MIGRATIONS_DIR);
          await claimPrefix(database, config.prefix);
          await announceTypes(database, types, version);
        });
        context.printJson({ announced: types, codeVersion: version });
        context.print(
          renderTable(
            ['TYPE', 'QUEUE', 'PRI', 'TIMEOUT', 'ATTEMPTS', 'INPUT'],
            types.map(({ name, queue, priority, timeoutMs, retry, inputSchema }) => [
              name,
              queue,
              String(priority),
              renderDuration(timeoutMs),
              String(retry.maxAttempts),
              inputSchema === undefined ? 'checked by workers alone' : 'JSON Schema',
            ]),
            { paint: context.paint },
          ),
        );
      }),
    );
}
