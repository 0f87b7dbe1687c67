/** `warren queue scaling`: how many workers a queue wants, and why. */
import type { Command } from 'commander';
import { pathStep } from './api.ts';
import type { Act } from './context.ts';
import { escapeText } from './escape.ts';
import { integerIn } from './parse.ts';
import { numberAt, textAt } from './view.ts';
import type { View } from './view.ts';

interface ScalingOptions {
  readonly slo?: string;
  readonly min?: number;
  readonly max?: number;
  readonly slots?: number;
}

const workers = integerIn(0, 10_000);

/** Adds the command. */
export function addScaling(queue: Command, act: Act): void {
  queue
    .command('scaling')
    .description('tell how many workers a queue wants, and why: what an autoscaler is answered')
    .argument('<name>', 'name of the queue')
    .option('--slo <duration>', '95 of 100 tasks wait at most so long to be started: 30s, 5m. Default scaling.sloMs')
    .option('--min <workers>', 'the fewest that are answered. Default 0', workers)
    .option('--max <workers>', 'the most that are answered. Default scaling.maxWorkers', workers)
    .option(
      '--slots <tasks>',
      'tasks that a worker runs at once, while none is there to tell. Default scaling.slots',
      integerIn(1, 1_000),
    )
    .addHelpText(
      'after',
      `\nExamples:\n  warren queue scaling reports\n  warren queue scaling reports --slo 5m --min 1 --max 20`,
    )
    .action(
      act<ScalingOptions>(async (context, options, name) => {
        const api = await context.taskApi();
        const asked = Object.entries(options).filter(([key]) => ['slo', 'min', 'max', 'slots'].includes(key));
        const query = new URLSearchParams(
          asked.map(([key, value]): [string, string] => [key, String(value)]),
        ).toString();
        const answer = await api.get(`/v1/scaling/${pathStep(name)}${query === '' ? '' : `?${query}`}`);
        context.printJson(answer.bytes);
        context.print(
          `${linesOf(answer.value, name)
            .map((line) => escapeText(line))
            .join('\n')}\n`,
        );
      }),
    );
}

function linesOf(answer: View, name: string): string[] {
  const figure = (key: string, unit = ''): string => {
    const value = numberAt(answer, key);
    return value === undefined ? 'unknown' : `${value}${unit}`;
  };
  const draining = numberAt(answer, 'draining') ?? 0;
  return [
    `${name} wants ${figure('workersWanted')} workers, and has ${figure('workers')}${draining === 0 ? '' : ` and ${draining} on their way out`}`,
    `  why      ${textAt(answer, 'why') ?? ''}`,
    `  target   95 of 100 wait at most ${figure('sloSeconds', ' s')}`,
    `  waiting  ${figure('waiting')} (RabbitMQ ${figure('ready')}, workers ${figure('held')}, turns ${figure('turns')})`,
    `  running  ${figure('running')}, of ${figure('slotsPerWorker')} a worker`,
    `  arrivals ${figure('arrivalPerSecond', ' a second')}, of ${figure('meanRunSeconds', ' s')} each`,
  ];
}
