/** `warren flow …`: start flows, see how far they are, tell them of signals, cancel them. */
import type { Command } from 'commander';
import { FLOW_STATES } from '../shared/flows/flow-state.ts';
import { pathStep } from './api.ts';
import type { ApiAnswer, ApiClient } from './api.ts';
import { usageError } from './cli-error.ts';
import { confirm } from './confirm.ts';
import type { Act, CommandContext } from './context.ts';
import { escapeText } from './escape.ts';
import { EXIT_CODES } from './exit-codes.ts';
import { addFlowResults } from './flow-results.ts';
import { hasFlowEnded, renderFlow, renderFlowStanding, renderFlows, renderGraph } from './flow-view.ts';
import { addPaging, fetchListing, printListing } from './pages.ts';
import type { PagingOptions } from './pages.ts';
import { choiceOf, oneOf } from './parse.ts';
import { readJsonFile, withMembers } from './submission.ts';
import { addWait } from './task.ts';
import { numberAt, textAt, viewsAt } from './view.ts';
import type { View } from './view.ts';
import { waitForEnd } from './wait.ts';
import type { Waitable } from './wait.ts';

interface WaitOptions {
  readonly wait?: true;
  readonly timeout?: number;
}

interface StartOptions extends WaitOptions {
  readonly businessKey?: string;
  readonly dryRun?: true;
}

interface RetryOptions {
  readonly from?: string;
  readonly name?: string;
  readonly businessType?: string;
  readonly state?: readonly string[];
  readonly all?: true;
  readonly reason?: string;
  readonly dryRun?: true;
  readonly yes?: true;
}

interface ListOptions extends PagingOptions {
  readonly name?: string;
  readonly state?: string;
  readonly businessType?: string;
  readonly businessKey?: string;
  readonly parent?: string;
}

/** Ends after which a flow can go on. */
const RETRYABLE = ['failed', 'partial', 'cancelled'] as const;

const FLOW: Waitable = {
  noun: 'flow',
  path: '/v1/flows',
  hasEnded: hasFlowEnded,
  standing: renderFlowStanding,
  look: 'show',
};

/** Adds the group. */
export function addFlowCommands(program: Command, act: Act): void {
  const flow = program
    .command('flow')
    .helpCommand(false)
    .description('flows: start tasks that wait for each other, see how far they are, signal, cancel');
  addStart(flow, act);
  addShow(flow, act);
  addFlowResults(flow, act);
  addList(flow, act);
  addSignal(flow, act);
  addRetry(flow, act);
  addCancel(flow, act);
}

function addStart(flow: Command, act: Act): void {
  addWait(
    flow
      .command('start')
      .description('start a flow; prints its id')
      .argument('<file>', 'the flow as JSON; - is standard input')
      .option('--business-key <key>', 'what it is about, in place of what the file says')
      .option('--dry-run', 'only check it, and show its steps'),
  )
    .addHelpText(
      'after',
      `
A flow names its steps; each may wait for others, and take their results into its input:

  {"name": "coupon", "businessType": "coupon", "businessKey": "user-123",
   "steps": {
     "check":  {"type": "user.check", "input": {"user": 123}},
     "create": {"type": "coupon.create", "after": ["check"]},
     "notify": {"type": "notify", "input": {"coupon": {"$result": "create", "path": "/id"}}}}}

Examples:
  warren flow start coupon.json --dry-run
  warren flow start coupon.json --business-key user-123 --wait
  jq .flow order.json | warren flow start - --json`,
    )
    .action(
      act<StartOptions>(async (context, options, file) => {
        const body = withMembers(await readJsonFile(file, context.io), {
          ...(options.businessKey === undefined ? {} : { businessKey: options.businessKey }),
          ...(options.dryRun === undefined ? {} : { dryRun: true }),
        });
        const api = await context.taskApi();
        const answer = await api.post('/v1/flows', body);
        if (options.dryRun === true) {
          context.printJson(answer.bytes);
          context.print(renderGraph(viewsAt(answer.value, 'graph'), context));
          context.remark(`${numberAt(answer.value, 'tasks') ?? 0} tasks. Nothing was started.\n`);
          return;
        }
        const id = textAt(answer.value, 'id') ?? '';
        const became = answer.value['duplicate'] === true ? 'There is one already' : 'Started';
        if (options.wait !== true) {
          context.printJson(answer.bytes);
          context.print(`${escapeText(id)}\n`);
          context.remark(`${became}. \`warren flow show ${escapeText(id)} --wait\` follows it.\n`);
          return;
        }
        context.remark(`${became}: ${escapeText(id)}.\n`);
        conclude(context, await waitForEnd(context, api, FLOW, { id, timeoutMs: options.timeout }));
      }),
    );
}

function addShow(flow: Command, act: Act): void {
  addWait(flow.command('show').description('show a flow with its steps').argument('<id>', 'id of the flow'))
    .addHelpText(
      'after',
      `
Examples:
  warren flow show 0198f3a2-7c10-7d3e-9a4b-2f6c1d8e5b70
  warren flow show 0198f3a2-7c10-7d3e-9a4b-2f6c1d8e5b70 --wait`,
    )
    .action(
      act<WaitOptions>(async (context, options, id) => {
        const api = await context.taskApi();
        if (options.wait === true) {
          conclude(context, await waitForEnd(context, api, FLOW, { id, timeoutMs: options.timeout }));
        } else show(context, await api.get(`/v1/flows/${pathStep(id)}`));
      }),
    );
}

function addList(flow: Command, act: Act): void {
  addPaging(
    flow
      .command('list')
      .description('list flows, newest first')
      .option('--name <name>', 'only of this name')
      .option('--state <state>', `only in this state: ${FLOW_STATES.join(', ')}`, choiceOf(FLOW_STATES))
      .option('--business-type <type>', 'only about things of this kind')
      .option('--business-key <key>', 'only about this thing')
      .option('--parent <id>', 'those nested in this flow; without it the outermost are listed'),
    'flows',
  )
    .addHelpText(
      'after',
      `
Examples:
  warren flow list --state failed
  warren flow list --business-type coupon --business-key user-123
  warren flow list --parent 0198f3a2-7c10-7d3e-9a4b-2f6c1d8e5b70
  warren flow list --name settlement --all --json`,
    )
    .action(
      act<ListOptions>(async (context, options) => {
        const { all, ...query } = options;
        const listing = await fetchListing(await context.taskApi(), '/v1/flows', {
          query: { ...query },
          isAll: all === true,
        });
        printListing(context, listing, (items) => renderFlows(items, context));
      }),
    );
}

function addSignal(flow: Command, act: Act): void {
  flow
    .command('signal')
    .description('tell a flow of something that its steps wait for; the first of each name counts')
    .argument('<id>', 'id of the flow')
    .argument('<name>', 'name of the signal')
    .option('--data <json>', 'what comes with it; steps refer to it by {"$signal": name}')
    .addHelpText(
      'after',
      `
Examples:
  warren flow signal 0198f3a2-7c10-7d3e-9a4b-2f6c1d8e5b70 approved
  warren flow signal 0198f3a2-7c10-7d3e-9a4b-2f6c1d8e5b70 approved --data '{"by": "finance"}'`,
    )
    .action(
      act<{ readonly data?: string }>(async (context, { data }, id, name) => {
        const api = await context.taskApi();
        const body = data === undefined ? '{}' : `{"data":${checkedJson(data)}}`;
        const answer = await api.post(`/v1/flows/${pathStep(id)}/signals/${pathStep(name ?? '')}`, body);
        context.printJson(answer.bytes);
        context.print(answer.value['duplicate'] === true ? 'It came before; that one counts.\n' : 'Told.\n');
      }),
    );
}

function addRetry(flow: Command, act: Act): void {
  flow
    .command('retry')
    .description('have a flow that has ended go on, or all that failed: what failed or was cancelled is made anew')
    .argument('[id]', 'id of the flow')
    .option('--from <step>', 'with an id: this step and all after it are made anew, whatever became of them')
    .option('--name <name>', 'without an id: all flows of this name that failed')
    .option('--business-type <type>', 'without an id: all about things of this kind that failed')
    .option('--state <state>', 'those that ended so; may be given more than once (default: failed)', oneOf(RETRYABLE))
    .option('--all', 'without an id: yes, all that failed are meant')
    .option('--reason <text>', 'why; kept with the flow')
    .option('--dry-run', 'only say how many there are')
    .option('--yes', 'do not ask')
    .addHelpText(
      'after',
      `
Steps that succeeded stay as they are. The open dead letters of steps that are made anew are closed. To run the very task again, replay its
dead letter instead: \`warren dead replay\` moves its flow on as well.

Examples:
  warren flow retry 0198f3a2-7c10-7d3e-9a4b-2f6c1d8e5b70 --reason 'the mail provider is back'
  warren flow retry 0198f3a2-7c10-7d3e-9a4b-2f6c1d8e5b70 --from notify
  warren flow retry --name coupon --reason 'the mail provider is back' --dry-run`,
    )
    .action(
      act<RetryOptions>(async (context, options, id) => {
        const api = await context.taskApi();
        if (id === undefined) return await retryMany(context, api, options);
        const { from, reason } = options;
        const answer = await api.post(`/v1/flows/${pathStep(id)}/retry`, JSON.stringify({ from, reason }));
        context.printJson(answer.bytes);
        context.print(`${numberAt(answer.value, 'tasks') ?? 0} tasks made anew.\n`);
        context.remark(`\`warren flow show ${escapeText(id)} --wait\` follows it.\n`);
      }),
    );
}

async function retryMany(context: CommandContext, api: ApiClient, options: RetryOptions): Promise<void> {
  const { from, name, businessType, state: states, reason, dryRun, all, yes } = options;
  if (from !== undefined) throw usageError('Give an id with --from.');
  if (name === undefined && businessType === undefined && all !== true) {
    throw usageError('Give an id, or say which flows: --name, --business-type, or --all.');
  }
  if (reason === undefined) throw usageError('Give --reason: it is kept with each flow.');
  const send = async (isDryRun: boolean): Promise<View> => {
    const total = { dryRun: isDryRun, flows: 0, tasks: 0, skipped: 0 };
    for (let cursor: string | undefined; ;) {
      const { value } = await api.post(
        '/v1/flows/retry',
        JSON.stringify({ name, businessType, states, reason, dryRun: isDryRun, cursor }),
      );
      for (const each of ['flows', 'tasks', 'skipped'] as const) total[each] += numberAt(value, each) ?? 0;
      cursor = textAt(value, 'nextCursor');
      if (cursor === undefined) return total;
      context.remark(`${total.flows} flows so far …\n`);
    }
  };
  if (dryRun === true || yes !== true) {
    const found = await send(true);
    const flows = numberAt(found, 'flows') ?? 0;
    if (dryRun === true) {
      context.printJson(found);
      context.print(`${flows} flows would go on.\n`);
      return;
    }
    if (!(await confirm(context, `Have ${flows} flows go on?`, false))) return;
  }
  const done = await send(false);
  context.printJson(done);
  context.print(
    `${numberAt(done, 'flows') ?? 0} flows go on with ${numberAt(done, 'tasks') ?? 0} tasks, ${numberAt(done, 'skipped') ?? 0} skipped.\n`,
  );
}

function addCancel(flow: Command, act: Act): void {
  flow
    .command('cancel')
    .description('cancel a flow: what has not begun at once, what runs by aborting it')
    .argument('<id>', 'id of the flow')
    .option('--reason <text>', 'why; kept with the flow')
    .addHelpText(
      'after',
      `
A flow that compensates undoes what has succeeded.

Examples:
  warren flow cancel 0198f3a2-7c10-7d3e-9a4b-2f6c1d8e5b70 --reason 'the order was withdrawn'`,
    )
    .action(
      act<{ readonly reason?: string }>(async (context, { reason }, id) => {
        const api = await context.taskApi();
        const answer = await api.post(`/v1/flows/${pathStep(id)}/cancel`, JSON.stringify({ reason }));
        context.printJson(answer.bytes);
        context.print(`${escapeText(renderFlowStanding(answer.value))}\n`);
        if (!hasFlowEnded(answer.value))
          context.remark(`\`warren flow show ${escapeText(id)} --wait\` waits for the rest.\n`);
      }),
    );
}

/** Shows a flow that was waited for; any end but success is exit code 1. */
function conclude(context: CommandContext, answer: ApiAnswer): void {
  show(context, answer);
  if (textAt(answer.value, 'state') !== 'succeeded') context.exitWith(EXIT_CODES.failed);
}

function show(context: CommandContext, answer: ApiAnswer): void {
  context.printJson(answer.bytes);
  context.print(renderFlow(answer, context));
}

function checkedJson(text: string): string {
  try {
    JSON.parse(text);
  } catch {
    throw usageError(`--data is not JSON; quote it for the shell, such as --data '{"by": "finance"}'.`);
  }
  return text;
}
