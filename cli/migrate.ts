/** `warren migrate`: brings the database to the state that this program knows, and makes it belong to the prefix. */
import type { Command } from 'commander';
import type { Act, CommandContext } from './context.ts';
import { parseDuration } from './parse.ts';

/** Milliseconds between two looks for migrations that another applies. */
const LOOK_EVERY_MS = 1_000;

/** Adds the command. */
export function addMigrateCommand(program: Command, act: Act): void {
  program
    .command('migrate')
    .description('apply missing migrations to the database; two at once are harmless')
    .option(
      '--wait <duration>',
      'apply nothing: wait until the database has every migration that this program knows',
      parseDuration,
    )
    .addHelpText(
      'after',
      `
Examples:
  warren migrate
  DATABASE_URL=postgres://warren@127.0.0.1:5432/warren warren migrate --json
  warren migrate --wait 10m    before a service starts, while another migrates`,
    )
    .action(
      act<{ readonly wait?: number }>(async (context, { wait }) => {
        if (wait !== undefined) return await waitForMigrations(context, wait);
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

/** Returns once nothing is missing. Throws what was wrong last where that takes longer, and at once what waiting cannot mend. */
async function waitForMigrations(context: CommandContext, withinMs: number): Promise<void> {
  const { loadCliConfig, withDatabase } = await import('./installation.ts');
  const { MIGRATIONS_DIR } = await import('../shared/tasks/backbone.ts');
  const { checkMigrations } = await import('../shared/postgres/migrate.ts');
  const { isWarrenError } = await import('../shared/errors/warren-error.ts');
  const { config } = loadCliConfig(context);
  const { clock, interrupted } = context.io;
  const untilMs = clock.monotonicMs() + withinMs;
  for (let round = 0; ; round += 1) {
    try {
      await withDatabase(context, config, async (database) => await checkMigrations(database, MIGRATIONS_DIR));
      context.printJson({ upToDate: true });
      context.print('The database is up to date.\n');
      return;
    } catch (thrown) {
      const canMend =
        isWarrenError(thrown, 'database-unavailable') ||
        (isWarrenError(thrown, 'database-outdated') && thrown.facts['missing'] !== undefined);
      if (!canMend || interrupted.aborted || clock.monotonicMs() >= untilMs) throw thrown;
      if (round === 0) context.remark(`waiting: ${thrown.message}\n`);
      await clock.sleep(LOOK_EVERY_MS, interrupted);
    }
  }
}
