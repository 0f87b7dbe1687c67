/** `warren task …`: submit, get, list; the rest of a task's life is in the other `task-*.ts`. */
import type { Command } from 'commander';
import { CONFLICT_RULES, UNIQUE_WHILE } from '../shared/amqp/message.ts';
import { TASK_STATES } from '../shared/tasks/state-machine.ts';
import type { Clock } from '../shared/time/clock.ts';
import { pathStep } from './api.ts';
import type { ApiAnswer } from './api.ts';
import type { Act, CommandContext } from './context.ts';
import { EXIT_CODES } from './exit-codes.ts';
import { TASK_FILTER_HELP } from './filters.ts';
import { addPaging, fetchListing, printListing } from './pages.ts';
import type { PagingOptions } from './pages.ts';
import { choiceOf, collect, instantOrDuration, integerIn, oneOf, parseDuration, parseInstant } from './parse.ts';
import { addHistoryCommands } from './task-history.ts';
import { renderSubmission } from './submission.ts';
import type { SubmitOptions } from './submission.ts';
import { addCancel, addEdit } from './task-many.ts';
import { hasEnded, isBadEnd, renderStanding, renderTask, renderTasks } from './task-view.ts';
import { waitForEnd } from './wait.ts';
import type { Waitable } from './wait.ts';
import { addFileCommands } from './task-files.ts';
import { textAt } from './view.ts';
import { escapeText } from './escape.ts';

interface WaitOptions {
  readonly wait?: true;
  readonly timeout?: number;
}

interface ListOptions extends PagingOptions {
  readonly state?: readonly string[];
  readonly type?: string;
  readonly queue?: string;
  readonly tag?: string;
  readonly businessKey?: string;
  readonly externalId?: string;
  readonly after?: string;
  readonly before?: string;
  readonly filter?: string;
}

/** How tasks are waited for. */
export const TASK: Waitable = {
  noun: 'task',
  path: '/v1/tasks',
  hasEnded: (view) => hasEnded(textAt(view, 'state') ?? ''),
  standing: renderStanding,
  look: 'get',
};

/** Adds the group. */
export function addTaskCommands(program: Command, act: Act, clock: Clock): void {
  const task = program
    .command('task')
    .helpCommand(false)
    .description('submit tasks, follow, find, edit and cancel them');
  addSubmit(task, act, clock);
  addGet(task, act);
  addList(task, act, clock);
  addCancel(task, act);
  addEdit(task, act, clock);
  addHistoryCommands(task, act);
  addFileCommands(task, act);
}

function addSubmit(task: Command, act: Act, clock: Clock): void {
  const submit = task
    .command('submit')
    .description('submit a task; prints its id')
    .argument('<type>', 'task type, such as report.csv')
    .option('--input <json>', 'the input as JSON, sent byte for byte as given (default: {})')
    .option('--input-file <file>', 'the input from a file; - is standard input')
    .option('--queue <name>', 'another queue than that of the type')
    .option('--priority <0-9>', '9 goes first', integerIn(0, 9))
    .option('--delay <duration>', 'start no sooner than this from now: 10s, 5m, 2h', parseDuration)
    .option('--run-at <instant>', 'start no sooner than this: 2030-01-31T18:00:00Z', parseInstant)
    .option(
      '--deadline <when>',
      'expire when not started by then: an instant, or a duration from now',
      instantOrDuration(() => clock.now(), 'ahead'),
    )
    .option('--max-attempts <1-100>', 'all runs, the first included', integerIn(1, 100))
    .option('--tag <tag>', 'a tag to find it by; may be given more than once', collect)
    .option('--business-key <key>', 'your own key to find it by')
    .option('--unique-key <key>', 'one task of the type at a time under this key')
    .option('--unique-while <what>', 'while what its task holds the key (default: unfinished)', choiceOf(UNIQUE_WHILE))
    .option(
      '--unique-within <duration>',
      'hold the key for so long instead, whatever becomes of the task',
      parseDuration,
    )
    .option('--on-conflict <rule>', 'while another task holds the key (default: return)', choiceOf(CONFLICT_RULES))
    .option('--idempotency-key <key>', 'the same key again makes no second task');
  addWait(submit)
    .addHelpText(
      'after',
      `
Examples:
  warren task submit report.csv --input '{"file": "sales.csv"}'
  warren task submit image.thumbnail --input-file input.json --priority 9 --wait
  echo '{"text": "hello"}' | warren task submit text.digest --input-file - --delay 10s --json
  warren task submit report.csv --input '{"file": "sales.csv"}' --unique-key sales --on-conflict reject`,
    )
    .action(
      act<SubmitOptions & WaitOptions & { readonly idempotencyKey?: string }>(async (context, options, type) => {
        const body = await renderSubmission(type, options, context.io);
        const api = await context.taskApi();
        const { idempotencyKey: key } = options;
        const headers: Record<string, string> = key === undefined ? {} : { 'idempotency-key': key };
        const accepted = await api.post('/v1/tasks', body, headers);
        const id = textAt(accepted.value, 'id') ?? '';
        const became = accepted.value['duplicate'] === true ? 'Was there already' : 'Accepted';
        if (options.wait !== true) {
          context.printJson(accepted.bytes);
          context.print(`${escapeText(id)}\n`);
          context.remark(`${became}. \`warren task get ${escapeText(id)} --wait\` follows it.\n`);
          return;
        }
        context.remark(`${became} as ${escapeText(id)}.\n`);
        conclude(context, await waitForEnd(context, api, TASK, { id, timeoutMs: options.timeout }));
      }),
    );
}

function addGet(task: Command, act: Act): void {
  addWait(task.command('get').description('show a task').argument('<id>', 'id of the task'))
    .addHelpText(
      'after',
      `
Examples:
  warren task get 0198f3a2-7c10-7d3e-9a4b-2f6c1d8e5b70
  warren task get 0198f3a2-7c10-7d3e-9a4b-2f6c1d8e5b70 --wait --timeout 5m
  warren task get 0198f3a2-7c10-7d3e-9a4b-2f6c1d8e5b70 --json`,
    )
    .action(
      act<WaitOptions>(async (context, options, id) => {
        const api = await context.taskApi();
        if (options.wait === true) {
          conclude(context, await waitForEnd(context, api, TASK, { id, timeoutMs: options.timeout }));
        } else show(context, await api.get(`/v1/tasks/${pathStep(id)}`));
      }),
    );
}

function addList(task: Command, act: Act, clock: Clock): void {
  const past = instantOrDuration(() => clock.now(), 'past');
  addPaging(
    task
      .command('list')
      .description('list tasks, newest first')
      .option(
        '--state <state>',
        `only these; may be given more than once: ${TASK_STATES.join(', ')}`,
        oneOf(TASK_STATES),
      )
      .option('--type <type>', 'only of this task type')
      .option('--queue <name>', 'only of this queue')
      .option('--tag <tag>', 'only with this tag')
      .option('--business-key <key>', 'only with this business key')
      .option('--external-id <id>', 'only with this message id of its publisher')
      .option('--after <when>', 'accepted after this instant, or within this duration: 2h', past)
      .option('--before <when>', 'accepted before this instant, or longer ago than this duration', past)
      .option('--filter <filter>', 'only those that this fits; see below'),
    'tasks',
  )
    .addHelpText(
      'after',
      `${TASK_FILTER_HELP}

Examples:
  warren task list --state dead --type report.csv
  warren task list --filter 'state:retrying error:"ECONNREFUSED" -tag:vip priority:<=4 input.user.id:42'
  warren task list --business-key order-1042
  warren task list --after 2h --all --json`,
    )
    .action(
      act<ListOptions>(async (context, options) => {
        const { all, after, before, ...filters } = options;
        const listing = await fetchListing(await context.taskApi(), '/v1/tasks', {
          query: { ...filters, acceptedAfter: after, acceptedBefore: before },
          isAll: all === true,
        });
        printListing(context, listing, (items) => renderTasks(items, context));
      }),
    );
}

/** Adds --wait and --timeout. */
export function addWait(command: Command): Command {
  return command
    .option('--wait', 'wait until the task has ended, and show how far it is')
    .option('--timeout <duration>', 'with --wait: stop waiting after this; exit code 75', parseDuration);
}

/** Shows a task that was waited for; a bad end is exit code 1. */
export function conclude(context: CommandContext, answer: ApiAnswer): void {
  show(context, answer);
  if (isBadEnd(textAt(answer.value, 'state') ?? '')) context.exitWith(EXIT_CODES.failed);
}

function show(context: CommandContext, answer: ApiAnswer): void {
  context.printJson(answer.bytes);
  context.print(renderTask(answer, context));
}
