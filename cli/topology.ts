/** `warren topology apply`: declares exchanges, queues and bindings on the broker. */
import type { Command } from 'commander';
import type { Act } from './context.ts';
import { describeDrift } from './drift.ts';
import { EXIT_CODES } from './exit-codes.ts';
import { escapeText } from './escape.ts';

/** Adds the group. */
export function addTopologyCommands(program: Command, act: Act): void {
  program
    .command('topology')
    .helpCommand(false)
    .description('exchanges and queues on the broker')
    .command('apply')
    .description('declare what is missing; what exists is kept as it is, and differences are exit code 1')
    .option('--queues <names>', 'further queues, separated by commas', (text: string) => text.split(','))
    .addHelpText('after', '\nExamples:\n  warren topology apply\n  warren topology apply --queues high,low --json')
    .action(
      act<{ readonly queues?: readonly string[] }>(async (context, options) => {
        const { loadCliConfig, queuesOf, wantedTopology, withBroker, withDatabase } = await import('./installation.ts');
        const { applyTopology } = await import('../shared/amqp/topology-apply.ts');
        const { silentLogger } = await import('../shared/observability/silent-log.ts');
        const { config } = loadCliConfig(context);
        const { clock } = context.io;
        const known = await withDatabase(context, config, async (database) => await queuesOf(database, config));
        const { created, drift } = await withBroker(context, config, async (connection) => {
          const topology = wantedTopology(connection, config, [...known, ...(options.queues ?? [])]);
          return await applyTopology({ connection, clock, log: silentLogger }, topology);
        });
        context.printJson({ created, drift });
        for (const name of created) context.print(`created ${escapeText(name)}\n`);
        for (const found of drift) context.remark(`differs: ${escapeText(describeDrift(found))}\n`);
        if (created.length === 0 && drift.length === 0) context.print('Nothing to do: all is declared.\n');
        if (drift.length > 0) {
          context.remark('What exists was kept. To change it, drain it, delete it, and apply again.\n');
          context.exitWith(EXIT_CODES.failed);
        }
      }),
    );
}
