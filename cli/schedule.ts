/** `warren schedule …`: have tasks and flows started again and again, see when and what became of it. */
import type { Command } from 'commander';
import { CATCH_UP_RULES, OVERLAP_RULES } from '../shared/schedules/schedule-rules.ts';
import { renderWithRaw } from '../shared/tasks/json.ts';
import type { Clock } from '../shared/time/clock.ts';
import { pathStep } from './api.ts';
import { usageError } from './cli-error.ts';
import { confirm } from './confirm.ts';
import type { Act, CommandContext } from './context.ts';
import { escapeText } from './escape.ts';
import { addPaging, fetchListing, printListing } from './pages.ts';
import type { PagingOptions } from './pages.ts';
import { choiceOf, collect, instantOrDuration, integerIn, parseDuration } from './parse.ts';
import { renderNext, renderOccurrences, renderSchedule, renderSchedules } from './schedule-view.ts';
import { readInput, readJsonFile, withMembers } from './submission.ts';
import { textAt } from './view.ts';

interface TimingOptions {
  readonly cron?: string;
  readonly timeZone?: string;
  /** Milliseconds. */
  readonly every?: number;
  readonly at?: string;
  readonly overlap?: string;
  readonly catchUp?: string;
  readonly catchUpMost?: number;
  /** Milliseconds. */
  readonly jitter?: number;
  readonly description?: string;
}

interface CreateOptions extends TimingOptions {
  readonly type?: string;
  readonly input?: string;
  readonly inputFile?: string;
  readonly queue?: string;
  readonly priority?: number;
  readonly tag?: readonly string[];
  readonly flow?: string;
  readonly dryRun?: true;
}

interface Reason {
  readonly reason?: string;
}

const PATH = '/v1/schedules';
const pathOf = (name = ''): string => `${PATH}/${pathStep(name)}`;

/** Adds the group. */
export function addScheduleCommands(program: Command, act: Act, clock: Clock): void {
  const schedule = program
    .command('schedule')
    .helpCommand(false)
    .description('schedules: start tasks and flows again and again, see when and what became of it');
  addCreate(schedule, act, clock);
  addList(schedule, act);
  addShow(schedule, act);
  addNext(schedule, act);
  addHistory(schedule, act);
  addEdit(schedule, act, clock);
  addRun(schedule, act);
  addOrder(schedule, act, 'pause', 'start nothing of a schedule until it is resumed; what runs goes on');
  addOrder(schedule, act, 'resume', 'have a schedule go on from now; what was due meanwhile is skipped');
  addRemove(schedule, act);
}

function addTiming(command: Command, clock: Clock): Command {
  return command
    .option('--cron <pattern>', `five fields, or six with seconds in front: '0 2 * * *'`)
    .option('--time-zone <zone>', 'IANA time zone of the pattern (default: UTC)')
    .option('--every <duration>', 'an interval: 15m, 1h; counted from the start of 1970', parseDuration)
    .option(
      '--at <instant>',
      'once: an instant, or a duration from now',
      instantOrDuration(() => clock.now(), 'ahead'),
    )
    .option(
      '--overlap <rule>',
      `while a run goes on: ${OVERLAP_RULES.join(', ')} (default: skip)`,
      choiceOf(OVERLAP_RULES),
    )
    .option(
      '--catch-up <rule>',
      `of what was missed: ${CATCH_UP_RULES.join(', ')} (default: last)`,
      choiceOf(CATCH_UP_RULES),
    )
    .option('--catch-up-most <count>', 'with --catch-up all: the last so many (default: 10)', integerIn(1, 100))
    .option('--jitter <duration>', 'put each start off by a part of this', parseDuration)
    .option('--description <text>', 'what it is for');
}

function membersOf(options: TimingOptions): Readonly<Record<string, unknown>> {
  const { cron, timeZone, every, at, overlap, catchUp, catchUpMost, jitter, description } = options;
  return { description, cron, timeZone, everyMs: every, at, overlap, catchUp, catchUpMost, jitterMs: jitter };
}

function addCreate(schedule: Command, act: Act, clock: Clock): void {
  addTiming(
    schedule.command('create').description('create a schedule').argument('[name]', 'its name; absent with --file'),
    clock,
  )
    .option('--type <type>', 'start a task of this type')
    .option('--input <json>', 'its input (default: {})')
    .option('--input-file <file>', 'its input from a file; - is standard input')
    .option('--queue <queue>', 'queue of the task (default: that of the type)')
    .option('--priority <priority>', 'of the task, 0 to 9, 9 first', integerIn(0, 9))
    .option('--tag <tag>', 'mark of the task; may be given more than once', collect)
    .option('--flow <file>', 'start a flow: as `warren flow start` takes it; - is standard input')
    .option('--file <file>', 'the whole schedule as JSON, as POST /v1/schedules takes it; - is standard input')
    .option('--dry-run', 'only check it, and show when it would run')
    .addHelpText(
      'after',
      `
In the input {"$schedule": "at"} stands for the instant that a run is for, {"$schedule": "date"} for its date in the time zone.

Examples:
  warren schedule create settlement --cron '0 2 * * *' --time-zone Asia/Shanghai --type settle --input '{"day": {"$schedule": "date"}}'
  warren schedule create heartbeat --every 15m --type http.request --input '{"url": "https://status.example.com"}'
  warren schedule create closing --at 2h --flow closing.json --dry-run
  warren schedule create --file settlement.json`,
    )
    .action(
      act<CreateOptions & { readonly file?: string }>(async (context, options, name) => {
        const body = await bodyOf(context, name, options);
        const answer = await (await context.taskApi()).post(PATH, body);
        context.printJson(answer.bytes);
        if (options.dryRun === true) {
          context.print(renderNext({ timeZone: options.timeZone, ...answer.value }, context));
          context.remark('Nothing was made.\n');
          return;
        }
        context.print(renderSchedule(answer, context));
      }),
    );
}

async function bodyOf(
  { io }: CommandContext,
  name: string | undefined,
  options: CreateOptions & { readonly file?: string },
): Promise<string> {
  const { type, flow, file, queue, priority, tag, dryRun } = options;
  const members = membersOf(options);
  const isPlain = Object.values({ ...members, type, flow, name }).every((each) => each === undefined);
  if (file !== undefined) {
    if (!isPlain) throw usageError('Give --file alone, or a name and options.');
    return withMembers(await readJsonFile(file, io), { dryRun });
  }
  if (name === undefined) throw usageError('Give a name, or --file.');
  if ((type === undefined) === (flow === undefined)) throw usageError('Say what it starts: --type or --flow.');
  const started =
    type === undefined
      ? { flow: await readJsonFile(flow ?? '', io) }
      : { task: renderWithRaw({ type, queue, priority, tags: tag }, { input: await readInput(options, io) }) };
  return renderWithRaw({ name, ...members, dryRun }, started);
}

function addList(schedule: Command, act: Act): void {
  addPaging(schedule.command('list').description('list schedules, by their names'), 'schedules')
    .addHelpText('after', `\nExamples:\n  warren schedule list\n  warren schedule list --all --json`)
    .action(
      act<PagingOptions>(async (context, { all, ...query }) => {
        const listing = await fetchListing(await context.taskApi(), PATH, { query: { ...query }, isAll: all === true });
        printListing(context, listing, (items) => renderSchedules(items, context));
      }),
    );
}

function addShow(schedule: Command, act: Act): void {
  schedule
    .command('show')
    .description('show a schedule, with its next ten instants')
    .argument('<name>', 'name of the schedule')
    .addHelpText('after', `\nExamples:\n  warren schedule show settlement`)
    .action(
      act(async (context, _options, name) => {
        show(context, await (await context.taskApi()).get(pathOf(name)));
      }),
    );
}

function addNext(schedule: Command, act: Act): void {
  schedule
    .command('next')
    .description('when a schedule is due next, in UTC and in its time zone')
    .argument('<name>', 'name of the schedule')
    .option('--count <count>', 'so many, 1 to 100 (default: 10)', integerIn(1, 100))
    .addHelpText('after', `\nExamples:\n  warren schedule next settlement --count 30`)
    .action(
      act<{ readonly count?: number }>(async (context, { count }, name) => {
        const answer = await (await context.taskApi()).get(`${pathOf(name)}/next`, { count });
        context.printJson(answer.bytes);
        context.print(renderNext(answer.value, context));
      }),
    );
}

function addHistory(schedule: Command, act: Act): void {
  addPaging(
    schedule
      .command('history')
      .description('what became of the instants of a schedule, the latest first: runs, and what was skipped and why')
      .argument('<name>', 'name of the schedule'),
    'instants',
  )
    .addHelpText('after', `\nExamples:\n  warren schedule history settlement --limit 10`)
    .action(
      act<PagingOptions>(async (context, { all, ...query }, name) => {
        const listing = await fetchListing(await context.taskApi(), `${pathOf(name)}/occurrences`, {
          query: { ...query },
          isAll: all === true,
        });
        printListing(context, listing, (items) => renderOccurrences(items, context));
      }),
    );
}

function addEdit(schedule: Command, act: Act, clock: Clock): void {
  addTiming(
    schedule
      .command('edit')
      .description('change a schedule; what runs or waits goes on as it is')
      .argument('<name>', 'name of the schedule'),
    clock,
  )
    .option('--patch <json>', 'members as PATCH /v1/schedules takes them; null takes one away')
    .option('--reason <text>', 'why; kept in the audit')
    .addHelpText(
      'after',
      `
Examples:
  warren schedule edit settlement --cron '30 2 * * *' --reason 'the bank delivers later now'
  warren schedule edit settlement --patch '{"task": {"type": "settle", "input": {}}}'`,
    )
    .action(
      act<TimingOptions & Reason & { readonly patch?: string }>(async (context, options, name) => {
        const { reason, patch } = options;
        const members = membersOf(options);
        const { cron, everyMs, at } = members;
        // One kind of timing takes the place of another.
        const isRetimed = [cron, everyMs, at].some((each) => each !== undefined);
        const others = { cron: cron ?? null, everyMs: everyMs ?? null, at: at ?? null };
        const change = { ...members, ...(isRetimed ? others : {}), reason };
        if (patch !== undefined && Object.values(members).some((each) => each !== undefined))
          throw usageError('Give --patch, or single options.');
        const body =
          patch === undefined
            ? JSON.stringify(change)
            : withMembers(await readInput({ input: patch }, context.io), { reason });
        show(context, await (await context.taskApi()).patch(pathOf(name), body));
      }),
    );
}

function addRun(schedule: Command, act: Act): void {
  schedule
    .command('run')
    .description('start what a schedule starts now, paused or not')
    .argument('<name>', 'name of the schedule')
    .option('--reason <text>', 'why; kept in the audit')
    .addHelpText('after', `\nExamples:\n  warren schedule run settlement --reason 'the file came late'`)
    .action(
      act<Reason>(async (context, { reason }, name) => {
        const answer = await (await context.taskApi()).post(`${pathOf(name)}/run`, JSON.stringify({ reason }));
        context.printJson(answer.bytes);
        const taskId = textAt(answer.value, 'taskId');
        const flowId = textAt(answer.value, 'flowId');
        if (taskId === undefined && flowId === undefined) {
          context.print('It starts once the run before has ended.\n');
          return;
        }
        context.print(`${escapeText(taskId ?? flowId ?? '')}\n`);
        const look = taskId === undefined ? `warren flow show ${flowId ?? ''}` : `warren task get ${taskId}`;
        context.remark(`Started. \`${escapeText(look)} --wait\` follows it.\n`);
      }),
    );
}

function addOrder(schedule: Command, act: Act, verb: 'pause' | 'resume', description: string): void {
  const example = verb === 'pause' ? ` --reason 'the bank is closed'` : '';
  schedule
    .command(verb)
    .description(description)
    .argument('<name>', 'name of the schedule')
    .option('--reason <text>', 'why; kept in the audit')
    .addHelpText('after', `\nExamples:\n  warren schedule ${verb} settlement${example}`)
    .action(
      act<Reason>(async (context, { reason }, name) => {
        const answer = await (await context.taskApi()).post(`${pathOf(name)}/${verb}`, JSON.stringify({ reason }));
        context.printJson(answer.bytes);
        context.print(`${escapeText(name ?? '')} is ${textAt(answer.value, 'state') ?? '?'}.\n`);
      }),
    );
}

function addRemove(schedule: Command, act: Act): void {
  schedule
    .command('remove')
    .description('take a schedule away, with its history; what it started goes on')
    .argument('<name>', 'name of the schedule')
    .option('--reason <text>', 'why; kept in the audit')
    .option('--yes', 'do not ask')
    .addHelpText('after', `\nExamples:\n  warren schedule remove settlement --reason 'done by the bank now'`)
    .action(
      act<Reason & { readonly yes?: true }>(async (context, { reason, yes }, name) => {
        if (!(await confirm(context, `Take ${name ?? ''} away, with its history?`, yes === true))) return;
        const answer = await (await context.taskApi()).delete(pathOf(name), JSON.stringify({ reason }));
        context.printJson(answer.bytes);
        context.print(`${escapeText(name ?? '')} is no more.\n`);
      }),
    );
}

function show(context: CommandContext, answer: Parameters<typeof renderSchedule>[0]): void {
  context.printJson(answer.bytes);
  context.print(renderSchedule(answer, context));
}
