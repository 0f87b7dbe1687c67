/** What of an instance runs, without starting anything. */
import { join } from 'node:path';
import { dockerServers } from './choose.ts';
import { openHome } from './home.ts';
import { isRunning } from './server-process.ts';
import { findRoot } from './stack.ts';
import { loadState } from './state.ts';

/** The answer of `status`. */
export interface StackStatus {
  /** True when broker and database both run. */
  readonly isRunning: boolean;
  /** For people: one line a server. */
  readonly lines: readonly string[];
}

/** Looks at the private servers of the instance `name`. */
export async function readStatus(name: string, root: string = findRoot()): Promise<StackStatus> {
  const home = await openHome(root);
  const dir = join(home.servers, 'stacks', name);
  const site = { root, home, name, dir, tell: (): void => undefined };
  const lines: string[] = [];
  let running = 0;
  for (const [folder, key, port] of [
    ['rabbitmq', 'broker', 'amqp'],
    ['postgres', 'database', 'postgres'],
  ] as const) {
    const state = await loadState(join(dir, folder));
    const identity = state?.processes[key];
    const isUp = await isRunning(identity);
    const docker = dockerServers(site).find((server) => server.service === folder);
    const isInDocker = !isUp && docker !== undefined && (await docker.isUp());
    if (isUp || isInDocker) running += 1;
    if (isInDocker) lines.push(`${folder}: runs in Docker`);
    else if (isUp)
      lines.push(
        `${folder}: runs, pid ${identity?.pid ?? 0}, 127.0.0.1:${state?.ports[port] ?? 0}, ${join(dir, folder)}`,
      );
    else lines.push(`${folder}: ${state === undefined ? 'was never started' : 'is stopped'}`);
  }
  return { isRunning: running === 2, lines };
}
