/** `make down`: stops what `make up` started. */
import { readFile } from 'node:fs/promises';
import { findRoot } from '../deploy/local-stack/stack.ts';
import { codeOf, toError } from '../shared/errors/to-error.ts';
import { systemClock } from '../shared/time/clock.ts';
import { findRunning, stateFile } from './running.ts';
import type { RunningFleet } from './running.ts';

const WITHIN_MS = 40_000;

async function main(): Promise<void> {
  let fleet: RunningFleet;
  try {
    fleet = JSON.parse(await readFile(stateFile(findRoot()), 'utf8')) as RunningFleet;
  } catch (thrown) {
    if (codeOf(thrown) !== 'ENOENT') throw thrown;
    console.log('no fleet was started here');
    return;
  }
  const running = await findRunning(fleet);
  for (const { name, pid } of running) {
    console.log(`stopping ${name} (pid ${pid})`);
    process.kill(pid, 'SIGTERM');
  }
  const untilMs = systemClock.monotonicMs() + WITHIN_MS;
  for (;;) {
    const left = await findRunning(fleet);
    if (left.length === 0) break;
    if (systemClock.monotonicMs() > untilMs) {
      for (const { pid } of left) process.kill(pid, 'SIGKILL');
      throw new Error(`killed after ${WITHIN_MS / 1_000} s: ${left.map(({ name }) => name).join(', ')}`);
    }
    await systemClock.sleep(100);
  }
  console.log(running.length === 0 ? 'no fleet is running' : 'the fleet is stopped');
}

try {
  await main();
} catch (thrown) {
  console.error(toError(thrown).message);
  process.exitCode = 1;
}
