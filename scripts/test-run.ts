/**
 * `make test`: checks the sources, provides the servers, runs every test, and ends with `N passed, N failed, N skipped`.
 * `--brokers`: integration for each broker at hand, faults and chaos on the newest, and what is released. `--long`: cases at real time too.
 * `--fail-on-skip`: a skip is a failure, for machines that have every tool.
 */
import { parseArgs } from 'node:util';
import { toError } from '../shared/errors/to-error.ts';
import { systemClock } from '../shared/time/clock.ts';
import { isStackFailure } from '../deploy/local-stack/failure.ts';
import { claimClone, findRoot } from '../deploy/local-stack/stack.ts';
import { EMPTY_TALLY, addTallies, renderTotals } from './jest-report.ts';
import type { Tally } from './jest-report.ts';
import { runCommand, runJest } from './test-steps.ts';
import { openTestServers } from './test-servers.ts';
import type { TestBroker, TestServers } from './test-servers.ts';

/** Milliseconds after which a step is held to hang. */
const CHECK_WITHIN_MS = 5 * 60_000;
const TESTS_WITHIN_MS = 45 * 60_000;
const LONG_TESTS_WITHIN_MS = 60 * 60_000;
/** A run whose faults are always the same; `make chaos` draws others. */
const CHAOS = { CHAOS_SECONDS: '60', CHAOS_SEED: '2026', CHAOS_RATE: '15' } as const;

const { values: options } = parseArgs({
  options: { 'fail-on-skip': { type: 'boolean' }, brokers: { type: 'boolean' }, long: { type: 'boolean' } },
});
const root = findRoot();
let tally = EMPTY_TALLY;

/** Runs one step and says in a line what it was, how it ended and how long it took. */
async function step(name: string, run: () => Promise<Tally>): Promise<void> {
  const startedMs = systemClock.monotonicMs();
  if (process.stdout.isTTY) process.stdout.write(`${name} …\r`);
  let result: Tally;
  try {
    result = await run();
  } catch (thrown) {
    const words = isStackFailure(thrown) ? thrown.message : (toError(thrown).stack ?? toError(thrown).message);
    result = { ...EMPTY_TALLY, failed: [name], details: [words] };
  }
  const seconds = ((systemClock.monotonicMs() - startedMs) / 1_000).toFixed(1);
  console.log(`${name}: ${renderTotals(result)} (${seconds} s)`);
  for (const detail of result.details) console.log(detail);
  tally = addTallies(tally, result);
}

async function check(name: string, file: string, args: readonly string[]): Promise<void> {
  await step(
    name,
    async () => await runCommand(name, [`node_modules/.bin/${file}`, ...args], { root, withinMs: CHECK_WITHIN_MS }),
  );
}

async function test(project: string, servers: TestServers | undefined, broker: TestBroker | undefined): Promise<void> {
  const name = broker === undefined ? project : `${project} on RabbitMQ ${broker.version}`;
  await step(name, async () => {
    const withinMs = options.long === true ? LONG_TESTS_WITHIN_MS : TESTS_WITHIN_MS;
    const env = { ...servers?.environmentFor(broker), ...(options.long === true ? { WARREN_TEST_LONG: '1' } : {}) };
    const result = await runJest(project, { name: name.replaceAll(' ', '-'), root, env, withinMs });
    const named = (test: string): string => (broker === undefined ? test : `${test} (RabbitMQ ${broker.version})`);
    return { ...result, failed: result.failed.map(named), skipped: result.skipped.map(named) };
  });
}

/** On servers of its own. */
async function chaos(version: string, canBeSkipped: boolean): Promise<void> {
  const name = `chaos on RabbitMQ ${version}`;
  const env = { ...CHAOS, CHAOS_BROKER: version };
  const command = [process.execPath, 'dist/test/chaos/main.js'];
  const settings = { root, env, withinMs: TESTS_WITHIN_MS, canBeSkipped };
  await step(name, async () => await runCommand(name, command, settings));
}

async function runAll(): Promise<void> {
  // Starting servers is waiting for the most part: the checks run beside it.
  const opening = openTestServers(root, options.brokers === true, (line) => console.log(`  ${line}`));
  opening.catch(() => undefined); // heard of below
  await check('types', 'tsc', ['-p', 'tsconfig.json']);
  await check('lint', 'oxlint', ['--type-aware', '--deny-warnings']);
  await check('form', 'oxfmt', ['--check']);
  await test('unit', undefined, undefined);
  let servers: TestServers | undefined;
  await step('servers', async () => {
    servers = await opening;
    return { ...EMPTY_TALLY, passed: 1, skipped: servers.skipped };
  });
  if (servers === undefined) return;
  const { brokers, areNamed, skipped } = servers;
  const newest = options.brokers === true ? '4.3' : '3.10';
  const isAbsent = areNamed || (options.brokers === true && skipped.length > 0);
  try {
    // Two lanes, for chaos and faults take time and little of the machine. More at once, and what waits for a lease or a lock
    // would wait for the machine. Whichever comes to its end first goes on with integration.
    const last = brokers.at(-1);
    const left = [...brokers];
    const integrate = async (): Promise<void> => {
      for (let broker = left.shift(); broker !== undefined; broker = left.shift()) {
        await test('integration', servers, broker);
      }
    };
    const release = async (): Promise<void> => {
      if (options.brokers === true || options.long === true) return await test('release', servers, brokers[0]);
      const skipped = ['release: builds packages and the image anew, which takes minutes; `make test-brokers` does'];
      await step('release', async () => await Promise.resolve({ ...EMPTY_TALLY, skipped }));
    };
    const killing = async (): Promise<void> => {
      await chaos(newest, isAbsent);
      if (last !== undefined) await test('faults', servers, last);
      await integrate();
    };
    const using = async (): Promise<void> => {
      await test('once', servers, brokers[0]);
      await release();
      await integrate();
    };
    await Promise.all([killing(), using()]);
  } finally {
    await servers.stop();
  }
}

// Ctrl-C reaches the step that runs as well; the servers are stopped on the way out.
let interruptedBy: 'SIGINT' | 'SIGTERM' | undefined;
for (const signal of ['SIGINT', 'SIGTERM'] as const) process.on(signal, () => (interruptedBy ??= signal));

try {
  await using _lock = await claimClone(root, 'test-run');
  await runAll();
} catch (thrown) {
  if (!isStackFailure(thrown)) throw thrown;
  console.error(thrown.message);
  process.exit(thrown.exitCode);
}
for (const name of tally.failed) console.log(`failed: ${name}`);
for (const name of tally.skipped) console.log(`skipped: ${name}`);
console.log(renderTotals(tally));
const isGreen = tally.failed.length === 0 && (options['fail-on-skip'] !== true || tally.skipped.length === 0);
process.exitCode = interruptedBy === undefined ? (isGreen ? 0 : 1) : 130;
