/** What `warren` says by its exit code, after sysexits(3) where that has a fitting one. */

/** Every exit code with its meaning; `--help` prints this table. Never renumbered: scripts compare them. */
export const EXIT_CODES = {
  ok: 0,
  failed: 1,
  usage: 2,
  badData: 65,
  unreachable: 69,
  internal: 70,
  waitTimeout: 75,
  notAllowed: 77,
  configuration: 78,
  interrupted: 130,
} as const;

/** One of the documented exit codes. */
export type ExitCode = (typeof EXIT_CODES)[keyof typeof EXIT_CODES];

/** Meanings, as shown in `--help`. */
export const EXIT_MEANINGS: Readonly<Record<keyof typeof EXIT_CODES, string>> = {
  ok: 'done',
  failed:
    'what was asked about failed: task dead, cancelled or expired with --wait; a replay that stopped, paused or left letters that did not succeed; nothing of that id; a check failed; the ledger differs',
  usage: 'the command line is wrong',
  badData: 'the data was refused: input, task type, queue',
  unreachable: 'the service, broker or database does not answer',
  internal: 'a fault of warren itself, or of the service',
  waitTimeout: 'the wait was over before the task or the replay had ended; it goes on',
  notAllowed: 'not allowed: no token, an unknown token, or too small a role',
  configuration: 'the configuration has faults',
  interrupted: 'interrupted with Ctrl-C; a task or replay that was waited for goes on',
};

/** The table for `--help`. */
export function renderExitCodes(): string {
  const names = Object.keys(EXIT_CODES) as (keyof typeof EXIT_CODES)[];
  return names.map((name) => `  ${String(EXIT_CODES[name]).padStart(3)}  ${EXIT_MEANINGS[name]}`).join('\n');
}
