/** Doing something to many: asks with the number and samples in view, then goes on until the service says that nothing is left. */
import { interruptedError } from './api.ts';
import type { ApiAnswer, ApiClient } from './api.ts';
import { confirm } from './confirm.ts';
import type { CommandContext } from './context.ts';
import { EXIT_CODES } from './exit-codes.ts';
import { cut } from './render.ts';
import { numberAt, textAt } from './view.ts';

/** What is done, and how it is talked about. */
export interface Many {
  readonly path: string;
  /** Members of each request: what is selected, and what is done to it. */
  readonly selection: Readonly<Record<string, unknown>>;
  /** Members of a request that does it, beside those: the reason. */
  readonly order: Readonly<Record<string, unknown>>;
  readonly isYes: boolean;
  readonly question: string;
  /** Where nothing is selected. */
  readonly nothing: string;
  /** How to select less, where what is selected cannot be found in time. */
  readonly narrow: string;
  /** Members of an answer that count what was done; the first says it in one word. */
  readonly counts: readonly string[];
  /** Members that count more of what was done, to the same tasks. */
  readonly besides?: readonly string[];
  renderPreview(answer: ApiAnswer): string;
}

/** Milliseconds that a request for many may take, so that people see how far it is. */
export const SLICE_MS = 1_000;

/** What was done in all, by the names of `counts`; `undefined` where it was not begun. */
export type ManyCounts = Readonly<Record<string, number>>;

/** Says how many there are, and does nothing. */
export async function previewMany(
  api: ApiClient,
  { path, selection }: Pick<Many, 'path' | 'selection'>,
): Promise<ApiAnswer> {
  return await api.post(path, JSON.stringify({ ...selection, dryRun: true }));
}

/** Asks and does it. Throws exit 2 where nobody can be asked, 130 on Ctrl-C: what was done until then stays done. */
export async function doToMany(context: CommandContext, api: ApiClient, many: Many): Promise<ManyCounts | undefined> {
  const { io, isJson } = context;
  const isAsking = !many.isYes && io.ask !== undefined && !isJson;
  let selected: number | undefined;
  if (isAsking || (io.stderr.isTTY && !isJson)) {
    const answer = await previewMany(api, many);
    selected = numberAt(answer.value, 'selected');
    if (selected === 0) {
      context.print(many.nothing);
      return undefined;
    }
    if (answer.value['isPartial'] === true) selected = undefined;
    if (isAsking) context.remark(many.renderPreview(answer));
  }
  if (!(await confirm(context, many.question, many.isYes))) {
    context.remark('Nothing was done.\n');
    return undefined;
  }
  return await goThrough(context, api, { many, selected });
}

async function goThrough(
  context: CommandContext,
  api: ApiClient,
  { many, selected }: { readonly many: Many; readonly selected: number | undefined },
): Promise<ManyCounts> {
  const { counts, besides = [] } = many;
  const names = [...counts, ...besides];
  const totals: Record<string, number> = Object.fromEntries(names.map((name) => [name, 0]));
  const sum = (): number => counts.reduce((all, name) => all + (totals[name] ?? 0), 0);
  const [verb = ''] = counts;
  const bar = new Bar(context, selected);
  const said = (): string => `${totals[verb] ?? 0} ${verb} so far`;
  let cursor: string | undefined;
  try {
    for (;;) {
      const { value } = await api.post(many.path, JSON.stringify({ ...many.selection, ...many.order, cursor }));
      const before = sum();
      for (const name of names) totals[name] = (totals[name] ?? 0) + (numberAt(value, name) ?? 0);
      if (value['isPartial'] !== true) return totals;
      cursor = textAt(value, 'nextCursor');
      if (cursor === undefined && sum() === before) {
        // The next round would begin at the top again, and end no further down.
        bar.close();
        context.remark(`There may be more that are not found in time; ${many.narrow}.\n`);
        context.exitWith(EXIT_CODES.failed);
        return totals;
      }
      bar.show(sum(), said());
      if (context.io.interrupted.aborted) throw interruptedError();
    }
  } catch (thrown) {
    bar.close();
    context.remark(`${said()}; that stays done.\n`);
    throw thrown;
  } finally {
    bar.close();
  }
}

const BAR_WIDTH = 24;

/** How far it is: on a terminal one line that is written over, elsewhere a line now and then. */
class Bar {
  readonly #context: CommandContext;
  readonly #total: number | undefined;
  #isOpen = false;

  constructor(context: CommandContext, total: number | undefined) {
    this.#context = context;
    this.#total = total;
  }

  show(done: number, said: string): void {
    const { io, isJson } = this.#context;
    if (isJson) return;
    if (!io.stderr.isTTY) {
      this.#context.remark(`${said}.\n`);
      return;
    }
    const line = this.#total === undefined ? said : `${renderBar(done, this.#total)} of ${this.#total}, ${said}`;
    io.stderr.write(`\r\u001b[K${cut(line, (io.stderr.columns ?? 80) - 1)}`);
    this.#isOpen = true;
  }

  close(): void {
    if (this.#isOpen) this.#context.io.stderr.write('\r\u001b[K');
    this.#isOpen = false;
  }
}

/** `[######..................]  25 %`. More may have come than were counted at first. */
function renderBar(done: number, total: number): string {
  const fraction = Math.min(1, done / Math.max(1, total));
  const full = Math.floor(fraction * BAR_WIDTH);
  return `[${'#'.repeat(full)}${'.'.repeat(BAR_WIDTH - full)}] ${String(Math.floor(fraction * 100)).padStart(3)} %`;
}
