/** `warren retention` and `warren erase`: what is kept, and taking payloads out of it. */
import type { Command } from 'commander';
import { usageError } from './cli-error.ts';
import { confirm } from './confirm.ts';
import type { Act } from './context.ts';
import { EXIT_CODES } from './exit-codes.ts';
import { collect } from './parse.ts';
import { renderRetention } from './retention-view.ts';
import { numberAt, textsAt, viewAt } from './view.ts';
import type { View } from './view.ts';

interface EraseOptions {
  readonly key?: string;
  readonly task?: readonly string[];
  readonly letter?: readonly string[];
  readonly reason?: string;
  readonly yes?: true;
}

/** Adds both commands. */
export function addRetentionCommands(program: Command, act: Act): void {
  program
    .command('retention')
    .description('show what is kept for how long, the partitions of tasks, and what the next round will do')
    .addHelpText(
      'after',
      `
Changes nothing: producers do what is shown as next every retention.intervalMs. Partitions are ahead, current, kept, due (their
time is over), retiring, held (more tasks stay in them than are worth moving), or rest (what stayed of others).

Examples:
  warren retention
  warren retention --json`,
    )
    .action(
      act<Record<string, never>>(async (context) => {
        const api = await context.taskApi();
        const answer = await api.get('/v1/retention');
        context.printJson(answer.bytes);
        context.print(renderRetention(answer.value, context));
      }),
    );
  program
    .command('erase')
    .description('erase the payloads of ended tasks and dead letters, for good')
    .option('--key <key>', 'of every task with this business key')
    .option('--task <id>', 'of this task; may be given more than once', collect)
    .option('--letter <id>', 'of this dead letter; may be given more than once', collect)
    .option('--reason <text>', 'why; it is kept in the audit for good, so do not name the person')
    .option('--yes', 'do not ask')
    .addHelpText(
      'after',
      `
Input, result, tags and keys, error texts, headers and bodies go, also out of replays, mended inputs and failure groups. Open dead
letters are closed. What waits or runs is left and said: exit code 1; cancel it, then erase again.

Examples:
  warren erase --key customer-17 --reason 'request 2030-114' --yes
  warren erase --task 0198f3a2-7c10-7d3e-9a4b-2f6c1d8e5b70 --reason 'request 2030-115'`,
    )
    .action(
      act<EraseOptions>(async (context, options) => {
        const { key, task, letter, reason } = options;
        if (reason === undefined)
          throw usageError("Required option '--reason <text>' not specified.", 'It is audited.');
        if ((key === undefined) === (task === undefined && letter === undefined)) {
          throw usageError('Give --key, or --task and --letter, one of them.');
        }
        if (!(await confirm(context, 'Erase for good?', options.yes === true))) {
          context.remark('Nothing was done.\n');
          return;
        }
        const api = await context.taskApi();
        const body = JSON.stringify({ businessKey: key, taskIds: task, letterIds: letter, reason });
        const sums: Record<string, number> = {};
        for (;;) {
          const answer = await api.post('/v1/erasures', body);
          addTo(sums, viewAt(answer.value, 'erased') ?? {});
          if (answer.value['isPartial'] === true) {
            context.remark(`${sums['tasks'] ?? 0} tasks so far.\n`);
            continue;
          }
          const notEnded = viewAt(answer.value, 'notEnded') ?? {};
          context.printJson({ ...answer.value, erased: sums });
          context.print(renderErased(sums, notEnded));
          if ((numberAt(notEnded, 'count') ?? 0) > 0) context.exitWith(EXIT_CODES.failed);
          return;
        }
      }),
    );
}

const KINDS: readonly (readonly [name: string, words: string])[] = [
  ['tasks', 'tasks'],
  ['attempts', 'attempts'],
  ['attemptLogs', 'log lines of attempts'],
  ['files', 'files'],
  ['onceResults', 'results of things done once'],
  ['origins', 'messages of publishers'],
  ['progress', 'progress notes'],
  ['deadLetters', 'dead letters'],
  ['searchEntries', 'search entries of letters'],
  ['mendedInputs', 'inputs before they were mended'],
  ['replayPatches', 'patches of replays'],
  ['replayItems', 'items of replays'],
  ['failureGroups', 'samples of failure groups'],
];

function addTo(sums: Record<string, number>, erased: View): void {
  for (const [name] of KINDS) sums[name] = (sums[name] ?? 0) + (numberAt(erased, name) ?? 0);
}

function renderErased(sums: Readonly<Record<string, number>>, notEnded: View): string {
  const lines = KINDS.filter(([name]) => (sums[name] ?? 0) > 0).map(
    ([name, words]) => `${sums[name]} ${words} erased.`,
  );
  const left = numberAt(notEnded, 'count') ?? 0;
  if (left > 0) {
    const ids = textsAt(notEnded, 'ids') ?? [];
    lines.push(`${left} tasks have not ended and were left: ${ids.slice(0, 10).join(', ')}${left > 10 ? ', …' : ''}`);
  }
  return `${lines.length === 0 ? 'There was nothing to erase.' : lines.join('\n')}\n`;
}
