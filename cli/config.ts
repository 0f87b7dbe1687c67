/** `warren config print`: the configuration in force, and where each value comes from. */
import type { Command } from 'commander';
import type { Act } from './context.ts';
import { renderTable } from './render.ts';

/** Adds the group. */
export function addConfigCommands(program: Command, act: Act): void {
  program
    .command('config')
    .helpCommand(false)
    .description('the configuration')
    .command('print')
    .description('print every setting with its effective value and its source; secrets are masked')
    .option('--changed', 'only what is not at its default')
    .addHelpText(
      'after',
      '\nExamples:\n  warren config print --changed\n  warren config print --config warren.json --json',
    )
    .action(
      act<{ readonly changed?: true }>(async (context, { changed }) => {
        const { loadConfig } = await import('../shared/config/load.ts');
        const { describeConfig } = await import('../shared/config/print.ts');
        const loaded = loadConfig({ user: 'cli', file: context.options.config, env: context.io.env });
        const settings = describeConfig(loaded).filter(({ source }) => changed !== true || source !== 'default');
        context.printJson({ settings });
        const rows = settings.map(({ path, value, source }) => [
          path,
          { text: source, paint: source === 'default' ? ('dim' as const) : ('green' as const) },
          typeof value === 'string' ? value : JSON.stringify(value),
        ]);
        // Not cut at the line's end: values are what was asked for.
        context.print(renderTable(['SETTING', 'SOURCE', 'VALUE'], rows, { paint: context.paint }));
      }),
    );
}
