/** Waits for the end of a task or a flow, and shows on the way how it is doing. */
import { CATALOGUE } from '../shared/errors/catalogue.ts';
import { interruptedError, pathStep } from './api.ts';
import type { ApiAnswer, ApiClient } from './api.ts';
import { CliError, toCliError } from './cli-error.ts';
import type { CommandContext } from './context.ts';
import { escapeText } from './escape.ts';
import { EXIT_CODES } from './exit-codes.ts';
import { cut, renderDuration } from './render.ts';
import type { View } from './view.ts';

/** How a kind of thing is waited for. */
export interface Waitable {
  /** `task` or `flow`: the noun, the group of commands and the member of a failure. */
  readonly noun: 'task' | 'flow';
  /** Where it is looked at, without the id. */
  readonly path: string;
  readonly hasEnded: (view: View) => boolean;
  /** A line for people. */
  readonly standing: (view: View, now: Date) => string;
  /** What shows it with `--wait`: `get`, `show`. */
  readonly look: string;
}

/** What is waited for. */
export interface WaitFor {
  readonly id: string;
  /** Milliseconds; `undefined`: as long as it takes. */
  readonly timeoutMs: number | undefined;
}

const FIRST_POLL_MS = 50;
const LONGEST_POLL_MS = 1_000;
/** Milliseconds without an answer after which waiting is given up: longer than a service takes to restart. */
const UNREACHABLE_MS = 60_000;

/**
 * Resolves with it once it has ended. Throws exit 75 when the time is over, 69 when the API has not answered for
 * a minute, 130 on Ctrl-C; it goes on in each case, and the message says so.
 */
export async function waitForEnd(
  context: CommandContext,
  api: ApiClient,
  kind: Waitable,
  { id, timeoutMs }: WaitFor,
): Promise<ApiAnswer> {
  const { clock, interrupted } = context.io;
  const startedMs = clock.monotonicMs();
  const display = openDisplay(context);
  let answeredMs = startedMs;
  let pollMs = FIRST_POLL_MS;
  try {
    for (;;) {
      const answer = await look(
        api,
        `${kind.path}/${pathStep(id)}`,
        () => clock.monotonicMs() - answeredMs < UNREACHABLE_MS,
      );
      const nowMs = clock.monotonicMs();
      if (answer !== undefined) {
        answeredMs = nowMs;
        if (kind.hasEnded(answer.value)) return answer;
      }
      display.show(
        answer === undefined ? 'the service does not answer; trying on' : kind.standing(answer.value, clock.now()),
        nowMs - startedMs,
      );
      const leftMs = timeoutMs === undefined ? Number.POSITIVE_INFINITY : timeoutMs - (nowMs - startedMs);
      if (leftMs <= 0) throw timeoutError(kind, id, timeoutMs ?? 0);
      await clock.sleep(Math.min(pollMs, leftMs), interrupted);
      if (interrupted.aborted) throw interruptedError();
      pollMs = Math.min(pollMs * 1.5, LONGEST_POLL_MS);
    }
  } catch (thrown) {
    throw saysThatItGoesOn(toCliError(thrown), kind, id);
  } finally {
    display.close();
  }
}

/** One look; `undefined` where there was no answer and `isPatient` says to try on. */
async function look(api: ApiClient, path: string, isPatient: () => boolean): Promise<ApiAnswer | undefined> {
  try {
    return await api.get(path);
  } catch (thrown) {
    if (toCliError(thrown).exitCode === EXIT_CODES.unreachable && isPatient()) return undefined;
    throw thrown;
  }
}

function timeoutError({ noun }: Waitable, id: string, timeoutMs: number): CliError {
  return new CliError(EXIT_CODES.waitTimeout, {
    code: 'wait-timeout',
    title: CATALOGUE['wait-timeout'].title,
    [`${noun}Id`]: id,
    waited: renderDuration(timeoutMs),
  });
}

function saysThatItGoesOn(error: CliError, { noun, look: command }: Waitable, id: string): CliError {
  const { exitCode, problem } = error;
  const isOurEnd =
    exitCode === EXIT_CODES.interrupted || exitCode === EXIT_CODES.waitTimeout || exitCode === EXIT_CODES.unreachable;
  if (!isOurEnd) return error;
  const goesOn = `The ${noun} goes on. \`warren ${noun} ${command} ${id} --wait\` waits again, \`warren ${noun} cancel ${id}\` cancels it.`;
  return new CliError(
    exitCode,
    { ...problem, [`${noun}Id`]: id, hint: problem.hint === undefined ? goesOn : `${problem.hint}\n${goesOn}` },
    error,
  );
}

interface Display {
  show(standing: string, elapsedMs: number): void;
  close(): void;
}

/** One line that is written over on a terminal; elsewhere a line for each change, without the elapsed time. */
function openDisplay({ io, isJson }: CommandContext): Display {
  const { stderr } = io;
  if (isJson) return { show: () => undefined, close: () => undefined };
  let last = '';
  if (!stderr.isTTY) {
    return {
      show: (standing) => {
        // Due times count down with each look: no change worth a line.
        const shown = standing.replace(/, due in .*$/, '');
        if (shown !== last) stderr.write(`${escapeText(shown)}\n`);
        last = shown;
      },
      close: () => undefined,
    };
  }
  return {
    show: (standing, elapsedMs) => {
      last = cut(`${standing}  ${renderDuration(Math.floor(elapsedMs / 100) * 100)}`, (stderr.columns ?? 80) - 1);
      stderr.write(`\r\u001b[K${last}`);
    },
    close: () => {
      if (last !== '') stderr.write('\r\u001b[K');
    },
  };
}
