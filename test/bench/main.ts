/**
 * `make bench`: no-op tasks end to end on each broker at hand (those of WARREN_BENCH_AMQP_URLS, else the private one and a
 * 4.3), against bare amqplib on the same kind of queue in the same run. Prints each aim as `aim …: met` or `aim …: missed`; a
 * missed one is exit 1.
 */
import { cpus } from 'node:os';
import { findRoot } from '../../deploy/local-stack/stack.ts';
import { startRabbitmq43 } from '../../scripts/test-servers.ts';
import { toError } from '../../shared/errors/to-error.ts';
import { redactText } from '../../shared/observability/redact.ts';
import { aim } from './aim.ts';
import { measureCeiling, measureFleet, percentile } from './rounds.ts';
import type { Ceiling, Figures, Site } from './rounds.ts';

const ROUNDS = Number(process.env['BENCH_ROUNDS'] ?? 3);
const TASKS = Number(process.env['BENCH_TASKS'] ?? 50_000);
const LATENCY_SECONDS = Number(process.env['BENCH_LATENCY_SECONDS'] ?? 10);
const AIMS = { quorum: 0.25, classic: 0.35, startP99Ms: 15, workerMb: 135 };

interface Result {
  readonly ceiling: Ceiling;
  readonly ratio: number;
  readonly figures: Figures;
}

async function main(): Promise<boolean> {
  const root = findRoot();
  const serverUrl = process.env['DATABASE_URL'] ?? '';
  const named = (process.env['WARREN_BENCH_AMQP_URLS'] ?? '').split(',').filter(Boolean);
  const first = process.env['AMQP_URL'] ?? '';
  if (serverUrl === '' || (named.length === 0 && first === '')) throw new Error('no servers named; run `make bench`');
  const today = new Date().toISOString().slice(0, 10);
  console.log(`${today}, Node ${process.version}, ${cpus().length} cores, ${cpus()[0]?.model ?? ''}`);
  console.log(`${TASKS} no-op tasks of 200 bytes, medians of ${ROUNDS} rounds, worker concurrency 250`);
  if (named.length > 0) return await benchBrokers(root, serverUrl, named);
  const second = await startRabbitmq43(root, (line) => console.log(line));
  try {
    for (const reason of second.skipped) console.log(`skipped: ${reason}`);
    return await benchBrokers(root, serverUrl, [first, ...second.brokers.map(({ amqpUrl }) => amqpUrl)]);
  } finally {
    await second.stop();
  }
}

async function benchBrokers(root: string, serverUrl: string, amqpUrls: readonly string[]): Promise<boolean> {
  let areMet = true;
  for (const amqpUrl of amqpUrls) areMet = (await benchBroker({ root, amqpUrl, serverUrl })) && areMet;
  return areMet;
}

async function benchBroker(site: Site): Promise<boolean> {
  console.log(`\n${redactText(site.amqpUrl)}`);
  const results: Result[] = [];
  for (let round = 1; round <= ROUNDS; round += 1) {
    // Alternating, so that a slow minute of the machine hits both.
    const ceiling = await measureCeiling(site, TASKS);
    const figures = await measureFleet(site, { tasks: TASKS, latencySeconds: LATENCY_SECONDS });
    const ratio = figures.processedPerSecond / ceiling.perSecond;
    results.push({ ceiling, ratio, figures });
    console.log(
      `  round ${round}: RabbitMQ ${ceiling.version} ${ceiling.queueType}  bare ${whole(ceiling.perSecond)}/s  ` +
        `accepted ${whole(figures.acceptedPerSecond)}/s  processed ${whole(figures.processedPerSecond)}/s (${ratio.toFixed(2)})  ` +
        `start p50 ${figures.startP50Ms.toFixed(1)} ms p99 ${figures.startP99Ms.toFixed(1)} ms  ` +
        Object.entries(figures.memoryMb)
          .map(([name, mb]) => `${name} ${whole(mb)} MB`)
          .join('  '),
    );
  }
  const median = (read: (result: Result) => number): number =>
    percentile(
      results.map((result) => read(result)),
      0.5,
    );
  const perTask = (name: keyof Figures['perTask']): number => median(({ figures }) => figures.perTask[name]);
  console.log(
    `  a task: ${whole(perTask('producerUs'))} µs of processor time to accept, ${whole(perTask('workerUs'))} µs to run; ` +
      `Postgres keeps ${whole(perTask('diskBytes'))} bytes of it and writes ${whole(perTask('walBytes'))} bytes of WAL`,
  );
  const queueType = results[0]?.ceiling.queueType ?? 'classic';
  return [
    aim(
      `processed at least ${AIMS[queueType]} of bare amqplib on ${queueType}`,
      median(({ ratio }) => ratio),
      (value) => value >= AIMS[queueType],
    ),
    aim(
      `submit to start p99 under ${AIMS.startP99Ms} ms at 200/s`,
      median(({ figures }) => figures.startP99Ms),
      (value) => value < AIMS.startP99Ms,
    ),
    aim(
      `a worker under ${AIMS.workerMb} MB`,
      median(({ figures }) => figures.memoryMb['worker-1'] ?? Number.NaN),
      (value) => value < AIMS.workerMb,
    ),
  ].every(Boolean);
}

const whole = (value: number): string => value.toFixed(0);

try {
  process.exitCode = (await main()) ? 0 : 1;
} catch (thrown) {
  console.error(`bench failed: ${toError(thrown).message}`);
  process.exitCode = 1;
}
