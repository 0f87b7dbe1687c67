/** `warren dead groups`, `warren dead group`, `warren dead note`: what died of the same, and what people say about it. */
import type { Command } from 'commander';
import { GROUP_STATES } from '../shared/dead-letters/group-state.ts';
import { pathStep } from './api.ts';
import { CliError } from './cli-error.ts';
import type { Act } from './context.ts';
import { EXIT_CODES } from './exit-codes.ts';
import { renderFailureGroup, renderFailureGroups } from './dead-groups-view.ts';
import { addPaging, fetchListing, printListing } from './pages.ts';
import type { PagingOptions } from './pages.ts';
import { integerIn, oneOf } from './parse.ts';
import { numberAt } from './view.ts';

const STATES = Object.keys(GROUP_STATES);
const EXAMPLE_ID = '3f2b8c1d-7e6f-8a5b-9c4d-0b5298f3a47e';

interface GroupsOptions extends PagingOptions {
  readonly state?: readonly string[];
  readonly minOpen?: number;
}

interface NoteOptions {
  readonly note?: string;
  readonly state?: readonly string[];
  readonly assignee?: string;
  readonly ifVersion?: number;
}

/** Adds the commands to `warren dead`. */
export function addGroupCommands(dead: Command, act: Act): void {
  addGroups(dead, act);
  addGroup(dead, act);
  addNote(dead, act);
}

function addGroups(dead: Command, act: Act): void {
  addPaging(
    dead
      .command('groups')
      .description('list what died of the same, those with the most open letters first')
      .option(
        '--state <state>',
        `only these, default open and acknowledged; may be given more than once: ${[...STATES, 'all'].join(', ')}`,
        oneOf([...STATES, 'all']),
      )
      .option(
        '--min-open <count>',
        'only with this many open letters or more (default: 1)',
        integerIn(0, 2_000_000_000),
      ),
    'groups',
  )
    .addHelpText(
      'after',
      '\nExamples:\n  warren dead groups\n  warren dead groups --state all --min-open 0 --all --json',
    )
    .action(
      act<GroupsOptions>(async (context, { all, ...query }) => {
        const listing = await fetchListing(await context.deadLetterApi(), '/v1/failure-groups', {
          query,
          isAll: all === true,
        });
        printListing(context, listing, (items) => renderFailureGroups(items, context));
      }),
    );
}

function addGroup(dead: Command, act: Act): void {
  dead
    .command('group')
    .description('show a failure group and its youngest open letters')
    .argument('<id>', 'id of the failure group')
    .addHelpText('after', `\nExamples:\n  warren dead group ${EXAMPLE_ID}`)
    .action(
      act(async (context, _options, id) => {
        const answer = await (await context.deadLetterApi()).get(`/v1/failure-groups/${pathStep(id)}`);
        context.printJson(answer.bytes);
        context.print(renderFailureGroup(answer.value, context));
      }),
    );
}

function addNote(dead: Command, act: Act): void {
  dead
    .command('note')
    .description('say something about a failure group: a note, how it stands, who is on it')
    .argument('<id>', 'id of the failure group')
    .option('--note <text>', 'what people should know; an empty text takes it away')
    .option('--state <state>', `how it stands: ${STATES.join(', ')}`, oneOf(STATES))
    .option('--assignee <name>', 'who is on it; an empty text takes it away')
    .option(
      '--if-version <number>',
      'only if the group still is at this version, as `group` showed it',
      integerIn(1, 2_000_000_000),
    )
    .addHelpText(
      'after',
      `\nExamples:\n  warren dead note ${EXAMPLE_ID} --state acknowledged --assignee 'night shift'\n  warren dead note ${EXAMPLE_ID} --note 'the relay is full; ticket 4711' --state resolved`,
    )
    .action(
      act<NoteOptions>(async (context, { note, state, assignee, ifVersion }, id) => {
        if (note === undefined && state === undefined && assignee === undefined) {
          throw new CliError(EXIT_CODES.usage, {
            code: 'field-invalid',
            title: 'There is nothing to say.',
            hint: 'Give --note, --state or --assignee.',
          });
        }
        const answer = await (
          await context.deadLetterApi()
        ).patch(
          `/v1/failure-groups/${pathStep(id)}`,
          JSON.stringify({ note, state: state?.at(-1), assignee }),
          ifVersion === undefined ? undefined : `"${ifVersion}"`,
        );
        context.printJson(answer.bytes);
        context.print(`Written down; the group is at version ${numberAt(answer.value, 'version') ?? 'unknown'}.\n`);
      }),
    );
}
