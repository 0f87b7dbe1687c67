/** The settings of a worker. */
import { filePath, flag, integer, list, queueSlots, text } from './format.ts';

const DAY_MS = 86_400_000;

/** The group `worker`. */
export const WORKER_SETTINGS = {
  queues: {
    ...queueSlots('Queues to consume, each with the attempts that run at once.', [
      { name: 'default', concurrency: 10 },
    ]),
    env: 'WARREN_QUEUES',
  },
  tasks: {
    ...list('Modules of task types to load: paths or package names.', /^[^\0]{1,1024}$/, 'a path or package name'),
    env: 'WARREN_TASKS',
  },
  prefetch: integer(
    'Deliveries that RabbitMQ leaves with the worker per queue; 0: twice the concurrency.',
    0,
    0,
    65_535,
  ),
  localWaitMs: integer(
    'Milliseconds that a delivery waits in a worker for a slot before it is given back, for others to start it.',
    20_000,
    100,
    600_000,
  ),
  maxAbandoned: integer('Handlers that ignore their abort before the worker drains and restarts.', 10, 1, 10_000),
  drainMs: integer('Milliseconds that running attempts get at shutdown before they are aborted.', 25_000, 0, DAY_MS),
  maxTasks: integer(
    'Attempts that a worker starts at most before it ends with exit code 0, once they have ended; 0: any number. 1 is for tasks of hours.',
    0,
    0,
    1_000_000,
  ),
  idleExitMs: integer(
    'Milliseconds without anything to do after which it ends with exit code 0; 0: never.',
    0,
    0,
    DAY_MS,
  ),
  podDeletionCost: flag(
    'In Kubernetes: annotates its own pod with how much it has to lose, so that idle ones go first; needs the verb patch on pods.',
    false,
  ),
  threads: integer('Threads for task types with isolation "thread"; 0: such types are refused.', 1, 0, 64),
  threadHeapMegabytes: integer(
    'Megabytes of heap of each such thread; beyond it the thread ends and its attempt fails.',
    512,
    16,
    65_536,
  ),
  resultMaxBytes: integer(
    'Bytes that the result of an attempt may have in its row; a larger one goes to the store of files, where there is one.',
    65_536,
    0,
    16_777_216,
  ),
  maxLoopBlockMs: integer(
    'Milliseconds that the event loop may be blocked before the lease is no longer renewed.',
    10_000,
    1_000,
    3_600_000,
  ),
  tempDir: filePath('Folder for temporary files of attempts; empty: that of the system.'),
  codeVersion: text(
    'Version of the task code, kept with each attempt that did not succeed.',
    '',
    /^[\x20-\x7e]{0,100}$/,
    'up to 100 printable ASCII characters',
  ),
} as const;
