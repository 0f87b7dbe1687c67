/** `docs/reference/exit-codes.md`: of the services and of the command line. */
import { EXIT_CODES, EXIT_MEANINGS } from '../../cli/exit-codes.ts';
import { EXIT } from '../../shared/lifecycle/process-main.ts';
import { STOP_SIGNALS } from '../../shared/lifecycle/signals.ts';
import { code, page, table } from './markdown.ts';

const OF_SERVICES: Readonly<Record<keyof typeof EXIT, string>> = {
  ok: 'stopped because it was asked to (SIGTERM or SIGINT), and let go of its work in order',
  usage: 'kept free for a wrong command line; no service exits with it today',
  unavailable: 'Postgres did not answer within a minute of the start; start it again',
  internal: 'a bug: something was thrown that nobody handles, or a stop that did not end in time',
  temporary: 'a worker with more than `worker.maxAbandoned` handlers that ignore their abort; start it again',
  config:
    'something must be changed first: the configuration (all its faults are listed), a task module, the version or the prefix of the database, an address that cannot be listened on',
};

/** Prints the page. */
export function renderExitCodes(): string {
  const services = Object.entries(EXIT) as [keyof typeof EXIT, number][];
  const commands = Object.entries(EXIT_CODES) as [keyof typeof EXIT_CODES, number][];
  return page('Exit codes', 'For whoever starts Warren from a script, a unit file or a pod.', [
    'Where sysexits(3) has a fitting code, it is that one. Codes are never renumbered.',
    '## Services',
    'Of producer, worker and dead-letter-handler.',
    table(
      ['code', 'meaning'],
      [
        ...services.map(([name, value]) => [code(String(value)), OF_SERVICES[name]]),
        ...Object.entries(STOP_SIGNALS).map(([signal, value]) => [
          code(String(value)),
          `a second ${signal}: ended at once, without letting go of its work`,
        ]),
      ],
    ),
    '## The command line',
    'Of `warren`.',
    table(
      ['code', 'meaning'],
      commands.map(([name, value]) => [code(String(value)), EXIT_MEANINGS[name]]),
    ),
  ]);
}
