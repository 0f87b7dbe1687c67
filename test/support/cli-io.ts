/** A world for one run of the command line: what it writes is kept, time is moved by hand or is real. */
import { systemClock } from '../../shared/time/clock.ts';
import type { Clock } from '../../shared/time/clock.ts';
import type { CliIo } from '../../cli/io.ts';
import { runCli } from '../../cli/run.ts';

/** What a run of the command line did. */
export interface CliRun {
  readonly exitCode: number;
  readonly stdout: string;
  readonly stderr: string;
  /** stdout as the JSON document that `--json` promises; throws where it is none. */
  json<T = Record<string, unknown>>(): T;
}

/** Runs `warren` in this process. */
export async function warren(
  args: readonly string[],
  given: Partial<CliIo> & { readonly isTTY?: boolean } = {},
): Promise<CliRun> {
  const { isTTY = false, ...io } = given;
  let stdout = '';
  let stderr = '';
  const exitCode = await runCli(args, {
    stdout: { write: (text) => void (stdout += text), isTTY, columns: isTTY ? 100 : undefined },
    stderr: { write: (text) => void (stderr += text), isTTY, columns: isTTY ? 100 : undefined },
    readStdin: async () => await Promise.resolve(Buffer.alloc(0)),
    env: {},
    clock: systemClock,
    random: () => 0.5,
    fetch: globalThis.fetch,
    interrupted: new AbortController().signal,
    ...io,
  });
  return { exitCode, stdout, stderr, json: <T>() => JSON.parse(stdout) as T };
}

/** A clock that starts at `start` and moves only by what is slept: no test waits for it. */
export function sleepingClock(start = '2026-05-01T10:00:00.000Z'): Clock {
  let elapsedMs = 0;
  return {
    now: () => new Date(Date.parse(start) + elapsedMs),
    monotonicMs: () => elapsedMs,
    sleep: async (ms) => {
      elapsedMs += ms;
      await Promise.resolve();
    },
    after: () => () => undefined,
  };
}

/** A request that the command line made. */
export interface SeenRequest {
  readonly method: string;
  readonly url: string;
  readonly headers: Headers;
  readonly body: string;
}

/** A `fetch` that keeps what was asked and gives `answers` in turn, the last one again and again. */
export function answering(...answers: readonly (() => Response)[]): {
  readonly fetch: typeof globalThis.fetch;
  readonly seen: SeenRequest[];
} {
  const seen: SeenRequest[] = [];
  const fetch = async (url: string, init: RequestInit): Promise<Response> => {
    const answer = answers[Math.min(seen.length, answers.length - 1)];
    seen.push({
      method: init.method ?? 'GET',
      url,
      headers: new Headers(init.headers),
      body: (init.body as string | undefined) ?? '',
    });
    if (answer === undefined) throw new TypeError('fetch failed');
    return await Promise.resolve(answer());
  };
  return { fetch: fetch as typeof globalThis.fetch, seen };
}

/** A JSON answer. */
export function jsonAnswer(body: unknown, status = 200): () => Response {
  const text = typeof body === 'string' ? body : JSON.stringify(body);
  return () =>
    new Response(text, {
      status,
      headers: { 'content-type': status < 400 ? 'application/json' : 'application/problem+json' },
    });
}

/** The id of the task in the answers of a test. */
export const TASK_ID = '0198f3a2-7c10-7d3e-9a4b-2f6c1d8e5b70';

/** The answer to a task that was accepted. */
export const taskAccepted = jsonAnswer(
  { id: TASK_ID, type: 'report.csv', state: 'pending', acceptedAt: '2026-05-01T10:00:00.000Z' },
  202,
);

/** The answer of a task that is in `state`. */
export const taskInState = (state: string, more: object = {}): (() => Response) =>
  jsonAnswer({ id: TASK_ID, type: 'report.csv', state, attempt: 1, acceptedAt: '2026-05-01T09:59:00.000Z', ...more });

/** A refusal as the services write it. */
export const problem = (type: string, status: number, more: object = {}): (() => Response) =>
  jsonAnswer({ type, title: `Title of ${type}.`, status, ...more }, status);
