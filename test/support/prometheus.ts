/** A Prometheus of a test's own: scrapes what it is told every second, with the shipped rules made as quick. */
import { spawn } from 'node:child_process';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { eventually } from './eventually.ts';
import { readSource } from './source-files.ts';

/** An alert, as Prometheus lists it. */
export interface ListedAlert {
  readonly state: 'pending' | 'firing';
  readonly labels: Readonly<Record<string, string>>;
  readonly annotations: Readonly<Record<string, string>>;
}

/** A rule, as Prometheus lists it. */
export interface ListedRule {
  readonly name: string;
  readonly health: 'ok' | 'unknown' | 'err';
  readonly lastError?: string;
}

/** A Prometheus that runs. */
export interface TestPrometheus extends AsyncDisposable {
  /** Jobs with the addresses that are scraped from the next second on. */
  scrape(jobs: Readonly<Record<string, readonly string[]>>): Promise<void>;
  alerts(): Promise<readonly ListedAlert[]>;
  rules(): Promise<readonly ListedRule[]>;
  /** Series that a query gives now. Throws what Prometheus says of a wrong one. */
  query(
    expression: string,
  ): Promise<readonly { readonly metric: Readonly<Record<string, string>>; readonly value: number }[]>;
}

/**
 * The shipped rules with every `for` made two seconds, as scrapes and evaluations are one second apart here and not fifteen. Nothing
 * else of them is changed.
 */
export function quickRules(): string {
  return readSource('deploy/prometheus/warren.rules.yml').replaceAll(/^( +for: ).+$/gm, '$12s');
}

/** Starts one. `path`: the program. */
export async function openPrometheus(path: string): Promise<TestPrometheus> {
  const dir = await mkdtemp(join(tmpdir(), 'warren-prometheus-'));
  const port = await freePort();
  const url = `http://127.0.0.1:${port}`;
  const targets = join(dir, 'targets.json');
  await writeFile(targets, '[]');
  await writeFile(join(dir, 'warren.rules.yml'), quickRules());
  await writeFile(
    join(dir, 'prometheus.yml'),
    `global: { scrape_interval: 1s, evaluation_interval: 1s }
rule_files: [warren.rules.yml]
scrape_configs:
  - job_name: warren
    file_sd_configs: [{ files: [${targets}], refresh_interval: 1s }]
`,
  );
  const child = spawn(
    path,
    [
      `--config.file=${join(dir, 'prometheus.yml')}`,
      `--storage.tsdb.path=${join(dir, 'data')}`,
      `--web.listen-address=127.0.0.1:${port}`,
    ],
    { stdio: ['ignore', 'ignore', 'pipe'] },
  );
  let said = '';
  child.stderr.setEncoding('utf8').on('data', (chunk: string) => {
    said = (said + chunk).slice(-4_000);
  });
  const exited = new Promise<void>((resolve) => {
    child.once('close', () => resolve());
    child.once('error', (error) => {
      said += error.message;
      resolve();
    });
  });
  const ask = async (question: string): Promise<unknown> => {
    const answer = await fetch(`${url}/api/v1/${question}`, { signal: AbortSignal.timeout(10_000) });
    const { status, data, error } = (await answer.json()) as { status: string; data: unknown; error?: string };
    if (status !== 'success') throw new Error(`${question}: ${error}`);
    return data;
  };
  const prometheus: TestPrometheus = {
    scrape: async (jobs) => {
      const groups = Object.entries(jobs).map(([job, addresses]) => ({
        targets: addresses.map((address) => new URL(address).host),
        labels: { job },
      }));
      await writeFile(targets, JSON.stringify(groups));
    },
    alerts: async () => ((await ask('alerts')) as { alerts: ListedAlert[] }).alerts,
    rules: async () =>
      ((await ask('rules')) as { groups: { rules: ListedRule[] }[] }).groups.flatMap((group) => group.rules),
    query: async (expression) => {
      const { result } = (await ask(`query?query=${encodeURIComponent(expression)}`)) as {
        result: { metric: Record<string, string>; value: [number, string] }[];
      };
      return result.map(({ metric, value }) => ({ metric, value: Number(value[1]) }));
    },
    [Symbol.asyncDispose]: async () => {
      child.kill('SIGTERM');
      await exited;
      await rm(dir, { recursive: true, force: true });
    },
  };
  try {
    await eventually(async () => {
      if (child.exitCode !== null) throw new Error(`prometheus ended:\n${said}`);
      const answer = await fetch(`${url}/-/ready`);
      if (!answer.ok) throw new Error(`not ready:\n${said}`);
    });
  } catch (thrown) {
    await prometheus[Symbol.asyncDispose]();
    throw thrown;
  }
  return prometheus;
}

async function freePort(): Promise<number> {
  const server = createServer();
  return await new Promise((resolve, reject) => {
    server.once('error', reject);
    server.listen(0, '127.0.0.1', () => {
      const address = server.address();
      server.close(() => resolve(typeof address === 'object' && address !== null ? address.port : 0));
    });
  });
}
