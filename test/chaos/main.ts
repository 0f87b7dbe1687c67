/**
 * `make chaos`: a fleet of real processes on private servers, under load and under fire for `CHAOS_SECONDS`; then a checker
 * compares what was submitted and what ran with what Warren says. Exit 0: every invariant held. 1: one is broken. 2: it could
 * not be run.
 */
import { parseArgs } from 'node:util';
import { randomInt } from 'node:crypto';
import { join } from 'node:path';
import { isStackFailure, StackFailure } from '../../deploy/local-stack/failure.ts';
import { claimClone, findRoot } from '../../deploy/local-stack/stack.ts';
import { createDatabaseBeside, deleteTopology } from '../../scripts/provision.ts';
import { toError } from '../../shared/errors/to-error.ts';
import { Display } from './display.ts';
import { FAULTS, possibleFaults } from './faults.ts';
import { renderFigures, renderViolations } from './report.ts';
import { runChaos } from './run.ts';
import { startChaosServers } from './servers.ts';

const HELP = `Usage: node dist/test/chaos/main.js   (make chaos)

Runs a fleet of real processes on private servers, under load and under fire, and checks every invariant.

  CHAOS_SECONDS   seconds of load and faults, 5 to 86400; default 120
  CHAOS_SEED      decides faults, targets, durations and load; default: drawn, and printed
  CHAOS_RATE      tasks submitted a second, 1 to 1000; default 30
  CHAOS_BROKER    3.10 (the RabbitMQ of this machine; default) or 4.3
  CHAOS_WITHOUT   faults to leave out: parts of their names, with commas between

Exit codes: 0 every invariant held, 1 one is broken, 2 it could not be run.
Logs of the run are kept in .warren/chaos.
`;

const PREFIX = 'chaos';
const DATABASE = 'warren_chaos';
const DRAIN_MS = 300_000;
const COUNTS = { producer: 2, worker: 3, 'dead-letter-handler': 2 } as const;
const EXIT_CANNOT_RUN = 2;

async function main(): Promise<number> {
  const { values } = parseArgs({ options: { help: { type: 'boolean', short: 'h' } } });
  if (values.help === true) {
    console.log(HELP);
    return 0;
  }
  const seconds = integerFrom('CHAOS_SECONDS', 120, 5, 86_400);
  const seed = integerFrom('CHAOS_SEED', randomInt(2 ** 31), 0, 2 ** 32 - 1);
  const perSecond = integerFrom('CHAOS_RATE', 30, 1, 1_000);
  const version = process.env['CHAOS_BROKER'] || '3.10';
  const without = (process.env['CHAOS_WITHOUT'] ?? '').split(',').filter(Boolean);
  const root = findRoot();
  await using _lock = await claimClone(root, 'chaos');
  const display = new Display(process.stdout);
  const interrupted = new AbortController();
  for (const signal of ['SIGINT', 'SIGTERM'] as const) process.once(signal, () => interrupted.abort());
  const servers = await startChaosServers(root, version, (line) => display.line(line));
  try {
    const faults = possibleFaults(FAULTS, servers).filter(({ name }) => !without.some((part) => name.includes(part)));
    display.line(
      `chaos on RabbitMQ ${servers.brokerVersion} for ${seconds} s, CHAOS_SEED=${seed}, ${faults.length} kinds of faults`,
    );
    await deleteTopology(servers.amqpUrl, PREFIX, ['default']); // what a run that was killed left
    const { violations, figures, drainedInMs, lastLeft } = await runChaos({
      seed,
      seconds,
      drainMs: DRAIN_MS,
      servers,
      prefix: PREFIX,
      databaseUrl: await createDatabaseBeside(servers.databaseUrl, DATABASE),
      dir: join(root, '.warren/chaos'),
      faults,
      counts: COUNTS,
      perSecond,
      tell: (line) => display.line(line),
      show: (line) => display.show(line),
      signal: interrupted.signal,
    });
    display.line(`\n${renderFigures(figures)}`);
    display.line(
      `nothing was left ${(drainedInMs / 1_000).toFixed(1)} s after the last fault; last to go: ${lastLeft}`,
    );
    if (violations.length === 0) {
      display.line('every invariant held');
      return 0;
    }
    display.line(`\n${renderViolations(violations)}`);
    display.line(
      `again: CHAOS_SEED=${seed} CHAOS_SECONDS=${seconds} CHAOS_RATE=${perSecond} CHAOS_BROKER=${version} make chaos; logs: .warren/chaos`,
    );
    return 1;
  } finally {
    display.end();
    await servers.stop();
  }
}

function integerFrom(variable: string, usual: number, least: number, most: number): number {
  const text = process.env[variable] ?? '';
  if (text === '') return usual;
  const value = Number(text);
  if (Number.isInteger(value) && value >= least && value <= most) return value;
  throw new StackFailure(`${variable} is "${text}"; it must be a whole number from ${least} to ${most}`);
}

try {
  process.exitCode = await main();
} catch (thrown) {
  console.error(
    isStackFailure(thrown)
      ? thrown.message
      : `chaos could not run: ${toError(thrown).stack ?? toError(thrown).message}`,
  );
  process.exitCode = EXIT_CANNOT_RUN;
}
