/** The coupon flow of the demo: twenty users get one, one does not exist; and marketing looks how far user 123 is. */
import { execFile } from 'node:child_process';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { systemClock } from '../shared/time/clock.ts';
import { call } from './call.ts';
import { ProgressLine } from './progress-line.ts';

/** What it needs. */
export interface CouponsSite {
  readonly root: string;
  readonly producerUrl: string;
  readonly receiverUrl: string;
  /** This run's own folder below the samples' directory. */
  readonly folder: string;
  readonly say: (line?: string) => void;
}

/** Users who get a coupon. */
export const USERS = 20;
const UNKNOWN_USER = 10_001;
const TASKS_OF_A_FLOW = 4;
const WITHIN_MS = 60_000;

/** Tasks of all its flows. */
export const COUPON_TASKS = (USERS + 1) * TASKS_OF_A_FLOW;

interface Flow {
  readonly id: string;
  readonly state: string;
}

/** Plays it. True where every flow ended as it should. */
export async function playCoupons({ root, producerUrl, receiverUrl, folder, say }: CouponsSite): Promise<boolean> {
  const template = await readFile(join(root, 'examples', 'flows', 'coupon.json'), 'utf8');
  const users = [...Array.from({ length: USERS }, (_each, index) => 104 + index), UNKNOWN_USER];
  say();
  say(`starting the coupon flow for ${users.length} users, one of whom there is not`);
  for (const user of users) {
    const flow = template
      .replace('"user": 123', `"user": ${user}`)
      .replace('user-123', `user-${user}`)
      .replaceAll('"coupons"', JSON.stringify(`${folder}/coupons`))
      .replace('http://127.0.0.1:41234', receiverUrl);
    const { status, body } = await call(producerUrl, 'POST', '/v1/flows', JSON.parse(flow) as Record<string, unknown>);
    if (status !== 202) throw new Error(`a flow was answered ${status}: ${JSON.stringify(body)}`);
  }
  const flows = await waitForEnd(producerUrl, users.length);
  const [about] = await listFlows(producerUrl, '?businessType=coupon&businessKey=user-123');
  say();
  say('how far is the coupon of user 123?  $ warren flow show …');
  const shown = await promisify(execFile)(process.execPath, [
    join(root, 'dist', 'cli', 'main.js'),
    'flow',
    'show',
    about?.id ?? '',
    '--url',
    producerUrl,
  ]);
  say(shown.stdout.trimEnd());
  const count = (state: string): number => flows.filter((flow) => flow.state === state).length;
  say();
  say(
    `${count('succeeded')} flows succeeded, ${count('failed')} failed: there is no user ${UNKNOWN_USER}, so nothing was made for them`,
  );
  return count('succeeded') === USERS && count('failed') === 1 && shown.stdout.includes('4 of 4 tasks ended');
}

async function waitForEnd(producerUrl: string, expected: number): Promise<readonly Flow[]> {
  const line = new ProgressLine(process.stdout, systemClock);
  const untilMs = systemClock.monotonicMs() + WITHIN_MS;
  for (;;) {
    const flows = await listFlows(producerUrl, '?name=coupon&limit=100');
    const open = flows.filter(({ state }) => state === 'pending' || state === 'running').length;
    line.show((expected - open) / expected, `${expected - open} of ${expected} flows`);
    if (open === 0 || systemClock.monotonicMs() > untilMs) {
      line.end();
      return flows;
    }
    await systemClock.sleep(200);
  }
}

async function listFlows(producerUrl: string, query: string): Promise<readonly Flow[]> {
  return (await call(producerUrl, 'GET', `/v1/flows${query}`)).body['items'] as readonly Flow[];
}
