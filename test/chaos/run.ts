/** One run: a fleet, a load and faults for so long; then all is mended, and what is left is judged. */
import amqp from 'amqplib';
import { mkdir, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { deleteTopology, prepareDatabase } from '../../scripts/provision.ts';
import { capabilitiesOf } from '../../shared/amqp/capabilities.ts';
import { namesOf } from '../../shared/amqp/topology.ts';
import { silentLogger } from '../../shared/observability/silent-log.ts';
import { Database } from '../../shared/postgres/pool.ts';
import { run } from '../../shared/postgres/statement.ts';
import { systemClock } from '../../shared/time/clock.ts';
import { FaultyProxy } from '../support/faulty-proxy.ts';
import { seeded } from '../support/seeded.ts';
import { readJournal } from '../support/tasks/journal.ts';
import { drain, keepLogs, readLeft, readProcesses } from './aftermath.ts';
import { openChaosFleet, QUEUE } from './chaos-fleet.ts';
import type { ChaosFleet, ChaosFleetOptions } from './chaos-fleet.ts';
import { check } from './checker.ts';
import type { Violation } from './checker.ts';
import { readTables } from './evidence.ts';
import type { Evidence } from './evidence.ts';
import { endSessions, readProgress, STEPS_DDL } from './evidence.sql.ts';
import { readFlows } from './flow-evidence.ts';
import { FlowLoad } from './flow-load.ts';
import type { FlowSubmission } from './flow-load.ts';
import { FlowOperator } from './flow-operator.ts';
import type { Fault, FaultSite } from './faults.ts';
import { countFigures } from './figures.ts';
import type { Figures, Injected } from './figures.ts';
import { Load } from './load.ts';
import { ChaosPublisher } from './publisher.ts';
import { Operator } from './operator.ts';
import { inject } from './schedule.ts';
import { readSchedules } from './schedule-evidence.ts';
import { ScheduleLoad } from './schedule-load.ts';
import type { ChaosServers } from './servers.ts';
import { Log } from './submissions.ts';
import type { Submission } from './submissions.ts';

/** What a run is. */
export interface RunOptions {
  readonly seed: number;
  /** Seconds of load and faults. */
  readonly seconds: number;
  /** Milliseconds that all may take to end afterwards. */
  readonly drainMs: number;
  readonly servers: ChaosServers;
  /** Start of all names on the broker; nobody else has it. */
  readonly prefix: string;
  /** An empty database. */
  readonly databaseUrl: string;
  /** Folder of the run; emptied first. Logs of both sides stay there. */
  readonly dir: string;
  readonly faults: readonly Fault[];
  readonly counts: ChaosFleetOptions['counts'];
  /** Tasks a second. */
  readonly perSecond: number;
  /** Kinds of the load, `FLOWS` for flows, `SCHEDULES` for schedules; absent: all. */
  readonly kinds?: readonly string[];
  /** Added to the environment of every process. */
  readonly env?: Readonly<Record<string, string>>;
  /** Takes a line. */
  readonly tell: (line: string) => void;
  /** Takes figures that go on changing. */
  readonly show?: (line: string) => void;
  /** Ends load and faults before their time. */
  readonly signal?: AbortSignal;
}

/** What came of it. */
export interface RunResult {
  readonly violations: readonly Violation[];
  readonly figures: Figures;
  /** Milliseconds from the last fault until nothing was left. */
  readonly drainedInMs: number;
  /** What was the last to go: `1 tasks, 2 outbox`. */
  readonly lastLeft: string;
}

/** The kind of the load that stands for flows. */
export const FLOWS = 'flows';
/** The one that stands for schedules. */
export const SCHEDULES = 'schedules';
/** Tasks of the rest of the load for each flow that is started; a flow is some seven tasks. */
const TASKS_PER_FLOW = 15;
const SHOW_EVERY_MS = 2_000;

/** Runs it. Throws only where the run itself could not be held. */
export async function runChaos(options: RunOptions): Promise<RunResult> {
  const { dir, prefix, databaseUrl, servers } = options;
  await rm(dir, { recursive: true, force: true });
  await mkdir(dir, { recursive: true });
  await prepareDatabase(databaseUrl, prefix);
  const db = openDatabase(databaseUrl);
  await db.connectOrThrow();
  for (const text of STEPS_DDL) await db.query({ text });
  const { amqpUrl } = servers;
  const { counts, env = {} } = options;
  const fleet = await openChaosFleet({ prefix, amqpUrl, databaseUrl, dir, counts, env });
  try {
    return await underFire(options, fleet, db);
  } finally {
    await fleet.stop();
    await keepLogs(fleet, dir);
    await fleet.close();
    await db.stop(systemClock.monotonicMs() + 2_000);
    await deleteTopology(amqpUrl, prefix, [QUEUE]).catch(() => undefined); // the servers may be gone, with it
  }
}

async function underFire(options: RunOptions, fleet: ChaosFleet, db: Database): Promise<RunResult> {
  const { dir, seed, seconds, servers, tell } = options;
  await fleet.ready();
  const random = seeded(seed);
  const journal = join(dir, 'runs.jsonl');
  const submissions = new Log<Submission>(join(dir, 'submissions.jsonl'));
  const link = await FaultyProxy.open(servers.amqpUrl);
  const publisher = new ChaosPublisher(link.urlOf(servers.amqpUrl), namesOf(options.prefix).tasks);
  const load = new Load(
    { submissions, publisher, producerUrl: (choice) => fleet.url('producer', choice), random: seeded(seed + 1) },
    {
      journal,
      seconds,
      perSecond: options.perSecond,
      ...(options.kinds === undefined ? {} : { kinds: options.kinds }),
    },
  );
  const operator = new Operator({
    handlerUrl: (choice) => fleet.url('dead-letter-handler', choice),
    producerUrl: (choice) => fleet.url('producer', choice),
    taskIds: () => submissions.all.flatMap(({ taskId }) => (taskId === undefined ? [] : [taskId])),
    random: seeded(seed + 2),
  });
  const flows = new Log<FlowSubmission>(join(dir, 'flows.jsonl'));
  const producerUrl = (choice: number): string | undefined => fleet.url('producer', choice);
  const flowLoad = new FlowLoad(
    { submissions: flows, producerUrl, random: seeded(seed + 3) },
    { journal, perSecond: options.perSecond / TASKS_PER_FLOW },
  );
  const flowOperator = new FlowOperator({ producerUrl, flows: () => flows.all, random: seeded(seed + 4) });
  const scheduleLoad = new ScheduleLoad({ producerUrl, random: seeded(seed + 5) }, journal);
  const hasFlows = options.kinds?.includes(FLOWS) ?? true;
  const hasSchedules = options.kinds?.includes(SCHEDULES) ?? true;
  const showing = new AbortController();
  publisher.start();
  load.start();
  operator.start();
  if (hasFlows) {
    flowLoad.start();
    flowOperator.start();
  }
  if (hasSchedules) scheduleLoad.start();
  void showProgress(options, db, showing.signal);
  let injected: readonly Injected[] = [];
  try {
    const untilMs = systemClock.monotonicMs() + seconds * 1_000;
    const site = siteOf(options, fleet, db);
    injected = await inject(site, options.faults, { random, untilMs, tell, ...signalOf(options) });
    await writeFile(join(dir, 'faults.jsonl'), injected.map((fault) => `${JSON.stringify(fault)}\n`).join(''));
  } finally {
    fleet.heal();
    await scheduleLoad.stop();
    await flowOperator.stop();
    await operator.stop();
    await flowLoad.stop();
    await load.stop();
    showing.abort();
    await publisher.stop();
    await link[Symbol.asyncDispose]();
  }
  tell(
    `no more faults and no more load; waiting for ${submissions.all.length} submissions and ${flows.all.length} flows to end`,
  );
  if (hasSchedules) await scheduleLoad.pauseAll();
  const startMs = systemClock.monotonicMs();
  const after = { amqpUrl: servers.amqpUrl, prefix: options.prefix, fleet, db };
  const lastLeft = await drain(after, options);
  const drainedInMs = systemClock.monotonicMs() - startMs;
  await fleet.stop();
  // What was delivered and never answered is back in its queue now.
  const left = await readLeft(after);
  const mayLoseRefused =
    capabilitiesOf(servers.brokerVersion).queueType === 'classic' &&
    injected.some(({ name }) => name.startsWith('broker '));
  const evidence: Evidence = {
    ...(await readTables(db)),
    ...readProcesses(fleet),
    submissions: submissions.all,
    runs: readJournal(journal),
    presses: operator.presses,
    cancelled: operator.cancelled,
    left,
    mayLoseRefused,
    flows: {
      ...(await readFlows(db)),
      submissions: flows.all,
      cancelled: flowOperator.cancelled,
      retried: flowOperator.retried,
    },
    schedules: await readSchedules(db),
  };
  return { violations: check(evidence), figures: countFigures(evidence, injected), drainedInMs, lastLeft };
}

function signalOf({ signal }: RunOptions): { readonly signal?: AbortSignal } {
  return signal === undefined ? {} : { signal };
}

function openDatabase(url: string): Database {
  return new Database(
    { clock: systemClock, log: silentLogger, random: () => 0.5 },
    {
      url,
      applicationName: 'warren-chaos',
      max: 3,
      connectTimeoutMs: 5_000,
      statementTimeoutMs: 60_000,
      lockTimeoutMs: 5_000,
      idleTimeoutMs: 10_000,
      schema: 'warren',
    },
  );
}

function siteOf({ servers, prefix }: RunOptions, fleet: ChaosFleet, db: Database): FaultSite {
  const queue = namesOf(prefix).queue(QUEUE);
  const onBroker = async (act: (channel: amqp.Channel) => Promise<unknown>): Promise<void> => {
    const model = await amqp.connect(servers.amqpUrl);
    model.on('error', () => undefined);
    try {
      await act(await model.createChannel());
    } finally {
      await model.close();
    }
  };
  return {
    fleet,
    servers,
    purgeQueue: async () => await onBroker(async (channel) => await channel.purgeQueue(queue)),
    deleteQueue: async () => await onBroker(async (channel) => await channel.deleteQueue(queue)),
    endSessions: async () => void (await run(db, endSessions)),
  };
}

async function showProgress({ show }: RunOptions, db: Database, signal: AbortSignal): Promise<void> {
  while (show !== undefined && !signal.aborted) {
    try {
      const [row] = await run(db, readProgress);
      if (row !== undefined) show(`${row.accepted} tasks accepted, ${row.ended} ended, ${row.running} running`);
    } catch {
      show('the database does not answer'); // as it is meant to, now and then
    }
    await systemClock.sleep(SHOW_EVERY_MS, signal);
  }
}
