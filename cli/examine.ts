/** The checks of `warren doctor`, each a finding or several. None changes anything, none throws. */
import type { LoadedConfig } from '../shared/config/load.ts';
import type { Config } from '../shared/config/schema.ts';
import { DEFAULT_QUEUE } from '../shared/tasks/define-task.ts';
import { toCliError } from './cli-error.ts';
import type { CommandContext } from './context.ts';
import type { Finding } from './doctor.ts';
import { examineBroker } from './examine-broker.ts';
import { examineDatabase } from './examine-database.ts';
import { examineManagement } from './examine-management.ts';
import { checkServices } from './examine-services.ts';
import { loadCliConfig } from './installation.ts';

/** Makes every check, in the order in which one stands on the other. `managementUrl`: of RabbitMQ's management API, a secret. */
export async function* examine(context: CommandContext, managementUrl: string | undefined): AsyncGenerator<Finding> {
  const loaded = examineConfig(context);
  yield* loaded.findings;
  yield nodeFinding(process.versions.node);
  if (loaded.config === undefined) return;
  const { config } = loaded;
  const database = await examineDatabase(context, config);
  yield* database.findings;
  yield* await examineBroker(context, config, database.seen);
  yield* await examineManagement(context, config, {
    url: managementUrl,
    queues: database.seen?.queues ?? [DEFAULT_QUEUE],
  });
  yield* await checkServices(context);
}

function examineConfig(context: CommandContext): { readonly findings: readonly Finding[]; readonly config?: Config } {
  let loaded: LoadedConfig;
  try {
    loaded = loadCliConfig(context);
  } catch (thrown) {
    const { problem } = toCliError(thrown);
    const { faults } = problem;
    const lines = Array.isArray(faults) ? faults.map(String) : [problem.title];
    const hint = 'Correct the setting; the reference is docs/reference/config.md.';
    return { findings: lines.map((message) => ({ check: 'configuration', status: 'fail', message, hint })) };
  }
  const given = [...loaded.sources.values()].filter((source) => source !== 'default').length;
  const message = `valid; prefix ${loaded.config.prefix}; ${given} settings given, see \`warren config print --changed\``;
  return { findings: [{ check: 'configuration', status: 'ok', message }], config: loaded.config };
}

/** Node 20.19 is the floor: `engines` of package.json. */
export function nodeFinding(version: string): Finding {
  const [major = 0, minor = 0] = version.split('.').map(Number);
  const isNew = major > 20 || (major === 20 && minor >= 19);
  return isNew
    ? { check: 'node', status: 'ok', message: version }
    : { check: 'node', status: 'fail', message: `${version} is too old`, hint: 'Install Node 20.19 or newer.' };
}
