/** `warren task cancel` and `warren task edit`: one task by its id, or all that a filter fits. */
import type { Command } from 'commander';
import type { Clock } from '../shared/time/clock.ts';
import { renderWithRaw } from '../shared/tasks/json.ts';
import { pathStep } from './api.ts';
import type { ApiAnswer } from './api.ts';
import { usageError } from './cli-error.ts';
import type { Act, CommandContext } from './context.ts';
import { TASK_FILTER_HELP } from './filters.ts';
import { doToMany, previewMany, SLICE_MS } from './many.ts';
import type { Many } from './many.ts';
import { instantOrDuration, integerIn, parseDuration, parseInstant } from './parse.ts';
import { readInput } from './submission.ts';
import { renderTask, renderTasks } from './task-view.ts';
import { numberAt, textAt, viewsAt } from './view.ts';

const EXAMPLE_ID = '0198f3a2-7c10-7d3e-9a4b-2f6c1d8e5b70';

interface ManyOptions {
  readonly filter?: string;
  readonly all?: true;
  readonly reason?: string;
  readonly yes?: true;
  readonly dryRun?: true;
}

interface EditOptions extends ManyOptions {
  readonly priority?: number;
  readonly queue?: string;
  readonly runAt?: string;
  readonly delay?: number;
  readonly now?: true;
  /** False of `--no-deadline`. */
  readonly deadline?: string | false;
  readonly input?: string;
  readonly inputFile?: string;
  readonly ifGeneration?: number;
}

/** Adds the command. */
export function addCancel(task: Command, act: Act): void {
  const cancel = task
    .command('cancel')
    .description(
      'cancel tasks, one or all that a filter fits: at once where they wait, by aborting their attempts where they run',
    )
    .argument('[id]', 'id of the task');
  addManyOptions(cancel)
    .addHelpText(
      'after',
      `${TASK_FILTER_HELP}

Examples:
  warren task cancel ${EXAMPLE_ID}
  warren task cancel --filter 'type:report.* state:pending,scheduled age:>1d' --dry-run
  warren task cancel --filter 'tag:campaign-7' --reason 'the campaign was called off' --yes`,
    )
    .action(
      act<ManyOptions>(async (context, options, id) => {
        if (await cancelMany(context, options, id)) return;
        if (id === undefined || options.dryRun === true) return;
        const api = await context.taskApi();
        const body = JSON.stringify({ reason: options.reason });
        const answer = await api.post(`/v1/tasks/${pathStep(id)}/cancel`, body);
        context.printJson(answer.bytes);
        const isOver = textAt(answer.value, 'state') === 'cancelled';
        context.print(isOver ? 'Cancelled.\n' : 'It runs; its worker has been asked to abort it.\n');
      }),
    );
}

/** Cancels what a filter fits, after a look at it; false for a single task, or where it was only to be looked at. */
export async function cancelMany(context: CommandContext, options: ManyOptions, id?: string): Promise<boolean> {
  const path = '/v1/tasks/cancel';
  if (!(await isForMany(context, options, { id, path, changes: {} }))) return false;
  await manyTasks(context, options, {
    path,
    changes: {},
    question: 'Cancel them?',
    counts: ['cancelled', 'requested', 'skipped'],
    sayDone: ({ cancelled = 0, requested = 0, skipped = 0 }) =>
      `${cancelled} cancelled; ${requested} run, their workers have been asked to abort them; ${skipped} had ended.\n`,
  });
  return true;
}

/** Adds the command. */
export function addEdit(task: Command, act: Act, clock: Clock): void {
  const ahead = instantOrDuration(() => clock.now(), 'ahead');
  const edit = task
    .command('edit')
    .description(
      'change what waits, one task or all that a filter fits: priority, queue, when it starts, deadline, input',
    )
    .argument('[id]', 'id of the task')
    .option('--priority <0-9>', '9 goes first', integerIn(0, 9))
    .option('--queue <name>', 'another queue')
    .option('--run-at <instant>', 'start no sooner than this: 2030-01-31T18:00:00Z', parseInstant)
    .option('--delay <duration>', 'start no sooner than this from now: 10s, 5m, 2h', parseDuration)
    .option('--now', 'start as soon as a worker is free')
    .option('--deadline <when>', 'expire when not started by then: an instant, or a duration from now; one task', ahead)
    .option('--no-deadline', 'never expire; one task')
    .option('--input <json>', 'another input, as a whole; one task')
    .option('--input-file <file>', 'the same from a file; - is standard input')
    .option(
      '--if-generation <number>',
      'only where it is still in this generation; one task',
      integerIn(1, 999_999_999),
    );
  addManyOptions(edit)
    .addHelpText(
      'after',
      `${TASK_FILTER_HELP}

Examples:
  warren task edit ${EXAMPLE_ID} --priority 9 --now
  warren task edit ${EXAMPLE_ID} --input '{"file": "sales.csv"}' --reason 'the file was renamed'
  warren task edit --filter 'queue:bulk type:report.*' --delay 8h --reason 'wait for the night' --yes`,
    )
    .action(
      act<EditOptions>(async (context, options, id) => {
        const changes = changesOf(options);
        if (await isForMany(context, options, { id, path: '/v1/tasks/edit', changes: { changes } })) {
          const { deadline, input, inputFile, ifGeneration } = options;
          if ([deadline, input, inputFile, ifGeneration].some((given) => given !== undefined)) {
            throw usageError('--deadline, --input and --if-generation are for one task by its id.');
          }
          await manyTasks(context, options, {
            path: '/v1/tasks/edit',
            changes: { changes },
            question: 'Change them?',
            counts: ['edited', 'skipped'],
            sayDone: ({ edited = 0, skipped = 0 }) =>
              `${edited} changed; ${skipped} were so already, or no longer wait.\n`,
          });
          return;
        }
        if (id === undefined || options.dryRun === true) return;
        await editOne(context, id, { ...options, changes });
      }),
    );
}

function addManyOptions(command: Command): Command {
  return command
    .option('--filter <filter>', 'instead of an id: every task that this fits and that has not ended')
    .option('--all', 'with a filter that fits every task, or without any: yes, all of them')
    .option('--reason <text>', 'why, for the record; required with a filter')
    .option('--yes', 'do not ask')
    .option('--dry-run', 'with a filter: only show how many, and ten of them');
}

function changesOf({ priority, queue, runAt, delay, now }: EditOptions): Readonly<Record<string, unknown>> {
  if ([runAt, delay, now].filter((given) => given !== undefined).length > 1) {
    throw usageError('Give --run-at, --delay or --now, one of them.');
  }
  return { priority, queue, runAt, delayMs: now === true ? 0 : delay };
}

async function editOne(
  context: CommandContext,
  id: string,
  {
    changes,
    deadline,
    reason,
    ifGeneration,
    ...input
  }: EditOptions & { readonly changes: Readonly<Record<string, unknown>> },
): Promise<void> {
  const hasInput = input.input !== undefined || input.inputFile !== undefined;
  const body = renderWithRaw(
    { ...changes, deadline: deadline === false ? null : deadline, reason },
    hasInput ? { input: await readInput(input, context.io) } : {},
  );
  const api = await context.taskApi();
  const etag = ifGeneration === undefined ? undefined : `"${ifGeneration}"`;
  const answer = await api.patch(`/v1/tasks/${pathStep(id)}`, body, etag);
  context.printJson(answer.bytes);
  context.print(renderTask(answer, context));
}

interface ManyTasks extends Pick<Many, 'path' | 'question' | 'counts'> {
  readonly changes: Readonly<Record<string, unknown>>;
  sayDone(counts: Readonly<Record<string, number>>): string;
}

/** True for a filter that is to be acted on; a dry run is done here. Throws exit 2 for an id and a filter, and for neither. */
async function isForMany(
  context: CommandContext,
  options: ManyOptions,
  { id, path, changes }: { readonly id: string | undefined } & Pick<ManyTasks, 'path' | 'changes'>,
): Promise<boolean> {
  const isMany = options.filter !== undefined || options.all === true;
  if (isMany === (id !== undefined)) throw usageError('Give an id or --filter, one of them.');
  if (options.dryRun !== true) {
    if (isMany && options.reason === undefined) {
      throw usageError("Required option '--reason <text>' not specified.", 'It is kept with each task.');
    }
    return isMany;
  }
  if (!isMany) throw usageError('--dry-run is for --filter.');
  const answer = await previewMany(await context.taskApi(), { path, selection: selectionOf(options, changes) });
  context.printJson(answer.bytes);
  context.print(renderPreview(answer, context));
  return false;
}

async function manyTasks(context: CommandContext, options: ManyOptions, many: ManyTasks): Promise<void> {
  const counts = await doToMany(context, await context.taskApi(), {
    ...many,
    selection: selectionOf(options, many.changes),
    order: { reason: options.reason, withinMs: SLICE_MS },
    isYes: options.yes === true,
    nothing: 'No task fits that this could be done to.\n',
    narrow: 'narrow the filter by state, type or age',
    renderPreview: (answer) => renderPreview(answer, context),
  });
  if (counts === undefined) return;
  context.printJson(counts);
  context.print(many.sayDone(counts));
}

function selectionOf(
  { filter, all }: ManyOptions,
  changes: Readonly<Record<string, unknown>>,
): Readonly<Record<string, unknown>> {
  return { filter: filter ?? '', ...(all === true ? { all } : {}), ...changes };
}

/** How many there are, and the newest of them. */
export function renderPreview({ value }: ApiAnswer, context: CommandContext): string {
  const selected = numberAt(value, 'selected') ?? 0;
  const samples = viewsAt(value, 'samples');
  const count = `${value['isPartial'] === true ? 'At least ' : ''}${selected} tasks fit`;
  if (samples.length === 0) return `${count}.\n`;
  return `${count}${samples.length < selected ? ', the newest of them' : ''}:\n${renderTasks(samples, context)}`;
}
