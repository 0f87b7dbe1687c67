/** The nightly settlement of the demo: a schedule for two o'clock in Shanghai, which somebody runs now, since nobody waits for the night. */
import { execFile } from 'node:child_process';
import { readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import type { CouponsSite } from './coupons.ts';

/** Tasks that it starts. */
export const SETTLEMENT_TASKS = 1;

/** Plays it. True where the day was settled, and the schedule says so. `coupons`: how many there are. */
export async function playSettlement(
  { root, producerUrl, folder, say }: Omit<CouponsSite, 'receiverUrl'>,
  coupons: number,
): Promise<boolean> {
  const warren = async (...args: readonly string[]): Promise<string> => {
    const main = join(root, 'dist', 'cli', 'main.js');
    return (await promisify(execFile)(process.execPath, [main, ...args, '--url', producerUrl])).stdout.trimEnd();
  };
  const template = await readFile(join(root, 'examples', 'schedules', 'settlement.json'), 'utf8');
  const file = join(tmpdir(), `warren-settlement-${process.pid}.json`);
  await writeFile(file, template.replace('"coupons"', JSON.stringify(`${folder}/coupons`)), { mode: 0o600 });
  say();
  say('the coupons are settled every night  $ warren schedule create --file examples/schedules/settlement.json');
  await warren('schedule', 'create', '--file', file);
  await rm(file);
  say(await warren('schedule', 'next', 'settlement', '--count', '3'));
  say();
  say('tonight is far, so it is run now  $ warren schedule run settlement');
  const taskId = await warren('schedule', 'run', 'settlement', '--reason', 'the demo does not wait for the night');
  const task = await warren('task', 'get', taskId, '--wait', '--timeout', '30s', '--json');
  const { state, result } = JSON.parse(task) as {
    readonly state: string;
    readonly result?: { readonly coupons: number };
  };
  say(`${state}: ${JSON.stringify(result)}`);
  const history = await warren('schedule', 'history', 'settlement');
  say(history);
  return state === 'succeeded' && result?.coupons === coupons && history.includes(taskId);
}
