/**
 * Loaded before a worker's own program: loads what that consists of, says so, and lets it begin at SIGUSR2. So a pod that the simulation
 * starts takes the seconds that a pod takes, and not those that ten programs take to be loaded at once on the machine of a developer, many
 * times over where time goes faster.
 */
import { isMainThread } from 'node:worker_threads';

if (isMainThread) {
  const begins = new Promise<void>((resolve) => process.once('SIGUSR2', () => resolve()));
  const alive = setInterval(() => undefined, 60_000);
  await import('../../services/worker/service.ts');
  console.log(JSON.stringify({ level: 'info', message: 'standing by' }));
  await begins;
  clearInterval(alive);
}
