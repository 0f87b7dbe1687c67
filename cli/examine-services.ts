/** Asks the HTTP services whether they are ready. */
import { toError } from '../shared/errors/to-error.ts';
import { toCliError } from './cli-error.ts';
import type { ApiClient } from './api.ts';
import type { CommandContext } from './context.ts';
import type { Finding } from './doctor.ts';
import { EXIT_CODES } from './exit-codes.ts';

/** One finding for each service with an API: it answers, and takes our token. */
export async function checkServices(context: CommandContext): Promise<readonly Finding[]> {
  return await Promise.all([
    checkService('task API', async () => await context.taskApi(), '/v1/tasks'),
    checkService('dead letters API', async () => await context.deadLetterApi(), '/v1/dead-letters'),
  ]);
}

async function checkService(check: string, open: () => Promise<ApiClient>, path: string): Promise<Finding> {
  try {
    await (await open()).get(path, { limit: 1 });
    return { check, status: 'ok', message: 'answers' };
  } catch (thrown) {
    const { exitCode, problem } = toCliError(thrown);
    const { url, reason } = problem;
    const message = [url, reason ?? problem.title].filter((part) => typeof part === 'string').join(': ');
    return {
      check,
      // Not running here is no fault: it may run elsewhere.
      status: exitCode === EXIT_CODES.unreachable ? 'warn' : 'fail',
      message: message === '' ? toError(thrown).message : message,
      ...(problem.hint === undefined ? {} : { hint: problem.hint }),
    };
  }
}
