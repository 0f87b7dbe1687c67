/** `warren migrate`: brings the database to the state that this program knows, and makes it belong to the prefix. */
import type { Command } from 'commander';
import type { Act } from './context.ts';

/** Adds the command. */
export function addMigrateCommand(program: Command, act: Act): void {
  program
    .command('migrate')
    .description('apply missing migrations to the database; two at once are harmless')
    .addHelpText(
      'after',
      `
Examples:
  warren migrate
  DATABASE_URL=postgres://warren@127.0.0.1:5432/warren warren migrate --json`,
    )
    .action(
      act(async (context) => {
        const { loadCliConfig, withDatabase } = await import('./installation.ts');
        const { MIGRATIONS_DIR } = await import('../shared/tasks/backbone.ts');
        const { claimPrefix, migrate } = await import('../shared/postgres/migrate.ts');
        const { silentLogger } = await import('../shared/observability/silent-log.ts');
        const { config } = loadCliConfig(context);
        const { applied } = await withDatabase(context, config, async (database) => {
          const done = await migrate(database, { dir: MIGRATIONS_DIR, log: silentLogger });
          await claimPrefix(database, config.prefix);
          return done;
        });
        context.printJson({ applied, prefix: config.prefix });
        for (const name of applied) context.print(`applied ${name}\n`);
        if (applied.length === 0) context.print('Nothing to do: the database is up to date.\n');
      }),
    );
}
