/**
 * Runs what the docs show. Blocks whose fence is marked `sh run` are run by bash, page by page, in the order in which they
 * stand; `python run` by a Python with pika; `ts run` are written as modules, compiled by the test and loaded by a fleet.
 *
 * `node dist/scripts/docs-run.js` runs them against the fleet that `WARREN_URL`, `WARREN_DEAD_LETTERS_URL`, `WARREN_TOKEN`
 * and `AMQP_URL` name, except for those of the pages in TypeScript.
 */
import { spawn } from 'node:child_process';
import { readFile, readdir } from 'node:fs/promises';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { findRoot } from '../deploy/local-stack/stack.ts';
import { systemClock } from '../shared/time/clock.ts';

/** A fenced block of a page. */
export interface Block {
  /** Path of the page from the root. */
  readonly page: string;
  /** Line of the fence, from 1. */
  readonly line: number;
  /** `sh`, `ts`, `python`, `json`, …; empty where the fence names none. */
  readonly language: string;
  /** True where the fence says `run`. */
  readonly isRun: boolean;
  readonly text: string;
}

/** How blocks are run. */
export interface DocsRunOptions {
  readonly root: string;
  /** Environment of the blocks. */
  readonly env: Readonly<Record<string, string>>;
  /** Command that `warren` stands for. */
  readonly warren: readonly string[];
  /** Prefix of the names on the broker, in place of `warren`. */
  readonly prefix: string;
  /** Python with pika; `undefined`: such blocks are left out. */
  readonly python: string | undefined;
}

/** What a page printed. */
export interface PageRun {
  readonly page: string;
  readonly exitCode: number;
  readonly output: string;
}

const WITHIN_MS = 120_000;

/** Pages for people: those of the root and of `docs/`. */
export async function listPages(root: string): Promise<string[]> {
  const below = await readdir(join(root, 'docs'), { recursive: true });
  const top = (await readdir(root)).filter((name) => name.endsWith('.md'));
  return [...top, ...below.filter((name) => name.endsWith('.md')).map((name) => `docs/${name}`)].toSorted();
}

/** The fenced blocks of a page. */
export function blocksOf(page: string, text: string): Block[] {
  const blocks: Block[] = [];
  const lines = text.split('\n');
  for (let index = 0; index < lines.length; index += 1) {
    const fence = /^(`{3,})\s*(\S*)(\s+run)?\s*$/.exec(lines[index] ?? '');
    if (fence === null) continue;
    const [, ticks = '```', language = '', run] = fence;
    const end = lines.findIndex((line, at) => at > index && line.startsWith(ticks));
    const last = end < 0 ? lines.length : end;
    blocks.push({
      page,
      line: index + 1,
      language,
      isRun: run !== undefined,
      text: lines.slice(index + 1, last).join('\n'),
    });
    index = last;
  }
  return blocks;
}

/** Runs the blocks of one page for shells and Python, as one bash script, so that a variable of one serves the next. */
export async function runPage(page: string, options: DocsRunOptions): Promise<PageRun | undefined> {
  const { root, env, prefix, python } = options;
  const blocks = blocksOf(page, await readFile(join(root, page), 'utf8')).filter(({ isRun }) => isRun);
  const steps = blocks.flatMap((block) => stepOf(block, python));
  if (steps.length === 0) return undefined;
  const warren = options.warren.map((word) => `'${word.replaceAll("'", `'\\''`)}'`).join(' ');
  const script = ['set -euo pipefail', `warren() { ${warren} "$@"; }`, ...steps].join('\n');
  const named = script.replaceAll(/\bwarren\.(tasks|dlx|dead|ingress)\b/g, `${prefix}.$1`);
  const child = spawn('bash', ['-c', named], { cwd: root, env: { ...env }, stdio: ['ignore', 'pipe', 'pipe'] });
  let output = '';
  child.stdout.on('data', (chunk: Buffer) => (output += chunk.toString()));
  child.stderr.on('data', (chunk: Buffer) => (output += chunk.toString()));
  const cancel = systemClock.after(WITHIN_MS, () => child.kill('SIGKILL'));
  const exitCode = await new Promise<number>((resolve, reject) => {
    child.once('error', reject);
    child.once('close', (code) => resolve(code ?? 1));
  });
  cancel();
  return { page, exitCode, output };
}

/** A block as lines of bash, after a line that says which it is. */
function stepOf({ page, line, language, text }: Block, python: string | undefined): string[] {
  const head = `printf '\\n# %s:%s\\n' '${page}' ${line}`;
  if (language === 'sh') return [head, text];
  if (language === 'python' && python !== undefined) return [head, `'${python}' - <<'PYTHON'\n${text}\nPYTHON`];
  return [];
}

async function main(): Promise<void> {
  const root = findRoot();
  const env = Object.fromEntries(
    Object.entries(process.env).filter((pair): pair is [string, string] => pair[1] !== undefined),
  );
  const options: DocsRunOptions = {
    root,
    env,
    warren: [process.execPath, join(root, 'dist/cli/main.js')],
    prefix: env['WARREN_PREFIX'] ?? 'warren',
    python: env['WARREN_TEST_PYTHON'],
  };
  for (const page of await listPages(root)) {
    const run = await runPage(page, options);
    if (run === undefined) continue;
    console.log(run.output);
    console.log(`${page}: ${run.exitCode === 0 ? 'passed' : `FAILED (${run.exitCode})`}`);
    if (run.exitCode !== 0) process.exitCode = 1;
  }
}

if (process.argv[1] !== undefined && import.meta.url === pathToFileURL(process.argv[1]).href) await main();
