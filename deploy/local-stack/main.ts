/** The local stack's command line: see USAGE. Progress goes to standard error, what programs read to standard output. */
import { spawn } from 'node:child_process';
import type { ChildProcess } from 'node:child_process';
import { constants } from 'node:os';
import { parseArgs } from 'node:util';
import { toError } from '../../shared/errors/to-error.ts';
import { environmentOf, renderExports } from './environment.ts';
import { StackFailure, isStackFailure } from './failure.ts';
import { resetStack, startStack, stopStack } from './stack.ts';
import type { StackUrls } from './stack.ts';
import { readStatus } from './status.ts';

const USAGE = `usage: main.js COMMAND [--name NAME] [--json]
  start    start a broker and a database and leave them running
  stop     stop them, data kept
  status   say what runs; exit 0 when both do, 3 otherwise
  env      start them and print shell lines that export AMQP_URL, DATABASE_URL and more (--json: one object)
  reset    stop them and remove their data
  run      start them, run the command after --, then stop what was started (--keep: leave it running)`;

/** sysexits: wrong usage. */
const EXIT_USAGE = 64;
/** As `systemctl status` for what does not run. */
const EXIT_NOT_RUNNING = 3;

async function main(argv: readonly string[]): Promise<number> {
  const split = argv.indexOf('--');
  const command = split < 0 ? [] : argv.slice(split + 1);
  const { values, positionals } = parseArgs({
    args: split < 0 ? [...argv] : argv.slice(0, split),
    allowPositionals: true,
    options: { name: { type: 'string', default: 'dev' }, json: { type: 'boolean' }, keep: { type: 'boolean' } },
  });
  const { name } = values;
  const log = (line: string): void => console.error(line);
  switch (positionals[0] ?? '') {
    case 'start':
      await startStack({ name, log });
      return 0;
    case 'stop':
      await stopStack({ name, log });
      return 0;
    case 'reset':
      await resetStack({ name, log });
      return 0;
    case 'status': {
      const status = await readStatus(name);
      console.log(values.json === true ? JSON.stringify(status) : status.lines.join('\n'));
      return status.isRunning ? 0 : EXIT_NOT_RUNNING;
    }
    case 'env': {
      const stack = await startStack({ name, log });
      console.log(values.json === true ? JSON.stringify(urlsOf(stack)) : renderExports(environmentOf(stack)));
      return 0;
    }
    case 'run':
      return await runWithStack(name, command, { keep: values.keep === true, log });
    default:
      console.error(USAGE);
      return EXIT_USAGE;
  }
}

async function runWithStack(
  name: string,
  command: readonly string[],
  { keep, log }: { readonly keep: boolean; readonly log: (line: string) => void },
): Promise<number> {
  const [file, ...args] = command;
  if (file === undefined) throw new StackFailure(USAGE, EXIT_USAGE);
  // Ctrl-C reaches the command as well, a signal to us alone is handed on; the servers are stopped after it either way.
  let child: ChildProcess | undefined;
  let interruptedBy: NodeJS.Signals | undefined;
  for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const) {
    process.on(signal, () => {
      interruptedBy = signal;
      if (signal !== 'SIGINT') child?.kill(signal);
    });
  }
  const stack = await startStack({ name, log });
  let exitCode = 1;
  try {
    if (interruptedBy !== undefined) return 128 + constants.signals[interruptedBy];
    child = spawn(file, args, { stdio: 'inherit', env: { ...process.env, ...environmentOf(stack) } });
    exitCode = await endOf(child);
    return exitCode;
  } finally {
    // What a failed command leaves running would only be forgotten.
    if (stack.wasStarted && !(keep && exitCode === 0)) {
      log('stopping the broker and the database');
      await stack.stop();
    }
  }
}

/** The exit code of a process, as shells show the end by a signal. */
async function endOf(child: ChildProcess): Promise<number> {
  return await new Promise((resolve, reject) => {
    child.once('error', reject);
    child.once('exit', (code, signal) => resolve(code ?? 128 + (signal === null ? 0 : constants.signals[signal])));
  });
}

function urlsOf({ amqpUrl, databaseUrl, managementUrl, prefix, brokerVersion, databaseVersion }: StackUrls): StackUrls {
  return { amqpUrl, databaseUrl, managementUrl, prefix, brokerVersion, databaseVersion };
}

try {
  process.exitCode = await main(process.argv.slice(2));
} catch (thrown) {
  console.error(isStackFailure(thrown) ? thrown.message : (toError(thrown).stack ?? toError(thrown).message));
  process.exitCode = isStackFailure(thrown) ? thrown.exitCode : 1;
}
