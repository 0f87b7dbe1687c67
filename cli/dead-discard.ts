/** `warren dead discard`: one dead letter by its id, or all that a filter fits. */
import type { Command } from 'commander';
import type { ApiAnswer, ApiClient } from './api.ts';
import { usageError } from './cli-error.ts';
import { pathStep } from './api.ts';
import type { Act, CommandContext } from './context.ts';
import { renderDeadLetters } from './dead-view.ts';
import { FILTER_HELP } from './filters.ts';
import { doToMany, previewMany } from './many.ts';
import { numberAt, viewsAt } from './view.ts';

interface Options {
  readonly filter?: string;
  readonly all?: true;
  readonly reason?: string;
  readonly yes?: true;
  readonly dryRun?: true;
}

/** Adds the command. */
export function addDiscard(dead: Command, act: Act, exampleId: string): void {
  dead
    .command('discard')
    .description('close dead letters without running them: one, or all open ones that a filter fits')
    .argument('[id]', 'id of the dead letter')
    .option('--filter <filter>', 'instead of an id: every open one that this fits')
    .option('--all', 'with a filter that fits every open one, or without any: yes, all of them')
    .option('--reason <text>', 'why, for the record')
    .option('--yes', 'do not ask')
    .option('--dry-run', 'only show how many, and ten of them')
    .addHelpText(
      'after',
      `${FILTER_HELP}

Examples:
  warren dead discard ${exampleId} --reason 'the customer cancelled the order'
  warren dead discard --filter 'type:mail.* age:>30d' --dry-run
  warren dead discard --filter 'type:mail.* age:>30d' --reason 'nobody waits for these any more' --yes`,
    )
    .action(
      act<Options>(async (context, options, id) => {
        const { reason, dryRun } = options;
        if (reason === undefined && dryRun !== true) {
          throw usageError("Required option '--reason <text>' not specified.", 'It is kept with each letter.');
        }
        const isMany = options.filter !== undefined || options.all === true;
        if (isMany === (id !== undefined)) throw usageError('Give an id or --filter, one of them.');
        const api = await context.deadLetterApi();
        if (dryRun === true) {
          const selection = id === undefined ? selectionOf(options) : { ids: [id] };
          const answer = await previewMany(api, { path: PATH, selection });
          context.printJson(answer.bytes);
          context.print(renderPreview(answer, context));
          return;
        }
        if (id === undefined) {
          await discardMany(context, api, options);
          return;
        }
        const answer = await api.post(`/v1/dead-letters/${pathStep(id)}/discard`, JSON.stringify({ reason }));
        context.printJson(answer.bytes);
        context.print('Discarded.\n');
      }),
    );
}

const PATH = '/v1/dead-letters/discard';

function selectionOf({ filter, all }: Options): Readonly<Record<string, unknown>> {
  return { filter: filter ?? '', ...(all === true ? { all } : {}) };
}

async function discardMany(context: CommandContext, api: ApiClient, options: Options): Promise<void> {
  const counts = await doToMany(context, api, {
    path: PATH,
    selection: selectionOf(options),
    order: { reason: options.reason },
    isYes: options.yes === true,
    question: 'Discard them?',
    nothing: 'No open dead letter fits.\n',
    narrow: 'narrow the filter by type, reason or age',
    counts: ['discarded'],
    renderPreview: (answer) => renderPreview(answer, context),
  });
  if (counts === undefined) return;
  context.printJson(counts);
  context.print(`${counts['discarded'] ?? 0} discarded.\n`);
}

function renderPreview({ value }: ApiAnswer, context: CommandContext): string {
  const selected = numberAt(value, 'selected') ?? 0;
  const samples = viewsAt(value, 'samples');
  const count = `${value['isPartial'] === true ? 'At least ' : ''}${selected} open dead letters fit`;
  if (samples.length === 0) return `${count}.\n`;
  return `${count}${samples.length < selected ? ', the newest of them' : ''}:\n${renderDeadLetters(samples, context)}`;
}
