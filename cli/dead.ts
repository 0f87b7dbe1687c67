/** `warren dead …`: list, show, export, replay, discard dead letters. */
import type { Command } from 'commander';
import { LETTER_KINDS, LETTER_STATES } from '../shared/dead-letters/reason.ts';
import type { Clock } from '../shared/time/clock.ts';
import { pathStep } from './api.ts';
import type { Act } from './context.ts';
import { addGroupCommands } from './dead-groups.ts';
import { addDiscard } from './dead-discard.ts';
import { addExport } from './dead-export.ts';
import { renderDeadLetter, renderDeadLetters } from './dead-view.ts';
import { escapeText } from './escape.ts';
import { FILTER_HELP, filterOf } from './filters.ts';
import { addPaging, fetchListing, printListing } from './pages.ts';
import type { PagingOptions } from './pages.ts';
import type { Destination } from './parse.ts';
import { instantOrDuration, oneOf, parseDestination } from './parse.ts';
import { addWait, conclude, TASK } from './task.ts';
import { waitForEnd } from './wait.ts';
import { textAt } from './view.ts';

const STATES = [...Object.keys(LETTER_STATES), 'all'];
const KINDS = Object.keys(LETTER_KINDS);
const EXAMPLE_ID = '0198f3a4-0b52-7e6f-8c1d-4a9e7b3f2c60';

interface ListOptions extends PagingOptions {
  readonly state?: readonly string[];
  readonly kind?: readonly string[];
  readonly type?: string;
  readonly queue?: string;
  readonly reason?: string;
  readonly task?: string;
  readonly after?: string;
  readonly before?: string;
}

interface ReplayOptions {
  readonly reason?: string;
  readonly to?: Destination;
  readonly wait?: true;
  readonly timeout?: number;
}

/** Adds the group. */
export function addDeadCommands(program: Command, act: Act, clock: Clock): void {
  const dead = program.command('dead').helpCommand(false).description('look at dead letters, replay or discard them');
  addList(dead, act, clock);
  addShow(dead, act);
  addExport(dead, act);
  addReplay(dead, act);
  addGroupCommands(dead, act);
  addDiscard(dead, act, EXAMPLE_ID);
}

function addList(dead: Command, act: Act, clock: Clock): void {
  const past = instantOrDuration(() => clock.now(), 'past');
  addPaging(
    dead
      .command('list')
      .description('list dead letters, newest first')
      .argument('[filter...]', 'only those that this fits; see the examples')
      .option(
        '--state <state>',
        `only these, default open; may be given more than once: ${STATES.join(', ')}`,
        oneOf(STATES),
      )
      .option('--kind <kind>', `only these; may be given more than once: ${KINDS.join(', ')}`, oneOf(KINDS))
      .option('--type <type>', 'only of this task type')
      .option('--queue <name>', 'only of this queue')
      .option('--reason <reason>', 'only with this reason')
      .option('--task <id>', 'only of this task')
      .option('--after <when>', 'died after this instant, or within this duration: 2h', past)
      .option('--before <when>', 'died before this instant, or longer ago than this duration', past),
    'letters',
  )
    .addHelpText(
      'after',
      `${FILTER_HELP}

Examples:
  warren dead list
  warren dead list 'reason:timeout type:image.* age:>1h'
  warren dead list 'error:"ECONNREFUSED" -tag:vip attempts:>=3' --all
  warren dead list 'input.user.id:42 state:all died:>=2026-01-31'
  warren dead list --type report.csv --after 1d --json`,
    )
    .action(
      act<ListOptions>(async (context, options, ...words) => {
        const { all, after, before, task, ...filters } = options;
        const listing = await fetchListing(await context.deadLetterApi(), '/v1/dead-letters', {
          query: { ...filters, filter: filterOf(words), taskId: task, diedAfter: after, diedBefore: before },
          isAll: all === true,
        });
        printListing(context, listing, (items) => renderDeadLetters(items, context));
      }),
    );
}

function addShow(dead: Command, act: Act): void {
  dead
    .command('show')
    .description('show a dead letter: why it died, each attempt, the whole original message')
    .argument('<id>', 'id of the dead letter')
    .addHelpText('after', `\nExamples:\n  warren dead show ${EXAMPLE_ID}\n  warren dead show ${EXAMPLE_ID} --json`)
    .action(
      act(async (context, _options, id) => {
        const answer = await (await context.deadLetterApi()).get(`/v1/dead-letters/${pathStep(id)}`);
        context.printJson(answer.bytes);
        context.print(renderDeadLetter(answer, context));
      }),
    );
}

function addReplay(dead: Command, act: Act): void {
  const replay = dead
    .command('replay')
    .description('run a dead task again with a renewed budget of attempts, or send another letter back')
    .argument('<id>', 'id of the dead letter')
    .option('--reason <text>', 'why, for the record')
    .option(
      '--to <exchange/routing-key>',
      'where a foreign letter goes, if not to where it came from; /queue is a queue by its name',
      parseDestination,
    );
  addWait(replay)
    .addHelpText('after', `\nExamples:\n  warren dead replay ${EXAMPLE_ID} --reason 'disk is free again' --wait`)
    .action(
      act<ReplayOptions>(async (context, options, id) => {
        const api = await context.deadLetterApi();
        const answer = await api.post(
          `/v1/dead-letters/${pathStep(id)}/replay`,
          JSON.stringify({ reason: options.reason, destination: options.to }),
        );
        const taskId = textAt(answer.value, 'taskId');
        if (options.wait === true && taskId !== undefined) {
          context.remark(`Replayed; task ${escapeText(taskId)}.\n`);
          conclude(
            context,
            await waitForEnd(context, await context.taskApi(), TASK, { id: taskId, timeoutMs: options.timeout }),
          );
          return;
        }
        context.printJson(answer.bytes);
        const isUnderWay = textAt(answer.value, 'state') === 'replaying';
        context.print(taskId === undefined ? 'Replayed.\n' : `Replayed; task ${escapeText(taskId)}.\n`);
        if (isUnderWay) context.remark('RabbitMQ has not confirmed it yet; that is finished by itself.\n');
      }),
    );
}
