/** Processes: none ends by itself but for a documented reason, and none calls for a human without one. */
import type { Violation } from './checker.ts';
import type { Evidence } from './evidence.ts';

/** Exit codes that ask to be started again, and nothing else. Source: docs/reference/exit-codes.md. */
const START_AGAIN: readonly (number | string)[] = [69, 75];
/** What a service may say at the level `error` while all around it breaks. */
const EXPECTED_ERRORS: readonly string[] = ['lease lost', 'broker blocks publishes'];
const KILLS_ITS_WORKER = ['crashing', 'deadly'];

/** Looks at ends and at error lines. */
export function checkProcesses({ ends, errors, runs, submissions, tasks }: Evidence): readonly Violation[] {
  const deadlyKeys = new Set(submissions.filter(({ kind }) => KILLS_ITS_WORKER.includes(kind)).map(({ key }) => key));
  const deadly = new Set(tasks.filter(({ key }) => key !== undefined && deadlyKeys.has(key)).map(({ id }) => id));
  const killedByTask = new Set(runs.filter(({ taskId }) => deadly.has(taskId)).map(({ pid }) => pid));
  return [
    ...ends
      .filter(({ code, asked, pid, hadBegun }) => {
        if (START_AGAIN.includes(code) || (code === 'SIGKILL' && killedByTask.has(pid))) return false;
        if (asked === 'kill') return code !== 'SIGKILL';
        if (asked === 'terminate') return code !== 0 && (hadBegun || code !== 'SIGTERM');
        return true;
      })
      .map(({ name, code, asked, tail }) => ({
        invariant: 'processes' as const,
        what: asked === undefined ? 'a process ended by itself' : 'a process did not end as it was asked to',
        about: `${name} ended with ${code}:\n${tail}`,
      })),
    ...errors
      .filter(({ message }) => !EXPECTED_ERRORS.includes(message))
      .map(({ process, text }) => ({
        invariant: 'processes' as const,
        what: 'a service logged an error',
        about: `${process}: ${text}`,
      })),
  ];
}
