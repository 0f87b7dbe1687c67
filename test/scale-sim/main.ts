/**
 * `make scale-sim`: real worker processes, scaled by a ScaledObject with the algorithms of KEDA and the HorizontalPodAutoscaler, on a real
 * broker, under three loads; by the depth of the queue alone, and by the workers that it wants. Exit 1 where a task was interrupted, lost
 * or failed. SCALE_SIM_MANIFEST names another ScaledObject, SCALE_SIM_FACTOR how much faster time goes (default 4), SCALE_SIM_LOADS and
 * SCALE_SIM_WAYS what to run (square,ramp,burst and depth,slo; `both` is the manifest as it is), SCALE_SIM_SEED what chance does.
 */
import { cpus } from 'node:os';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { findRoot } from '../../deploy/local-stack/stack.ts';
import { startRabbitmq43 } from '../../scripts/test-servers.ts';
import { toError } from '../../shared/errors/to-error.ts';
import { redactText } from '../../shared/observability/redact.ts';
import { percentile } from '../bench/rounds.ts';
import { FLAP_SECONDS, replicaFigures, timeline } from './figures.ts';
import { LOADS } from './loads.ts';
import type { Load } from './loads.ts';
import { runOne } from './run.ts';
import type { RunOptions, RunResult } from './run.ts';
import { readScaledObject } from './scaled-object.ts';
import type { ScaledObject } from './scaled-object.ts';

const FACTOR = Number(process.env['SCALE_SIM_FACTOR'] ?? 4);
const SEED = Number(process.env['SCALE_SIM_SEED'] ?? 1);
const MANIFEST = process.env['SCALE_SIM_MANIFEST'] ?? 'test/scale-sim/scaled-object.yaml';
const chosen = (name: string, otherwise: string): readonly string[] => (process.env[name] ?? otherwise).split(',');
const WAYS: Readonly<Record<string, (object: ScaledObject) => ScaledObject>> = {
  depth: (object) => ({ ...object, triggers: object.triggers.filter(({ type }) => type === 'rabbitmq') }),
  slo: (object) => ({ ...object, triggers: object.triggers.filter(({ type }) => type === 'metrics-api') }),
  both: (object) => object,
};
const EVERY_SECONDS = 15;
/** Starts are to take 5 to 20 seconds. */
const SLOWEST_START_SECONDS = 25;

type Site = Pick<RunOptions, 'amqpUrl' | 'managementUrl' | 'serverUrl'>;

async function main(): Promise<boolean> {
  const root = findRoot();
  const serverUrl = process.env['DATABASE_URL'] ?? '';
  if (serverUrl === '') throw new Error('no database named; run `make scale-sim`');
  const object = readScaledObject(await readFile(join(root, MANIFEST), 'utf8'));
  const named = { amqpUrl: process.env['SCALE_SIM_AMQP_URL'], managementUrl: process.env['SCALE_SIM_MANAGEMENT_URL'] };
  if (named.amqpUrl !== undefined && named.managementUrl !== undefined) {
    return await runAll(object, { serverUrl, amqpUrl: named.amqpUrl, managementUrl: named.managementUrl });
  }
  const broker = await startRabbitmq43(root, (line) => console.log(line));
  try {
    const [found] = broker.brokers;
    if (found?.managementUrl === undefined) {
      throw new Error(
        `no broker with a management API: ${broker.skipped.join('; ')}; name one by SCALE_SIM_AMQP_URL and SCALE_SIM_MANAGEMENT_URL`,
      );
    }
    return await runAll(object, { serverUrl, amqpUrl: found.amqpUrl, managementUrl: found.managementUrl });
  } finally {
    await broker.stop();
  }
}

async function runAll(object: ScaledObject, site: Site): Promise<boolean> {
  const today = new Date().toISOString().slice(0, 10);
  console.log(`${today}, Node ${process.version}, ${cpus().length} cores, ${cpus()[0]?.model ?? ''}`);
  console.log(`${MANIFEST} on ${redactText(site.amqpUrl)}; workers of 4 slots; seed ${SEED}`);
  console.log(`time goes ${FACTOR} times as fast; all seconds below are simulated ones`);
  const ways = chosen('SCALE_SIM_WAYS', 'depth,slo');
  let isWell = true;
  for (const load of LOADS.filter(({ name }) => chosen('SCALE_SIM_LOADS', 'square,ramp,burst').includes(name))) {
    console.log(`\n${load.name}: ${load.words}, for ${load.seconds} s`);
    // At the same time, so that a slow minute of the machine hits all.
    const results = await Promise.all(
      ways.map(async (name) => {
        const scaledObject = WAYS[name]?.(object);
        if (scaledObject === undefined)
          throw new Error(`SCALE_SIM_WAYS has ${name}; there are ${Object.keys(WAYS).join(', ')}`);
        return { name, result: await runOne({ ...site, name, scaledObject, load, factor: FACTOR, seed: SEED }) };
      }),
    );
    for (const { name, result } of results) isWell = report(name, load, result) && isWell;
  }
  return isWell;
}

/** Prints one run; false where a task or a process came to harm. */
function report(name: string, load: Load, result: RunResult): boolean {
  const { tasks, waits, moments, faults, podFaults, failedReadings, startSeconds } = result;
  const { changes, flaps, most, mean } = replicaFigures(moments);
  const shown = (value: number): string => value.toFixed(1);
  const interrupted = Object.entries(faults).map(([what, times]) => `${times} × ${what}`);
  const last = moments.at(-1)?.atSeconds ?? 0;
  console.log(`  ${name}`);
  console.log(`    replicas every ${EVERY_SECONDS} s: ${timeline(moments, EVERY_SECONDS)}`);
  console.log(
    `    ${tasks} tasks; wait p50 ${shown(percentile(waits, 0.5))} s, p95 ${shown(percentile(waits, 0.95))} s, longest ${shown(Math.max(...waits))} s`,
  );
  console.log(
    `    workers at most ${most}, mean ${shown(mean)}; ${changes} changes, ${flaps} flaps (back within ${FLAP_SECONDS} s); a start took ${shown(percentile(startSeconds, 0.5))} s; all ended ${shown(last - load.seconds)} s after the last came in`,
  );
  if (percentile(startSeconds, 0.5) > SLOWEST_START_SECONDS) {
    console.log(
      '    the machine was too busy to start workers as a cluster does: the waits above say little; try a lower SCALE_SIM_FACTOR',
    );
  }
  console.log(`    interrupted, lost or failed: ${interrupted.length === 0 ? 'none' : interrupted.join(', ')}`);
  if (failedReadings > 0) console.log(`    figures that could not be had: ${failedReadings}`);
  for (const fault of podFaults) console.log(`    ${fault}`);
  return interrupted.length === 0 && podFaults.length === 0 && waits.length === tasks;
}

// What it started ends with it; what is left in the servers the next run removes.
for (const signal of ['SIGINT', 'SIGTERM'] as const) process.once(signal, () => process.exit(130));
try {
  process.exitCode = (await main()) ? 0 : 1;
} catch (thrown) {
  console.error(redactText(toError(thrown).message));
  process.exit(2);
}
