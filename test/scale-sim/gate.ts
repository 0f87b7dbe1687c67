/**
 * Loaded before a worker's own program: loads what that consists of, says so, and lets it begin at SIGUSR2. So a pod that the simulation
 * starts takes the seconds that a pod takes, and not those that ten programs take to be loaded at once on the machine of a developer, many
 * times over where time goes faster.
 */
import { isMainThread } from 'node:worker_threads';
import { systemClock } from '../../shared/time/clock.ts';

const LONGEST_MS = 3_600_000;

if (isMainThread) {
  const begun = new AbortController();
  process.once('SIGUSR2', () => begun.abort());
  await import('../../services/worker/service.ts');
  console.log(JSON.stringify({ level: 'info', message: 'standing by' }));
  await systemClock.sleep(LONGEST_MS, begun.signal);
}
