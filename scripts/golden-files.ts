/** Every file of the repository that is printed from code and needs no server, by its path. `golden.ts` writes them. */
import { renderConfigReference } from '../shared/config/print.ts';
import { topologyOf } from '../shared/amqp/topology.ts';
import { listMetrics } from '../shared/observability/metrics.ts';
import { renderCli, renderHelpTexts } from './reference/cli.ts';
import { renderDashboards } from './reference/dashboards.ts';
import { renderErrors } from './reference/errors.ts';
import { renderExitCodes } from './reference/exit-codes.ts';
import { renderHttp } from './reference/http.ts';
import { renderMessages } from './reference/messages.ts';
import { renderMetrics } from './reference/metrics.ts';
import { describeDeadLetterApi, describeTaskApi } from './reference/open-api.ts';
import { renderStates } from './reference/states.ts';

/** The schema of the database; the one golden file that needs Postgres. */
export const SCHEMA_FILE = 'test/golden/schema.sql';
/** Folders that hold nothing but printed files. */
export const PRINTED_FOLDERS = ['test/golden', 'docs/reference', 'deploy/grafana/dashboards'];

/** Prints all of them. */
export async function printGoldenFiles(): Promise<ReadonlyMap<string, string>> {
  const help = await renderHelpTexts();
  const tasks = await describeTaskApi();
  const deadLetters = await describeDeadLetterApi();
  return new Map([
    ['docs/reference/cli.md', renderCli(help)],
    ['docs/reference/config.md', renderConfigReference()],
    ['docs/reference/errors.md', renderErrors()],
    ['docs/reference/exit-codes.md', renderExitCodes()],
    ['docs/reference/http.md', renderHttp([tasks, deadLetters])],
    ['docs/reference/messages.md', renderMessages()],
    ['docs/reference/metrics.md', renderMetrics()],
    ['docs/reference/states.md', renderStates()],
    ['test/golden/metrics.txt', listMetrics()],
    ...renderDashboards(),
    ['test/golden/openapi.json', json(tasks.document)],
    ['test/golden/openapi-dead-letters.json', json(deadLetters.document)],
    ...(['classic', 'quorum'] as const).map((queueType): [string, string] => [
      `test/golden/topology-${queueType}.json`,
      json(topologyOf({ prefix: 'warren', queues: ['default', 'high'], queueType })),
    ]),
    ...[...help].map(([file, text]): [string, string] => [`test/golden/help/${file}`, text]),
  ]);
}

function json(value: unknown): string {
  return `${JSON.stringify(value, null, 2)}\n`;
}
