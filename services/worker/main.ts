/**
 * The worker process: `main.js [--config FILE] [--queues high:8,low:2] [--tasks ./tasks/mail.js,./tasks/export.js]`. What the
 * command line names is stronger than the environment, which is stronger than the file.
 */
import { parseArgs } from 'node:util';
import { readEnvironment } from '../../shared/config/environment.ts';
import { loadConfig } from '../../shared/config/load.ts';
import type { LoadedConfig } from '../../shared/config/load.ts';
import { toError } from '../../shared/errors/to-error.ts';
import { WarrenError } from '../../shared/errors/warren-error.ts';
import { runService } from '../../shared/lifecycle/process-main.ts';
import { createWorker } from './service.ts';

function load(file: string | undefined): LoadedConfig {
  const { queues, tasks } = readCommandLine();
  const env = {
    ...readEnvironment(),
    ...(queues === undefined ? {} : { WARREN_QUEUES: queues }),
    ...(tasks === undefined ? {} : { WARREN_TASKS: tasks }),
  };
  return loadConfig({ user: 'worker', file, env });
}

function readCommandLine(): { readonly queues?: string | undefined; readonly tasks?: string | undefined } {
  const text = { type: 'string' } as const;
  try {
    return parseArgs({ options: { config: text, queues: text, tasks: text } }).values;
  } catch (thrown) {
    throw new WarrenError('config-invalid', { faults: [`command line: ${toError(thrown).message}`] });
  }
}

await runService({ name: 'worker', load, create: createWorker });
