/** One run of the command line, from its arguments to its exit code. `main.ts` gives it the real world, tests another. */
import { readFileSync } from 'node:fs';
import { Command } from 'commander';
import type { CommanderError } from 'commander';
import { codeOf, toError } from '../shared/errors/to-error.ts';
import { toCliError, usageError } from './cli-error.ts';
import type { CliError } from './cli-error.ts';
import { addConfigCommands } from './config.ts';
import { createContext } from './context.ts';
import type { Act } from './context.ts';
import { addAuditCommands } from './audit.ts';
import { addDeadCommands } from './dead.ts';
import { addDevCommand } from './dev.ts';
import { addDoctorCommand } from './doctor.ts';
import { EXIT_CODES, renderExitCodes } from './exit-codes.ts';
import type { ExitCode } from './exit-codes.ts';
import type { CliIo } from './io.ts';
import { addLedgerCommand } from './ledger.ts';
import { addMigrateCommand } from './migrate.ts';
import { painterFor } from './render.ts';
import { renderProblem, renderProblemJson } from './render-problem.ts';
import { addReplayCommands } from './replay.ts';
import { addRetentionCommands } from './retention.ts';
import { addTaskCommands } from './task.ts';
import { addTopologyCommands } from './topology.ts';
import { addFlowCommands } from './flow.ts';
import { addQueueCommands } from './queue.ts';
import { addScheduleCommands } from './schedule.ts';
import { addTypesCommands } from './types.ts';

/** Columns of help texts where the terminal says none. */
const HELP_COLUMNS = 100;

/** Runs `warren` with `args` (without node and script). Never throws; resolves to the exit code. */
export async function runCli(args: readonly string[], io: CliIo): Promise<ExitCode> {
  let exitCode: ExitCode = EXIT_CODES.ok;
  const program = createProgram(io, (code) => {
    exitCode = code;
  });
  try {
    await program.parseAsync([...args], { from: 'user' });
    return exitCode;
  } catch (thrown) {
    if (isHelp(thrown)) return EXIT_CODES.ok;
    const error = isCommanderError(thrown) ? readCommanderError(thrown) : toCliError(thrown);
    // Options may not have been parsed yet.
    io.stderr.write(
      args.includes('--json') ? renderProblemJson(error) : renderProblem(error, painterFor(io.stderr, io.env)),
    );
    return error.exitCode;
  }
}

/** The whole command tree. `exitWith` is told the code of commands that end without an error. */
export function createProgram(io: CliIo, exitWith: (code: ExitCode) => void): Command {
  const program = new Command('warren');
  const act: Act =
    (action) =>
    async (...given) => {
      const command = given.at(-1) as Command;
      const options: unknown = command.opts();
      await action(createContext(command, io, exitWith), options as Parameters<typeof action>[1], ...command.args);
    };
  program
    .description('Drives a Warren fleet: submits and follows tasks, looks after dead letters, sets up and checks.')
    .version(readVersion(), '-V, --version', 'print the version')
    .helpOption('-h, --help', 'print this help')
    .helpCommand(false)
    .option('--json', 'print one JSON document on stdout, and a failure as JSON on stderr')
    .option('--url <url>', 'the Task API (WARREN_URL; default http://127.0.0.1:8080)')
    .option('--dead-letters-url <url>', 'the Dead Letter API (WARREN_DEAD_LETTERS_URL; default http://127.0.0.1:8081)')
    .option('--token-file <file>', 'file that holds the bearer token (else WARREN_TOKEN, WARREN_TOKEN_FILE)')
    .option(
      '--ca-file <file>',
      'certificates (PEM) to trust where the APIs are https (WARREN_CA_FILE; default those of node)',
    )
    .option('--config <file>', 'configuration of dev, doctor, migrate, topology, types, config (WARREN_CONFIG)')
    .addHelpText('after', () => `\nExit codes:\n${renderExitCodes()}\n\nExamples:\n${EXAMPLES}`)
    .exitOverride()
    .configureHelp({ showGlobalOptions: true })
    .configureOutput({
      writeOut: (text) => io.stdout.write(text),
      // What is wrong is shown by runCli, once; only help for an incomplete command comes through here.
      writeErr: (text) => io.stderr.write(text),
      outputError: () => undefined,
      getOutHelpWidth: () => io.stdout.columns ?? HELP_COLUMNS,
      getErrHelpWidth: () => io.stderr.columns ?? HELP_COLUMNS,
      getOutHasColors: () => false,
      getErrHasColors: () => false,
    });
  addTaskCommands(program, act, io.clock);
  addDeadCommands(program, act, io.clock);
  addAuditCommands(program, act, io.clock);
  addReplayCommands(program, act);
  addLedgerCommand(program, act, io.clock);
  addRetentionCommands(program, act);
  addDevCommand(program, act);
  addDoctorCommand(program, act);
  addMigrateCommand(program, act);
  addTopologyCommands(program, act);
  addFlowCommands(program, act);
  addScheduleCommands(program, act, io.clock);
  addQueueCommands(program, act);
  addTypesCommands(program, act);
  addConfigCommands(program, act);
  return program;
}

const EXAMPLES = `  warren dev --tasks ./dist/examples/tasks/report-csv.js     start everything in one process
  warren task submit report.csv --input '{"rows": 10}' --wait
  warren task list --state dead --json
  warren dead list
  warren ledger --by type
  warren doctor`;

/** Every command under `command`, groups and leaves. */
export function allBelow(command: Command): readonly Command[] {
  return command.commands.flatMap((child) => [child, ...allBelow(child)]);
}

function isCommanderError(thrown: unknown): thrown is CommanderError {
  return (codeOf(thrown) ?? '').startsWith('commander.');
}

function isHelp(thrown: unknown): boolean {
  return isCommanderError(thrown) && thrown.exitCode === 0;
}

function readCommanderError(thrown: CommanderError): CliError {
  if (thrown.code === 'commander.help') {
    return usageError('A command is missing.', 'Choose one of those above; `--help` behind it says more.');
  }
  const [first = '', ...more] = toError(thrown)
    .message.replace(/^error: /, '')
    .split('\n');
  const title = `${first.charAt(0).toUpperCase()}${first.slice(1)}${/[.?)]$/.test(first) ? '' : '.'}`;
  return usageError(title, more.length > 0 ? more.join(' ') : '`--help` behind the command says what it takes.');
}

/** The version of the package: one folder up from the sources, two from what was built. */
function readVersion(): string {
  for (const place of ['../package.json', '../../package.json']) {
    try {
      const found: unknown = JSON.parse(readFileSync(new URL(place, import.meta.url), 'utf8'));
      if (typeof found === 'object' && found !== null && 'version' in found) return String(found.version);
    } catch {
      // not here: the other place
    }
  }
  return 'unknown';
}
