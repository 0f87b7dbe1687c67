/** The worker: wires its parts, starts and stops them in order. */
import { hostname, tmpdir } from 'node:os';
import { join } from 'node:path';
import { toError } from '../../shared/errors/to-error.ts';
import { WarrenError } from '../../shared/errors/warren-error.ts';
import { inOrder } from '../../shared/lifecycle/in-order.ts';
import type { Part } from '../../shared/lifecycle/part.ts';
import { EXIT } from '../../shared/lifecycle/process-main.ts';
import type { Service, ServiceContext } from '../../shared/lifecycle/process-main.ts';
import { InputStore } from '../../shared/tasks/input-store.ts';
import { fileStorePart, openFileStore } from '../../shared/files/open-store.ts';
import { HealthServer } from '../../shared/http/health.ts';
import { openTracing } from '../../shared/observability/tracing.ts';
import { createMetrics } from '../../shared/observability/metrics.ts';
import { Breakers } from '../../shared/resilience/breaker.ts';
import { announceQueues, announceTypes } from '../../shared/tasks/announce.ts';
import { createBackbone, whenPostgresAnswers } from '../../shared/tasks/backbone.ts';
import { TlsFiles } from '../../shared/tls/tls-files.ts';
import { describeTask } from '../../shared/tasks/define-task.ts';
import type { TaskId } from '../../shared/tasks/ids.ts';
import type { OutboxRow } from '../../shared/tasks/invitation.ts';
import { AttemptLogs } from './attempt-logs.ts';
import { AttemptTraces } from './attempt-traces.ts';
import { createBuiltInTypes } from './builtin/all.ts';
import { ClaimBook } from './claim-book.ts';
import { Claims } from './claims.ts';
import { isDependencyFailure } from './dependency-failure.ts';
import { createDrain } from './drain.ts';
import { FileSaver } from './file-saver.ts';
import { Intake } from './intake.ts';
import { Isolation } from './isolation.ts';
import { Leases } from './leases.ts';
import { Measures } from './measures.ts';
import { observeAttempts } from './observe.ts';
import { Places } from './places.ts';
import { createPodDeletionCost, IN_CLUSTER } from './pod-deletion-cost.ts';
import { DatabaseOnceStore } from './once-store.ts';
import { Progress } from './progress.ts';
import { QueueModes } from './queue-modes.ts';
import { loadRegistry } from './registry.ts';
import { RunHandler } from './run-handler.ts';
import { Settles } from './settles.ts';
import { DatabaseStepAdder } from './step-adder.ts';
import { DatabaseStepReader } from './step-reader.ts';
import { TempDirs } from './temp-dirs.ts';
import { DEFAULT_THREADS, ThreadPool } from './thread-pool.ts';
import { Unstarted } from './unstarted.ts';

const MOST_IN_A_BATCH = 500;
const ABORT_GRACE_MS = 1_000;

/** Makes a worker. Throws `task-module-invalid` where a module of task types cannot be loaded. */
export async function createWorker(context: ServiceContext): Promise<Service> {
  const { config, clock, log, random } = context;
  const { worker, lease, files } = config;
  const version = worker.codeVersion === '' ? 'unknown' : worker.codeVersion;
  const metrics = createMetrics({ service: 'worker', version, withProcess: true });
  const registry = await loadRegistry({
    modules: worker.tasks,
    baseDir: process.cwd(),
    builtIn: createBuiltInTypes(clock, config),
  });
  const tracing = openTracing(version); // once modules are loaded, which may have set OpenTelemetry up
  const threaded = registry.all().find(({ isolation }) => isolation === 'thread');
  if (threaded !== undefined && worker.threads === 0) {
    const reason = 'runs in a thread, and worker.threads is 0';
    throw new WarrenError('task-module-invalid', { taskType: threaded.name, reason });
  }
  const queues = worker.queues.map(({ name }) => name);
  const backbone = createBackbone({ ...context, metrics }, { service: 'worker', queues: () => queues });
  const { db, inviter, consuming, topology, names, onFailure } = backbone;
  const invite = async (row: OutboxRow): Promise<boolean> => await inviter.invite(row);

  const breakers = new Breakers({
    clock,
    random,
    isFailure: isDependencyFailure,
    onState: (breaker, state) => {
      metrics.breakerOpen.set(state === 'closed' ? 0 : 1, breaker);
      log.warn('breaker changed', { breaker, state });
    },
    onProbeFailed: (breaker, thrown) => log.warn('breaker probe failed', { breaker, err: toError(thrown) }),
    onLateCompletion: (breaker) => {
      metrics.breakerLateCompletions.add(1, breaker);
      log.warn('call ended after its timeout', { breaker });
    },
  });
  const book = new ClaimBook();
  const tempDirs = new TempDirs(
    { log },
    { root: worker.tempDir === '' ? join(tmpdir(), `warren-${config.prefix}`) : worker.tempDir },
  );
  const progress = new Progress({ db, clock, log, random, onFailure });
  const once = new DatabaseOnceStore({ db, clock, log, random });
  const steps = new DatabaseStepAdder({ db, clock, log, random, metrics }, config.limits);
  const stepReader = new DatabaseStepReader({ db, clock, log, random });
  const { schema } = config.postgres;
  const attemptLogs = new AttemptLogs({ db, clock, log, random, metrics, onFailure });
  const measures: Measures = new Measures({ db, clock, log, random, onFailure, started: () => intake.starts });
  const store = await openFileStore(files);
  const saver = new FileSaver({ db, store, log, metrics }, files);
  const inputs = new InputStore(
    { db, store, log, metrics },
    { rowBytes: config.limits.messageBytes, graceMs: files.graceMs },
  );
  const threads = new ThreadPool(
    { moduleOf: (name) => registry.moduleOf(name), once, steps, stepReader, schema },
    { ...DEFAULT_THREADS, maxThreads: worker.threads, maxHeapMegabytes: worker.threadHeapMegabytes },
  );
  const runner = new RunHandler(
    {
      clock,
      log,
      metrics,
      threads,
      tempDirs,
      breakers,
      once,
      steps,
      stepReader,
      schema,
      saveFile: (file) => saver.save(file),
      readInput: async (fileId, signal) => await inputs.read(fileId, signal),
      onProgress: (taskId, attempt, word) => progress.say(taskId, attempt, word),
      onLines: (attempt, lines) => attemptLogs.keep(attempt, lines),
      onTooManyAbandoned: (count) =>
        context.requestStop(EXIT.temporary, `${count} handlers ignore their abort; start this worker anew`),
    },
    {
      resultMaxBytes: worker.resultMaxBytes,
      storedResultMaxBytes: store === undefined ? 0 : files.resultMaxBytes,
      abortGraceMs: ABORT_GRACE_MS,
      maxAbandoned: worker.maxAbandoned,
    },
  );
  const isolation = new Isolation(() => clock.monotonicMs());
  const settles = new Settles(
    { db, clock, log, random, book, invite },
    { maxBatch: MOST_IN_A_BATCH, codeVersion: version },
  );
  const queueModes = new QueueModes({ db, clock, log, random, onFailure });
  const places = new Places({ db, invite, log });
  const unstarted = new Unstarted({ db, clock, invite, log }, { maxBatch: MOST_IN_A_BATCH });
  const leases: Leases = new Leases(
    {
      db,
      clock,
      log,
      metrics,
      inFlight: () => runner.running,
      loads: () => intake.lines.map(({ queue, taken, waiting }) => ({ queue, running: taken, waiting })),
      isDraining: () => intake.isDraining,
      onCancels: (taskIds) => {
        for (const taskId of taskIds) if (!isolation.abort(taskId, 'cancel')) runner.abort(taskId as TaskId, 'cancel');
      },
      onClaims: (workerId, claimIds) => {
        const stray = claimIds.filter((claimId) => !book.has(claimId));
        if (stray.length > 0) void unstarted.handBack(workerId, stray); // never rejects
      },
      onLapsed: () => {
        book.clear();
        isolation.abortAll('lease');
        runner.abortAll('lease');
      },
    },
    {
      renewMs: lease.renewMs,
      maxLoopBlockMs: worker.maxLoopBlockMs,
      codeVersion: version,
      taskTypes: registry.all().map(({ name }) => name),
      queues: Object.fromEntries(worker.queues.map(({ name, concurrency }) => [name, concurrency])),
    },
  );
  const claims = new Claims(
    {
      db,
      clock,
      log,
      random,
      book,
      workerId: () => leases.workerId,
      whenLeased: async (signal) => await leases.whenLeased(signal),
    },
    { maxBatch: MOST_IN_A_BATCH },
  );
  const intake: Intake = new Intake(
    {
      connection: consuming,
      clock,
      log,
      random,
      queueName: names.queue,
      onQueueMissing: async () => await topology.restore(),
      onServerCancel: (queue) => metrics.consumerCancels.add(1, queue),
      canClaim: () => db.isAvailable,
      isQueuePaused: (queue) => queueModes.isPaused(queue),
      onDone: (reason) => context.requestStop(EXIT.ok, reason),
      attempt: {
        findType: (name) => registry.find(name),
        deferUnknown: async (wanted) => await unstarted.defer(wanted),
        claim: (wanted) => claims.claim(wanted),
        isolation,
        markAlone: async (claim) => await claims.markAlone(claim),
        abandonedHandlers: () => runner.abandonedCount,
        run: (type, { taskId, attempt, claimId, input, inputFile, flowId, businessKey, trace }) =>
          runner.run({
            type,
            taskId: taskId as TaskId,
            attempt,
            claimId,
            input,
            inputFile,
            flowId,
            businessKey,
            trace,
          }),
        succeed: (claim, result) => settles.succeed(claim, result),
        settle: (claim, verdict) => settles.settle(claim, verdict),
        freePlace: (type, key) => places.free(type, key),
        whenDecided: async (claim) => await settles.whenDecided(claim),
        mostUnansweredMs: config.amqp.ackTimeoutMs / 2,
        inviteAgain: async (wanted) => await unstarted.inviteAgain(wanted),
        isDraining: () => intake.isDraining,
        random,
        log,
        observe: observeAttempts({ metrics, measures, log, nowMs: () => clock.monotonicMs() }),
        traces: tracing === undefined ? undefined : new AttemptTraces(tracing, () => clock.monotonicMs()),
      },
    },
    {
      queues: worker.queues,
      prefetch: worker.prefetch,
      localWaitMs: Math.min(worker.localWaitMs, config.amqp.ackTimeoutMs / 4),
      maxTasks: worker.maxTasks,
      idleExitMs: worker.idleExitMs,
    },
  );
  for (const { queue, concurrency } of intake.lines) {
    const line = (): Intake['lines'][number] | undefined => intake.lines.find((found) => found.queue === queue);
    metrics.slots.set(concurrency, queue);
    metrics.inFlight.readFrom(() => line()?.taken ?? 0, queue);
    metrics.waitingDeliveries.readFrom(() => line()?.waiting ?? 0, queue);
    metrics.consumerRegistered.readFrom(() => Number(line()?.isConsuming ?? false), queue);
    metrics.consumerCancels.add(0, queue);
    metrics.attemptsStarted.readFrom(() => startedOf(intake, queue), queue);
  }
  metrics.leaseAgeSeconds.readFrom(() => leases.ageMs / 1_000);
  for (const answer of ['renewed', 'lost', 'failed'] as const) metrics.leaseRenewals.add(0, answer);
  metrics.abandonedHandlers.readFrom(() => runner.abandonedCount);

  const slots = worker.queues.reduce((sum, { concurrency }) => sum + concurrency, 0);
  const podDeletionCost = createPodDeletionCost(
    { clock, log, random, onFailure, load: () => ({ running: runner.running, slots }) },
    { ...IN_CLUSTER, pod: hostname() },
  );
  const health = new HealthServer(
    {
      clock,
      log,
      metrics,
      checks: [
        { name: 'postgres', check: () => (db.isAvailable ? undefined : 'does not answer') },
        { name: 'rabbitmq', check: () => (consuming.isConnected ? undefined : 'not connected') },
        { name: 'lease', check: () => (leases.isLeased ? undefined : 'none') },
        ...queues.map((queue) => ({
          name: `consumer ${queue}`,
          check: () =>
            intake.lines.find((line) => line.queue === queue)?.isConsuming === true
              ? undefined
              : 'not registered with the broker',
        })),
        { name: 'draining', check: () => (intake.isDraining ? 'the worker stops' : undefined) },
      ],
    },
    { host: config.http.host, port: config.http.workerPort, tls: new TlsFiles(log, 'http', config.http) },
  );
  const announcement: Part = {
    start: async () =>
      await whenPostgresAnswers(context, async () => {
        await announceQueues(db, queues);
        await announceTypes(
          db,
          registry.all().map((type) => describeTask(type)),
          version,
        );
      }),
    stop: async () => await Promise.resolve(),
  };

  // Work flows down this list, so it is started from the bottom and stopped from the top: no new deliveries, then what
  // runs ends, then its settles are written and its deliveries answered, then the lease is given up, and the pool closes last.
  const part = inOrder(
    [
      { name: 'health', part: health },
      { name: 'drain', part: createDrain({ intake, runner, claims, settles, clock, random, log, onFailure }) },
      { name: 'intake', part: intake },
      { name: 'queue modes', part: queueModes },
      { name: 'progress', part: progress },
      { name: 'attempt logs', part: attemptLogs },
      { name: 'measures', part: measures },
      ...(worker.podDeletionCost ? [{ name: 'pod deletion cost', part: podDeletionCost }] : []),
      {
        name: 'breakers',
        part: { start: async () => await Promise.resolve(), stop: async () => await Promise.resolve(breakers.stop()) },
      },
      { name: 'leases', part: leases },
      { name: 'announcement', part: announcement },
      { name: 'temporary directories', part: tempDirs },
      fileStorePart(store),
      ...backbone.parts,
    ],
    { clock, log },
  );
  return {
    part,
    describe: () => ({ address: health.url, queues: worker.queues, taskTypes: registry.all().map(({ name }) => name) }),
  };
}

function startedOf({ starts }: Intake, queue: string): number {
  return starts.reduce((sum, each) => sum + (each.queue === queue ? each.started : 0), 0);
}
