/** What comes after the fire: waiting until all has ended, counting what is left, and what the processes have to say. */
import amqp from 'amqplib';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { namesOf } from '../../shared/amqp/topology.ts';
import type { Database } from '../../shared/postgres/pool.ts';
import { run } from '../../shared/postgres/statement.ts';
import { systemClock } from '../../shared/time/clock.ts';
import { compareBooks } from '../support/fleet.sql.ts';
import { QUEUE } from './chaos-fleet.ts';
import type { ChaosFleet } from './chaos-fleet.ts';
import { countLeftovers } from './evidence.sql.ts';
import type { Evidence } from './evidence.ts';

/** Where to look. */
export interface Aftermath {
  readonly amqpUrl: string;
  readonly prefix: string;
  readonly fleet: ChaosFleet;
  readonly db: Database;
}

/** How long to wait, and who is told. */
export interface DrainOptions {
  /** Milliseconds at most. */
  readonly drainMs: number;
  readonly show?: (line: string) => void;
}

/** Waits until nothing is left, or for as long as it may take; says what was there last. */
export async function drain(after: Aftermath, { drainMs, show }: DrainOptions): Promise<string> {
  const untilMs = systemClock.monotonicMs() + drainMs;
  await after.fleet.ready();
  let lastLeft = 'nothing';
  for (;;) {
    const { leases: _living, ...left } = await readLeft(after);
    const places = Object.entries(left).filter(([, count]) => count > 0);
    if (places.length === 0 || systemClock.monotonicMs() >= untilMs) return lastLeft;
    lastLeft = places.map(([place, count]) => `${count} ${place}`).join(', ');
    show?.(`left: ${lastLeft}`);
    await systemClock.sleep(250);
  }
}

/** Rows and messages that should be gone, by where they lie. */
export async function readLeft({ amqpUrl, prefix, db }: Aftermath): Promise<Readonly<Record<string, number>>> {
  const [row] = await run(db, countLeftovers);
  const left = Object.fromEntries(Object.entries(row ?? {}).map(([name, count]) => [name, Number(count)]));
  left['ledger_lines_that_differ'] = (await run(db, compareBooks)).length;
  const { ingress, dead, queue } = namesOf(prefix);
  const model = await amqp.connect(amqpUrl);
  model.on('error', () => undefined);
  try {
    const channel = await model.createChannel();
    for (const name of [ingress, dead, queue(QUEUE)]) left[name] = (await channel.checkQueue(name)).messageCount;
  } finally {
    await model.close();
  }
  return left;
}

/** Lives of workers, ends of processes, and what was logged as an error. */
export function readProcesses(fleet: ChaosFleet): Pick<Evidence, 'workers' | 'ends' | 'errors'> {
  const processes = fleet.places.flatMap(({ name, processes: all }) => all.map((process) => ({ name, process })));
  const lastOnes = new Set(fleet.places.map(({ process }) => process));
  return {
    workers: processes.flatMap(({ process }) => {
      const lost = new Set(process.logged('lease lost').map(({ workerId }) => workerId));
      return process.logged('lease taken').map(({ workerId }) => ({
        workerId: String(workerId),
        wasCutOff: !lastOnes.has(process) || lost.has(workerId),
      }));
    }),
    ends: fleet.places.flatMap(({ ends }) => ends),
    errors: processes.flatMap(({ name, process }) =>
      process.lines
        .filter(({ level }) => level === 'error')
        .map((line) => ({ process: name, message: line.message, text: JSON.stringify(line) })),
    ),
  };
}

/** The log of each process, in the order in which they ran. */
export async function keepLogs(fleet: ChaosFleet, dir: string): Promise<void> {
  for (const { name, processes } of fleet.places) {
    for (const [index, { lines, stray }] of processes.entries()) {
      const text = `${lines.map((line) => JSON.stringify(line)).join('\n')}\n${stray}`;
      await writeFile(join(dir, `${name}.${index + 1}.log`), text);
    }
  }
}
