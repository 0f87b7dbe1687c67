/** Watches a replay to its end: a line for each wave that is over, and on a terminal one that is written over. */
import { interruptedError, pathStep } from './api.ts';
import type { ApiAnswer, ApiClient } from './api.ts';
import { CliError, toCliError } from './cli-error.ts';
import type { CommandContext } from './context.ts';
import { escapeText } from './escape.ts';
import { EXIT_CODES } from './exit-codes.ts';
import { CATALOGUE } from '../shared/errors/catalogue.ts';
import { cut, renderDuration } from './render.ts';
import { renderCounts, renderReplay } from './replay-view.ts';
import { numberAt, textAt, viewAt, viewsAt } from './view.ts';
import type { View } from './view.ts';

const FIRST_POLL_MS = 100;
const LONGEST_POLL_MS = 2_000;
/** Milliseconds without an answer after which watching is given up: longer than a service takes to restart. */
const UNREACHABLE_MS = 60_000;
/** States in which nothing goes on until somebody does something. */
const HALTED: ReadonlySet<string | undefined> = new Set(['paused', 'stopped', 'cancelled']);

/**
 * Resolves when the replay has ended and every item that was sent has its result, or when it halted; then shows it. Exit 0 where
 * every letter succeeded, else 1. Throws exit 75 when the time is over, 69 without an answer for a minute, 130 on Ctrl-C.
 */
export async function watchReplay(
  context: CommandContext,
  api: ApiClient,
  { id, timeoutMs }: { readonly id: string; readonly timeoutMs: number | undefined },
): Promise<void> {
  const { clock, interrupted } = context.io;
  const startedMs = clock.monotonicMs();
  const display = new Display(context);
  let answeredMs = startedMs;
  let pollMs = FIRST_POLL_MS;
  for (;;) {
    const answer = await look(api, id, () => clock.monotonicMs() - answeredMs < UNREACHABLE_MS);
    const nowMs = clock.monotonicMs();
    if (answer !== undefined) {
      answeredMs = nowMs;
      display.show(answer.value, nowMs - startedMs);
      if (isOver(answer.value)) {
        display.close();
        conclude(context, answer);
        return;
      }
    }
    const leftMs = timeoutMs === undefined ? Number.POSITIVE_INFINITY : timeoutMs - (nowMs - startedMs);
    if (leftMs <= 0) {
      display.close();
      throw new CliError(EXIT_CODES.waitTimeout, {
        code: 'wait-timeout',
        title: CATALOGUE['wait-timeout'].title,
        replayId: id,
        hint: `The replay goes on. \`warren replay watch ${id}\` watches it again.`,
      });
    }
    await clock.sleep(Math.min(pollMs, leftMs), interrupted);
    if (interrupted.aborted) {
      display.close();
      throw interruptedError();
    }
    pollMs = Math.min(pollMs * 1.3, LONGEST_POLL_MS);
  }
}

async function look(api: ApiClient, id: string, isPatient: () => boolean): Promise<ApiAnswer | undefined> {
  try {
    return await api.get(`/v1/replays/${pathStep(id)}`);
  } catch (thrown) {
    if (toCliError(thrown).exitCode === EXIT_CODES.unreachable && isPatient()) return undefined;
    throw thrown;
  }
}

const countOf = (replay: View, state: string): number => numberAt(viewAt(replay, 'counts') ?? {}, state) ?? 0;

function isOver(replay: View): boolean {
  const state = textAt(replay, 'state');
  return HALTED.has(state) || (state === 'finished' && countOf(replay, 'sent') === 0);
}

function conclude(context: CommandContext, answer: ApiAnswer): void {
  context.printJson(answer.bytes);
  context.print(renderReplay(answer.value, context));
  const good = countOf(answer.value, 'succeeded') + countOf(answer.value, 'returned');
  const isGood = textAt(answer.value, 'state') === 'finished' && good === numberAt(answer.value, 'items');
  if (!isGood) context.exitWith(EXIT_CODES.failed);
}

/** Where the terminal says nothing of waves that are over, a script reads them line by line. */
class Display {
  readonly #context: CommandContext;
  #waves = 0;
  #last = '';
  #isOpen = false;

  constructor(context: CommandContext) {
    this.#context = context;
  }

  show(replay: View, elapsedMs: number): void {
    const { io, isJson } = this.#context;
    if (isJson) return;
    const { stderr } = io;
    const current = numberAt(replay, 'wave') ?? 0;
    for (const wave of viewsAt(replay, 'waveCounts')) {
      const number = numberAt(wave, 'wave') ?? 0;
      const isDone = number < current || isOver(replay);
      if (number <= this.#waves || !isDone) continue;
      this.#waves = number;
      this.close();
      stderr.write(`wave ${number}: ${renderCounts(viewAt(wave, 'counts') ?? {})}\n`);
    }
    const reason = textAt(replay, 'stateReason');
    const standing = [
      `${textAt(replay, 'state') ?? ''}, wave ${current}`,
      `${numberAt(replay, 'sent') ?? 0} of ${numberAt(replay, 'items') ?? 0}`,
      renderCounts(viewAt(replay, 'counts') ?? {}),
      ...(reason === undefined ? [] : [reason]),
    ].join(' · ');
    if (stderr.isTTY) {
      const line = `${escapeText(standing)}  ${renderDuration(Math.floor(elapsedMs / 100) * 100)}`;
      stderr.write(`\r\u001b[K${cut(line, (stderr.columns ?? 80) - 1)}`);
      this.#isOpen = true;
    } else if (standing !== this.#last) {
      stderr.write(`${escapeText(standing)}\n`);
    }
    this.#last = standing;
  }

  close(): void {
    if (this.#isOpen) this.#context.io.stderr.write('\r\u001b[K');
    this.#isOpen = false;
  }
}
