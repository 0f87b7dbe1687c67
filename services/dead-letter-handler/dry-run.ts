/** What a replay would do, without doing any of it. */
import type { LetterKind } from '../../shared/dead-letters/reason.ts';
import { toError } from '../../shared/errors/to-error.ts';
import { encodeParameter } from '../../shared/postgres/statement.ts';
import { renderWithRaw } from '../../shared/tasks/json.ts';
import type { Clock } from '../../shared/time/clock.ts';
import { createMend } from './mend.ts';
import { mendWhole } from './mend-whole.ts';
import type { MendWholeDeps } from './mend-whole.ts';
import type { Mend, Mended } from './mend.ts';
import { checkReplay } from './replays.ts';
import type { NewReplay, ReplaysDeps } from './replays.ts';
import { readSelectionText } from './replays.sql.ts';
import type { Replayer } from './replayer.ts';
import type { SkipCode } from '../../shared/dead-letters/replay-state.ts';
import { conditionFor } from './selection.ts';
import type { Selection } from './selection.ts';

/** What a dry run needs. */
export interface DryRunDeps extends ReplaysDeps, MendWholeDeps {
  readonly clock: Clock;
  readonly replayer: Pick<Replayer, 'destinationOf'>;
}

interface Letter {
  readonly id: string;
  readonly kind: LetterKind;
  readonly state: string;
  readonly reason: string;
  readonly task_id: string | null;
  readonly exchange: string | null;
  readonly routing_key: string | null;
  readonly type: string | null;
  readonly task_state: string | null;
  readonly input: Buffer | null;
  readonly input_file: string | null;
}

const PER_PAGE = 2_000;
const MENDED_PER_PAGE = 50;
/** Milliseconds after which it says what it has found so far: somebody waits for the answer. */
const LONGEST_MS = 10_000;
const MOST_SAMPLES = 10;
/** Reasons of one code that are told apart. */
const MOST_REASONS = 20;
const LEAST_ID = '00000000-0000-0000-0000-000000000000';

/** Goes through the selection and gives the answer as JSON text, since samples show inputs byte for byte. Throws as `checkReplay`. */
export async function dryRun(asked: NewReplay, deps: DryRunDeps): Promise<string> {
  await checkReplay(asked, deps);
  await deps.refreshTypes();
  const { clock } = deps;
  const mend = asked.patch === undefined ? undefined : createMend(asked.patch, deps);
  const startedMs = clock.monotonicMs();
  const found = new Findings();
  let after = LEAST_ID;
  for (;;) {
    const most = mend === undefined ? PER_PAGE : MENDED_PER_PAGE;
    const letters = await readLetters(asked.selection, { deps, after, most, withInput: mend !== undefined });
    for (const letter of letters) found.add(letter, await judge(letter, { asked, mend, deps }), deps);
    after = letters.at(-1)?.id ?? after;
    if (letters.length < most) return found.render(false);
    if (clock.monotonicMs() - startedMs > LONGEST_MS) return found.render(true);
  }
}

async function readLetters(
  selection: Selection,
  { deps, after, most, withInput }: { deps: DryRunDeps; after: string; most: number; withInput: boolean },
): Promise<readonly Letter[]> {
  const values: unknown[] = [after, most, withInput];
  const text = readSelectionText(conditionFor(selection, values));
  const { rows } = await deps.db.query({ text, values: values.map((value) => encodeParameter(value)) });
  return rows as readonly Letter[];
}

type Verdict = Extract<Mended, { readonly kind: 'skip' }> | { readonly kind: 'ok'; readonly input?: Buffer };

const skip = (code: SkipCode, why: string): Verdict => ({ kind: 'skip', code, why });

async function judge(
  letter: Letter,
  { asked, mend, deps }: { readonly asked: NewReplay; readonly mend: Mend | undefined; readonly deps: DryRunDeps },
): Promise<Verdict> {
  if (letter.state !== 'open') return skip('closed', `it is ${letter.state}`);
  if (letter.kind === 'task') {
    if (letter.task_state !== 'dead') return skip('gone', 'its task is not dead');
    if (mend === undefined || letter.input === null || letter.type === null) return { kind: 'ok' };
    return await mendWhole(mend, { type: letter.type, input: letter.input, inputFile: letter.input_file }, deps);
  }
  if (mend !== undefined || asked.queue !== undefined || asked.priority !== undefined) {
    return skip('not-a-task', 'it never was a task');
  }
  try {
    deps.replayer.destinationOf(letter);
    return { kind: 'ok' };
  } catch (thrown) {
    return skip('not-sent', toError(thrown).message);
  }
}

/** Counts, and a few examples. */
class Findings {
  #letters = 0;
  #replayed = 0;
  readonly #skipped = new Map<SkipCode, Map<string, number>>();
  readonly #samples: string[] = [];

  add(letter: Letter, verdict: Verdict, { inputs }: MendWholeDeps): void {
    this.#letters += 1;
    if (verdict.kind === 'skip') {
      const reasons = this.#skipped.get(verdict.code) ?? new Map<string, number>();
      this.#skipped.set(verdict.code, reasons);
      const why = reasons.has(verdict.why) || reasons.size < MOST_REASONS ? verdict.why : 'other reasons';
      reasons.set(why, (reasons.get(why) ?? 0) + 1);
      return;
    }
    this.#replayed += 1;
    if (this.#samples.length >= MOST_SAMPLES) return;
    const { id: letterId, task_id: taskId, kind, type, input } = letter;
    const { input: mended } = verdict;
    const after = mended !== undefined && inputs.isLarge(mended) ? inputs.outline(mended) : mended;
    const raw = after === undefined ? {} : { before: input ?? undefined, after };
    this.#samples.push(renderWithRaw({ letterId, taskId, kind, type }, raw));
  }

  render(isPartial: boolean): string {
    const skipped = [...this.#skipped].flatMap(([code, reasons]) =>
      [...reasons].map(([why, letters]) => ({ code, why, letters })),
    );
    const members = {
      dryRun: true,
      isPartial,
      letters: this.#letters,
      replayed: this.#replayed,
      refused: this.#countOf(['input-refused', 'task-type-unknown', 'patch-misfit']),
      skipped: this.#letters - this.#replayed,
      reasons: skipped.toSorted((a, b) => b.letters - a.letters),
    };
    return renderWithRaw(members, { samples: `[${this.#samples.join(',')}]` });
  }

  #countOf(codes: readonly SkipCode[]): number {
    return codes
      .flatMap((code) => [...(this.#skipped.get(code)?.values() ?? [])])
      .reduce((sum, letters) => sum + letters, 0);
  }
}
