/** `warren doctor`: looks at everything that an installation stands on, and says in plain words what to do. */
import type { Command } from 'commander';
import { toCliError } from './cli-error.ts';
import type { Act } from './context.ts';
import { escapeText } from './escape.ts';
import { EXIT_CODES } from './exit-codes.ts';
import type { Paint } from './render.ts';

/** What one check found. */
export interface Finding {
  /** What was looked at, a word or two. */
  readonly check: string;
  readonly status: 'ok' | 'warn' | 'fail';
  /** One sentence. */
  readonly message: string;
  /** What to do; absent where all is well. */
  readonly hint?: string;
}

const PAINTS: Readonly<Record<Finding['status'], Paint>> = { ok: 'green', warn: 'yellow', fail: 'red' };

/** Adds the command. */
export function addDoctorCommand(program: Command, act: Act): void {
  program
    .command('doctor')
    .description('check configuration, versions, servers, rights, migrations, topology, policies, workers and services')
    .option('--management-url <url>', "RabbitMQ's management API, for its policies and what KEDA sees (MANAGEMENT_URL)")
    .addHelpText(
      'after',
      `
One line a check: ok, warn or fail, and what to do. Changes nothing. Exit code 0 when nothing fails (warnings are
allowed), 78 when the configuration has faults, else 1.

Examples:
  warren doctor
  warren doctor --config warren.json --json
  MANAGEMENT_URL=http://user:password@rabbitmq:15672 warren doctor`,
    )
    .action(
      act<{ readonly managementUrl?: string }>(async (context, options) => {
        const { examine } = await import('./examine.ts');
        const findings: Finding[] = [];
        const width = 16;
        for await (const finding of examine(context, options.managementUrl ?? context.io.env['MANAGEMENT_URL'])) {
          findings.push(finding);
          const { check, status, message, hint } = finding;
          const what = hint === undefined ? '' : `\n${' '.repeat(width + 8)}→ ${escapeText(hint)}`;
          context.print(
            `${context.paint(PAINTS[status], status.padEnd(5))} ${check.padEnd(width)}  ${escapeText(message)}${what}\n`,
          );
        }
        const failed = findings.filter(({ status }) => status === 'fail');
        context.printJson({ ok: failed.length === 0, findings });
        if (failed.some(({ check }) => check === 'configuration')) context.exitWith(EXIT_CODES.configuration);
        else if (failed.length > 0) context.exitWith(EXIT_CODES.failed);
      }),
    );
}

/** The finding for a check that threw. */
export function failedFinding(check: string, thrown: unknown): Finding {
  const { problem } = toCliError(thrown);
  const { reason, server } = problem;
  const where = typeof server === 'string' ? `${server}: ` : '';
  const message = `${where}${typeof reason === 'string' ? reason : problem.title}`;
  return {
    check,
    status: 'fail',
    message,
    ...(problem.hint === undefined ? { hint: problem.title } : { hint: problem.hint }),
  };
}
