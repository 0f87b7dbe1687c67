/** `warren types apply`: announces task types without a worker, for deploys and for fleets scaled to zero. */
import type { Command } from 'commander';
import type { Change, CodeChange } from '../shared/schedules/store.ts';
import type { Act, CommandContext } from './context.ts';
import { escapeText } from './escape.ts';
import { renderDuration, renderTable } from './render.ts';
import type { Paint } from './render.ts';
import { usageError } from './cli-error.ts';

interface ApplyOptions {
  readonly tasks?: readonly string[];
  readonly codeVersion?: string;
  readonly dryRun?: true;
  readonly prune?: true;
}

/** Adds the group. */
export function addTypesCommands(program: Command, act: Act): void {
  program
    .command('types')
    .helpCommand(false)
    .description('task types')
    .command('apply')
    .description('announce the task types of modules in the database, with their queues and schedules')
    .option('--tasks <module...>', 'modules: paths or package names (default: worker.tasks of the configuration)')
    .option('--code-version <version>', 'version of the task code (default: worker.codeVersion of the configuration)')
    .option('--dry-run', 'only show what would change of the schedules')
    .option('--prune', 'take schedules away that were defined in code and are in none of the modules any more')
    .addHelpText(
      'after',
      `
Producers validate what is submitted by what was announced last. \`warren topology apply\` then declares the queues.
Schedules that the modules define are made, or changed; those that nobody defines any more stay, unless --prune is given.

Examples:
  warren types apply --tasks ./dist/examples/tasks/report-csv.js
  warren types apply --tasks ./tasks/mail.js ./tasks/image.js --code-version 1.4.0 --json`,
    )
    .action(
      act<ApplyOptions>(async (context, options) => {
        const { loadCliConfig, loadModules, withDatabase } = await import('./installation.ts');
        const { announceTypes } = await import('../shared/tasks/announce.ts');
        const { describeTask } = await import('../shared/tasks/define-task.ts');
        const { checkMigrations, claimPrefix } = await import('../shared/postgres/migrate.ts');
        const { MIGRATIONS_DIR } = await import('../shared/tasks/backbone.ts');
        const { applyChecked } = await import('./apply-schedules.ts');
        const { config } = loadCliConfig(context);
        const modules = options.tasks ?? config.worker.tasks;
        if (modules.length === 0)
          throw usageError('No module is given.', 'Name at least one with --tasks or WARREN_TASKS.');
        const registry = await loadModules(context.io.clock, modules);
        const types = registry.all().map((type) => describeTask(type));
        const version =
          options.codeVersion ?? (config.worker.codeVersion === '' ? 'unknown' : config.worker.codeVersion);
        const isDryRun = options.dryRun === true;
        const schedules = await withDatabase(context, config, async (database) => {
          await checkMigrations(database, MIGRATIONS_DIR);
          await claimPrefix(database, config.prefix);
          if (!isDryRun) await announceTypes(database, types, version);
          const asked = { schedules: registry.schedules(), isDryRun, isPruned: options.prune === true };
          return await applyChecked(context, { database, config, ...asked });
        });
        context.printJson({ announced: isDryRun ? [] : types, codeVersion: version, schedules });
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
        context.print(renderChanges(schedules, context));
        if (isDryRun) context.remark('Nothing was changed.\n');
        if (schedules.some(({ change }) => change === 'gone'))
          context.remark('Schedules that no module names any more stay; --prune takes them away.\n');
      }),
    );
}

const SIGNS: Readonly<Record<Change, { readonly sign: string; readonly paint: Paint | undefined }>> = {
  created: { sign: '+', paint: 'green' },
  changed: { sign: '~', paint: 'yellow' },
  unchanged: { sign: '=', paint: 'dim' },
  gone: { sign: '?', paint: 'yellow' },
  removed: { sign: '-', paint: 'red' },
};

/** A line for each schedule, and under a changed one its texts. */
function renderChanges(changes: readonly CodeChange[], { paint }: Pick<CommandContext, 'paint'>): string {
  if (changes.length === 0) return '';
  const lines = changes.flatMap(({ name, change, before, after }) => {
    const { sign, paint: colour } = SIGNS[change];
    const line = paint(colour, escapeText(`${sign} schedule ${name} ${change}`));
    if (change !== 'changed') return [line];
    return [line, paint('red', escapeText(`  - ${before ?? ''}`)), paint('green', escapeText(`  + ${after ?? ''}`))];
  });
  return `\n${lines.join('\n')}\n`;
}
