/** What the docs show works: every block that is marked to be run, against a fleet with the sample types. */
import { spawn } from 'node:child_process';
import type { ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { existsSync } from 'node:fs';
import { mkdir, readFile, rm, writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { afterAll, beforeAll, expect, test } from '@jest/globals';
import { blocksOf, listPages, runPage } from '../../scripts/docs-run.ts';
import type { Block, DocsRunOptions } from '../../scripts/docs-run.ts';
import { AMQP_URL, openBroker, removeTopology } from '../support/broker.ts';
import type { TestBroker } from '../support/broker.ts';
import { openEmptyDatabase } from '../support/database.ts';
import type { TestDatabase } from '../support/database.ts';
import { eventually } from '../support/eventually.ts';
import { ROOT } from '../support/source-files.ts';
import { curl, pika, psql, python, testWith } from '../support/tools.ts';
import type { Tool } from '../support/tools.ts';

const REGISTER = new URL('../support/ts-register.mjs', import.meta.url).href;
const MAIN = ['--no-warnings', '--import', REGISTER, join(ROOT, 'cli/main.ts')];
/** As deep as `examples/tasks`, so that the imports of the blocks are right. */
const FOLDER = join(ROOT, '.warren', `docs-${process.pid}`);
/** The blocks call `warren` often: the built one starts in a tenth of the time. `make test` builds it first. */
const BUILT = join(ROOT, 'dist/cli/main.js');
const TOKEN = 'a-token-for-the-docs';

const pages = await listPages(ROOT);
const blocks: Block[] = [];
for (const page of pages) blocks.push(...blocksOf(page, await readFile(join(ROOT, page), 'utf8')));
const modules = blocks.filter(({ language, isRun }) => language === 'ts' && isRun);
const runnable = pages.filter((page) =>
  blocks.some((block) => block.page === page && block.isRun && ['sh', 'python'].includes(block.language)),
);

let db: TestDatabase;
let broker: TestBroker;
let fleet: ChildProcess;
let options: DocsRunOptions;
const out = { stdout: '', stderr: '' };

beforeAll(async () => {
  db = await openEmptyDatabase();
  broker = await openBroker();
  await mkdir(FOLDER, { recursive: true });
  // One task type may be shown on two pages.
  const texts = [...new Set(modules.map(({ text }) => text))];
  const files = texts.map((_text, index) => join(FOLDER, `block-${index}.ts`));
  for (const [index, file] of files.entries()) await writeFile(file, `${texts[index] ?? ''}\n`);
  const env = {
    PATH: `${dirname(process.execPath)}:/usr/bin:/bin`,
    HOME: FOLDER,
    TMPDIR: FOLDER, // another user of the machine may have run this before, and own files of these names
    DATABASE_URL: db.url,
    AMQP_URL,
    WARREN_PREFIX: broker.prefix,
    WARREN_TOKENS: JSON.stringify([{ name: 'docs', role: 'admin', token: TOKEN }]),
    WARREN_HTTP_PRODUCER_PORT: '0',
    WARREN_HTTP_DEAD_LETTER_HANDLER_PORT: '0',
    WARREN_HTTP_WORKER_PORT: '0',
    WARREN_FILES_STORE: 'fs',
    WARREN_FILES_DIRECTORY: join(FOLDER, 'files'),
  };
  const tasks = [join(ROOT, 'examples/tasks/samples.ts'), ...files];
  fleet = spawn(process.execPath, [...MAIN, 'dev', '--json', '--tasks', ...tasks], {
    cwd: ROOT,
    env,
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  fleet.stdout?.on('data', (chunk: Buffer) => (out.stdout += chunk.toString()));
  fleet.stderr?.on('data', (chunk: Buffer) => (out.stderr += chunk.toString()));
  const urls = await eventually(() => JSON.parse(out.stdout) as Record<string, unknown>, { withinMs: 40_000 }).catch(
    () => {
      throw new Error(`the fleet did not start: ${out.stderr}`);
    },
  );
  options = {
    root: ROOT,
    env: {
      ...env,
      WARREN_TOKEN: TOKEN,
      WARREN_URL: String(urls['taskApi']),
      WARREN_DEAD_LETTERS_URL: String(urls['deadLetterApi']),
    },
    warren: [process.execPath, ...(existsSync(BUILT) ? [BUILT] : MAIN)],
    prefix: broker.prefix,
    python: pika.path,
  };
});

afterAll(async () => {
  if (fleet.exitCode === null) {
    fleet.kill('SIGKILL');
    await once(fleet, 'close');
  }
  await removeTopology(broker.prefix, ['default']);
  await broker[Symbol.asyncDispose]();
  await db[Symbol.asyncDispose]();
  await rm(FOLDER, { recursive: true });
});

const bash: Tool = { name: 'bash', path: ['/usr/bin/bash', '/bin/bash'].find((path) => existsSync(path)) };

for (const page of runnable) {
  const run = blocks.filter((block) => block.page === page && block.isRun);
  const isPythonAlone = run.every(({ language }) => language === 'python');
  const asked = Object.entries({ curl, psql, python3: python }).flatMap(([name, tool]) =>
    run.some(({ text }) => text.includes(`${name} `)) ? [tool] : [],
  );
  testWith(
    isPythonAlone ? pika : (asked.find(({ path }) => path === undefined) ?? asked[0] ?? bash),
    `what ${page} shows works`,
    async () => await expectToWork(page),
    450_000,
  );
}

async function expectToWork(page: string): Promise<void> {
  const run = await runPage(page, options);
  const log = run?.exitCode === 0 ? '' : out.stderr.slice(-3_000);
  expect({ ...run, log }).toMatchObject({ exitCode: 0, log: '' });
  expect(run?.output).not.toMatch(/"type":"internal"/);
}

test('task types that the docs show pass the type check', async () => {
  const config = {
    extends: '../../tsconfig.json',
    include: ['./*.ts'],
    compilerOptions: { allowImportingTsExtensions: true },
  };
  await writeFile(join(FOLDER, 'tsconfig.json'), JSON.stringify(config));
  const tsc = spawn(process.execPath, [join(ROOT, 'node_modules/typescript/bin/tsc'), '-p', FOLDER], { cwd: ROOT });
  let said = '';
  tsc.stdout.on('data', (chunk: Buffer) => (said += chunk.toString()));
  const [code] = (await once(tsc, 'close')) as [number];
  expect({ code, said }).toEqual({ code: 0, said: '' });
  expect(modules.length).toBeGreaterThan(1);
});
