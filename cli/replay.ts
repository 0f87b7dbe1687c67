/** `warren replay …`: replay many dead letters in waves, and watch, pause, resume and cancel that. */
import { readFile } from 'node:fs/promises';
import { InvalidArgumentError } from 'commander';
import type { Command } from 'commander';
import { REPLAY_STATES } from '../shared/dead-letters/replay-state.ts';
import { codeOf } from '../shared/errors/to-error.ts';
import { renderWithRaw } from '../shared/tasks/json.ts';
import { pathStep } from './api.ts';
import { CliError, usageError } from './cli-error.ts';
import { confirm } from './confirm.ts';
import type { Act, CommandContext } from './context.ts';
import { escapeText } from './escape.ts';
import { EXIT_CODES } from './exit-codes.ts';
import { addPaging, fetchListing, printListing } from './pages.ts';
import type { PagingOptions } from './pages.ts';
import { integerIn, oneOf, parseDuration } from './parse.ts';
import { renderDryRun, renderItems, renderReplay, renderReplays } from './replay-view.ts';
import { watchReplay } from './replay-watch.ts';
import { numberAt, textAt } from './view.ts';

const EXAMPLE_ID = '0198f3a4-0b52-7e6f-8c1d-4a9e7b3f2c60';

interface CreateOptions {
  readonly filter?: string;
  readonly group?: string;
  readonly ids?: readonly string[];
  readonly all?: true;
  readonly waves?: 'growing' | 'none' | readonly number[];
  readonly stopAfter?: number;
  readonly waveTimeout?: number;
  readonly rate?: number;
  readonly queue?: string;
  readonly priority?: number;
  readonly patch?: string;
  readonly waitForVersion?: string;
  readonly reason?: string;
  readonly dryRun?: true;
  readonly yes?: true;
  readonly watch?: true;
}

/** Adds the group. */
export function addReplayCommands(program: Command, act: Act): void {
  const replay = program
    .command('replay')
    .helpCommand(false)
    .description('replay many dead letters in waves; watch, pause, resume and cancel that');
  addCreate(replay, act);
  addList(replay, act);
  addShow(replay, act);
  addWatch(replay, act);
  addStep(replay, act, 'pause', 'send nothing more until it is resumed');
  addStep(replay, act, 'resume', 'go on, also after it stopped or paused by itself');
  addStep(replay, act, 'cancel', 'end it; what was not sent stays a dead letter');
}

function addCreate(replay: Command, act: Act): void {
  replay
    .command('create')
    .description('freeze a selection of open dead letters and replay it in waves; prints the id')
    .argument('[filter]', "which letters, such as 'reason:timeout type:image.*'")
    .option('--filter <filter>', 'the same as the argument')
    .option('--group <id>', 'the letters of this failure group')
    .option('--ids <ids>', 'these letters, with commas; may be given more than once', listOf)
    .option('--all', 'a filter that selects everything is meant')
    .option('--waves <sizes>', 'growing (1, 5, 25, 125, …), none (all at once), or sizes such as 10,100', parseWaves)
    .option('--stop-after <count>', 'failures of the same in one wave that stop it', integerIn(1, 1_000_000))
    .option('--wave-timeout <duration>', 'how long a wave is waited for (default: 10m)', parseDuration)
    .option('--rate <count>', 'letters a second at most', parseRate)
    .option('--queue <name>', 'queue for the tasks instead of their own')
    .option('--priority <0-9>', 'priority for the tasks instead of their own', integerIn(0, 9))
    .option('--patch <json>', 'mend each input: JSON Patch (a list) or merge patch (an object); @file reads a file')
    .option('--wait-for-version <range>', 'send when every live worker of the types has such a version: ">=1.4.0"')
    .option('--reason <text>', 'why, for the record')
    .option('--dry-run', 'say what it would do, and change nothing')
    .option('--yes', 'do not ask')
    .option('--watch', 'watch it to its end, as `warren replay watch` does')
    .addHelpText(
      'after',
      `
Examples:
  warren replay create 'reason:timeout type:image.*' --dry-run
  warren replay create 'error:ECONNREFUSED age:<2h' --reason 'the database is back' --watch
  warren replay create --group ${EXAMPLE_ID} --rate 50 --reason 'fixed in 1.4.0' --wait-for-version '>=1.4.0'
  warren replay create --ids ${EXAMPLE_ID} --patch '{"retries": 3}' --reason 'mended' --yes`,
    )
    .action(act<CreateOptions>(async (context, options, filter) => await create(context, options, filter)));
}

async function create(context: CommandContext, options: CreateOptions, given: string | undefined): Promise<void> {
  if (given !== undefined && options.filter !== undefined) throw usageError('Give the filter once.');
  const filter = given ?? options.filter ?? (options.all === true && isAlone(options) ? '' : undefined);
  const chosen = [filter, options.group, options.ids].filter((each) => each !== undefined).length;
  if (chosen !== 1) throw usageError('Say which letters: a filter, --group or --ids, and one of them alone.');
  if (options.dryRun !== true && options.reason === undefined) {
    throw usageError('A replay needs a reason.', "Add --reason 'why', or --dry-run.");
  }
  const patch = options.patch === undefined ? undefined : await readPatch(options.patch);
  const render = (dryRun: boolean): string =>
    renderWithRaw(
      {
        filter,
        all: options.all,
        group: options.group,
        ids: options.ids,
        waves: options.waves,
        stopAfter: options.stopAfter,
        waveTimeoutMs: options.waveTimeout,
        rate: options.rate,
        queue: options.queue,
        priority: options.priority,
        waitForVersion: options.waitForVersion,
        reason: options.reason,
        dryRun,
      },
      { patch },
    );
  const api = await context.deadLetterApi();
  if (options.dryRun === true || options.yes !== true) {
    const found = await api.post('/v1/replays', render(true));
    if (options.dryRun === true) {
      context.printJson(found.bytes);
      context.print(renderDryRun(found, context));
      return;
    }
    context.remark(renderDryRun(found, context));
    const letters = numberAt(found.value, 'replayed') ?? 0;
    if (!(await confirm(context, `Replay ${letters} dead letter${letters === 1 ? '' : 's'}?`, false))) {
      context.remark('Nothing was done.\n');
      return;
    }
  }
  const made = await api.post('/v1/replays', render(false));
  const id = textAt(made.value, 'id') ?? '';
  if (options.watch === true) {
    context.remark(`Replay ${escapeText(id)} of ${numberAt(made.value, 'items') ?? 0} dead letters.\n`);
    await watchReplay(context, api, { id, timeoutMs: undefined });
    return;
  }
  context.printJson(made.bytes);
  context.print(`${escapeText(id)}\n`);
  context.remark(`\`warren replay watch ${escapeText(id)}\` follows it.\n`);
}

const isAlone = ({ group, ids }: CreateOptions): boolean => group === undefined && ids === undefined;

async function readPatch(given: string): Promise<string> {
  let text = given;
  if (given.startsWith('@')) {
    try {
      text = await readFile(given.slice(1), 'utf8');
    } catch (thrown) {
      throw usageError(`The patch ${JSON.stringify(given)} cannot be read: ${codeOf(thrown) ?? 'unknown reason'}.`);
    }
  }
  try {
    JSON.parse(text);
    return text;
  } catch (thrown) {
    throw new CliError(
      EXIT_CODES.badData,
      { code: 'body-invalid', title: 'The patch is not valid JSON.', field: '--patch' },
      thrown,
    );
  }
}

function addList(replay: Command, act: Act): void {
  const states = Object.keys(REPLAY_STATES);
  addPaging(
    replay
      .command('list')
      .description('list replays, newest first')
      .option('--state <state>', `only these; may be given more than once: ${states.join(', ')}`, oneOf(states))
      .option('--single', 'also those that `warren dead replay` made'),
    'replays',
  )
    .addHelpText('after', '\nExamples:\n  warren replay list\n  warren replay list --state stopped --json')
    .action(
      act<PagingOptions & { readonly state?: readonly string[]; readonly single?: true }>(
        async (context, { all, single, ...filters }) => {
          const listing = await fetchListing(await context.deadLetterApi(), '/v1/replays', {
            query: { ...filters, ...(single === true ? { single: 'true' } : {}) },
            isAll: all === true,
          });
          printListing(context, listing, (items) => renderReplays(items, context));
        },
      ),
    );
}

function addShow(replay: Command, act: Act): void {
  replay
    .command('show')
    .description('show a replay: how it stands, wave by wave, and with --items what became of each letter')
    .argument('<id>', 'id of the replay')
    .option('--items', 'list its items instead')
    .option('--state <state>', 'with --items: only in this state; may be given more than once', listOf)
    .option('--cursor <cursor>', 'with --items: go on from where the last page ended')
    .option('--all', 'with --items: every page')
    .addHelpText(
      'after',
      `\nExamples:\n  warren replay show ${EXAMPLE_ID}\n  warren replay show ${EXAMPLE_ID} --items --state dead`,
    )
    .action(
      act<{
        readonly items?: true;
        readonly state?: readonly string[];
        readonly cursor?: string;
        readonly all?: true;
      }>(async (context, { items, state, cursor, all }, id) => {
        const api = await context.deadLetterApi();
        const path = `/v1/replays/${pathStep(id)}`;
        if (items === true) {
          const listing = await fetchListing(api, `${path}/items`, { query: { state, cursor }, isAll: all === true });
          printListing(context, listing, (views) => renderItems(views, context));
          return;
        }
        const answer = await api.get(path);
        context.printJson(answer.bytes);
        context.print(renderReplay(answer.value, context));
      }),
    );
}

function addWatch(replay: Command, act: Act): void {
  replay
    .command('watch')
    .description('show waves as they go until it ends; exit code 0 where every letter succeeded, 1 where not')
    .argument('<id>', 'id of the replay')
    .option('--timeout <duration>', 'stop watching after this; exit code 75', parseDuration)
    .addHelpText(
      'after',
      `\nExamples:\n  warren replay watch ${EXAMPLE_ID}\n  warren replay watch ${EXAMPLE_ID} --timeout 1h`,
    )
    .action(
      act<{ readonly timeout?: number }>(async (context, { timeout }, id) => {
        await watchReplay(context, await context.deadLetterApi(), { id, timeoutMs: timeout });
      }),
    );
}

function addStep(replay: Command, act: Act, step: 'pause' | 'resume' | 'cancel', what: string): void {
  replay
    .command(step)
    .description(what)
    .argument('<id>', 'id of the replay')
    .option('--reason <text>', 'why, for the record')
    .option('--yes', step === 'cancel' ? 'do not ask' : 'accepted everywhere; nobody is asked here')
    .addHelpText('after', `\nExamples:\n  warren replay ${step} ${EXAMPLE_ID}`)
    .action(
      act<{ readonly reason?: string; readonly yes?: true }>(async (context, { reason, yes }, id) => {
        if (step === 'cancel' && !(await confirm(context, 'Cancel this replay for good?', yes === true))) {
          context.remark('Nothing was done.\n');
          return;
        }
        const api = await context.deadLetterApi();
        const answer = await api.post(`/v1/replays/${pathStep(id)}/${step}`, JSON.stringify({ reason }));
        context.printJson(answer.bytes);
        context.print(renderReplay(answer.value, context));
      }),
    );
}

function listOf(text: string, before: readonly string[] | undefined): readonly string[] {
  return [...(before ?? []), ...text.split(',').filter((part) => part !== '')];
}

function parseWaves(text: string): 'growing' | 'none' | readonly number[] {
  if (text === 'growing' || text === 'none') return text;
  const sizes = text.split(',').map((part) => (/^[1-9]\d{0,6}$/.test(part) ? Number(part) : Number.NaN));
  if (sizes.some((size) => Number.isNaN(size))) {
    throw new InvalidArgumentError('Waves are growing, none, or sizes such as 10,100,1000.');
  }
  return sizes;
}

function parseRate(text: string): number {
  const rate = /^\d{1,6}(\.\d{1,3})?$/.test(text) ? Number(text) : 0;
  if (!(rate > 0)) throw new InvalidArgumentError('A rate is a number of letters a second, such as 50 or 0.5.');
  return rate;
}
