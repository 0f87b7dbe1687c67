/** What the load generator is told and what it tells, and how it is started. */
import { spawn } from 'node:child_process';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';

/** A load. */
export interface LoadPlan {
  /** Address of the server, `http://127.0.0.1:41234`. */
  readonly url: string;
  /** Kept connections, each with one request under way at a time. */
  readonly connections: number;
  /** Sent one after the other, from the first again after the last. */
  readonly requests: readonly { readonly method: string; readonly path: string; readonly body?: string }[];
  /** Requests a second, whether or not answers come; `undefined`: as many as are answered. */
  readonly perSecond?: number;
  /** Without a rate: the load ends with so many answers, if its seconds do not end before. Default: it does not. */
  readonly answers?: number;
  readonly seconds: number;
  /** Seconds before that, in which nothing counts. */
  readonly warmUpSeconds: number;
}

/** What came of a load. */
export interface LoadResult {
  readonly answered: number;
  readonly perSecond: number;
  /** Answers by status, warm-up included. */
  readonly statuses: Readonly<Record<string, number>>;
  readonly p50Ms: number;
  readonly p95Ms: number;
  readonly p99Ms: number;
  readonly mostMs: number;
  /** Cores that the generator itself took of the machine. */
  readonly cores: number;
}

/** Runs a load in a process of its own. Throws where an answer is no 2xx. */
export async function generateLoad(root: string, plan: LoadPlan): Promise<LoadResult> {
  const child = spawn(process.execPath, [join(root, 'dist', 'test', 'bench', 'api', 'load.js')], {
    stdio: ['pipe', 'pipe', 'inherit'],
  });
  const exited = new Promise<number | null>((resolve, reject) => {
    child.once('exit', resolve);
    child.once('error', reject);
  });
  child.stdin.end(JSON.stringify(plan));
  const printed = await text(child.stdout);
  const code = await exited;
  if (code !== 0) throw new Error(`the load generator ended with ${code}`);
  const result = JSON.parse(printed) as LoadResult;
  const refused = Object.keys(result.statuses).filter((status) => !status.startsWith('2'));
  if (refused.length > 0) throw new Error(`answers were ${JSON.stringify(result.statuses)}`);
  return result;
}
