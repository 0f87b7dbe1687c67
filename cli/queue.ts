/** `warren queue …`: look at queues, pause, drain, purge and resume them, make them fair, and tell how many workers they want. */
import type { Command } from 'commander';
import { pathStep } from './api.ts';
import type { Act } from './context.ts';
import { escapeText } from './escape.ts';
import { integerIn, weightOf } from './parse.ts';
import { addScaling } from './queue-scaling.ts';
import { renderAge, renderTable } from './render.ts';
import { cancelMany } from './task-many.ts';
import { numberAt, textAt, viewAt, viewsAt } from './view.ts';
import type { View } from './view.ts';

interface PurgeOptions {
  readonly reason: string;
  readonly yes?: true;
  readonly dryRun?: true;
}

interface FairOptions extends ModeOptions {
  readonly key: string;
  readonly weight?: readonly (readonly [key: string, tasks: number])[];
  readonly depth?: number;
}

interface ModeOptions {
  readonly reason?: string;
}

/** Adds the group. */
export function addQueueCommands(program: Command, act: Act): void {
  const queue = program
    .command('queue')
    .helpCommand(false)
    .description('queues: look, pause, drain, purge, resume, make fair, scale');
  addList(queue, act);
  addMode(queue, act, 'pause', {
    does: 'start no task of a queue any more; what runs goes on',
    done: 'is paused: what runs goes on, nothing more starts',
    example: `--reason 'the mail provider is down'`,
  });
  addMode(queue, act, 'drain', {
    does: 'run what a queue has, and hold back what comes in from now on',
    done: 'is drained: what it has runs, what comes in waits',
    example: `--reason 'move to the new cluster'`,
  });
  addPurge(queue, act);
  addMode(queue, act, 'resume', { does: 'open a queue again', done: 'is open', example: '' });
  addFair(queue, act);
  addMode(queue, act, 'unfair', {
    does: 'serve a queue first come, first served again',
    done: 'is served first come, first served; what waited for its turn goes at once',
    example: '',
  });
  addScaling(queue, act);
}

function addList(queue: Command, act: Act): void {
  queue
    .command('list')
    .description('list queues with their modes, and what waits and runs')
    .addHelpText('after', `\nExamples:\n  warren queue list\n  warren queue list --json`)
    .action(
      act(async (context) => {
        const api = await context.taskApi();
        const answer = await api.get('/v1/queues');
        context.printJson(answer.bytes);
        const now = context.io.clock.now();
        context.print(
          renderTable(
            ['QUEUE', 'MODE', 'READY', 'RUNNING', 'SINCE', 'BY', 'REASON', 'FAIR BY'],
            viewsAt(answer.value, 'items').map((item) => {
              const since = textAt(item, 'modeSince');
              return [
                textAt(item, 'name') ?? '',
                (textAt(item, 'mode') ?? '') + (item['holdsBack'] === true ? ' (holds back)' : ''),
                String(numberAt(item, 'ready') ?? '?'),
                String(numberAt(item, 'running') ?? 0),
                since === undefined ? '' : renderAge(since, now),
                textAt(item, 'modeBy') ?? '',
                textAt(item, 'modeReason') ?? '',
                fairnessOf(viewAt(item, 'fairness')),
              ].map((text) => escapeText(text));
            }),
            { paint: context.paint },
          ),
        );
      }),
    );
}

function fairnessOf(fairness: View | undefined): string {
  if (fairness === undefined) return '';
  const waiting = numberAt(fairness, 'waiting') ?? 0;
  return `${textAt(fairness, 'key') ?? ''}${waiting === 0 ? '' : ` (${waiting} wait)`}`;
}

function addPurge(queue: Command, act: Act): void {
  queue
    .command('purge')
    .description('cancel every task of a queue that waits, now or for its time; what runs goes on')
    .argument('<name>', 'name of the queue')
    .requiredOption('--reason <text>', 'why; kept with each task')
    .option('--yes', 'do not ask')
    .option('--dry-run', 'only show how many, and ten of them')
    .addHelpText(
      'after',
      `
Each task ends as cancelled, with its line in the audit; nothing is deleted. Pause the queue first where nothing more may start.

Examples:
  warren queue purge reports --reason 'the campaign was called off' --dry-run
  warren queue purge reports --reason 'the campaign was called off' --yes`,
    )
    .action(
      act<PurgeOptions>(async (context, options, name) => {
        const filter = `queue:${JSON.stringify(name)} state:pending,scheduled,retrying,blocked`;
        await cancelMany(context, { ...options, filter });
      }),
    );
}

function addMode(
  queue: Command,
  act: Act,
  verb: string,
  { does, done, example }: { readonly does: string; readonly done: string; readonly example: string },
): void {
  queue
    .command(verb)
    .description(does)
    .argument('<name>', 'name of the queue')
    .option('--reason <text>', 'why; shown with the queue and kept in the audit')
    .addHelpText('after', `\nExamples:\n  warren queue ${verb} reports ${example}`.trimEnd())
    .action(
      act<ModeOptions>(async (context, { reason }, name) => {
        const api = await context.taskApi();
        const answer = await api.post(`/v1/queues/${pathStep(name)}/${verb}`, JSON.stringify({ reason }));
        context.printJson(answer.bytes);
        context.print(`${escapeText(name)} ${done}\n`);
      }),
    );
}

function addFair(queue: Command, act: Act): void {
  queue
    .command('fair')
    .description('let the values of a member of the input take turns, so that one with a million tasks holds up nobody')
    .argument('<name>', 'name of the queue')
    .requiredOption('--key <path>', 'member of the input whose values take turns, such as input.tenantId')
    .option('--weight <key=tasks>', 'tasks in a turn of a key, 1 to 100; may be given again. Default 1', weightOf)
    .option(
      '--depth <tasks>',
      'tasks invited at a time, more than all slots of its workers. Default 100',
      integerIn(1, 1_000),
    )
    .option('--reason <text>', 'why; kept in the audit')
    .addHelpText(
      'after',
      `
What waits already stays first come, first served; from now on tasks wait for their turn. Weights given here replace those of before.

Examples:
  warren queue fair reports --key input.tenantId
  warren queue fair reports --key input.tenantId --weight acme=3 --depth 50 --reason 'acme pays for it'`,
    )
    .action(
      act<FairOptions>(async (context, { key, weight = [], depth, reason }, name) => {
        const api = await context.taskApi();
        const body = JSON.stringify({ key, weights: Object.fromEntries(weight), depth, reason });
        const answer = await api.post(`/v1/queues/${pathStep(name)}/fair`, body);
        context.printJson(answer.bytes);
        context.print(`${escapeText(name)} is fair by ${escapeText(key)}\n`);
      }),
    );
}
