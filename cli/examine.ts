/** The checks of `warren doctor`, each a finding or several. None changes anything, none throws. */
import { queueCounts } from '../shared/amqp/throwaway-channel.ts';
import { findDrift } from '../shared/amqp/topology-drift.ts';
import { namesOf } from '../shared/amqp/topology.ts';
import type { AmqpConnection } from '../shared/amqp/connection.ts';
import type { Config } from '../shared/config/schema.ts';
import type { LoadedConfig } from '../shared/config/load.ts';
import { checkMigrations } from '../shared/postgres/migrate.ts';
import type { Database } from '../shared/postgres/pool.ts';
import { run } from '../shared/postgres/statement.ts';
import { MIGRATIONS_DIR } from '../shared/tasks/backbone.ts';
import { measureOutbox } from '../shared/tasks/outbox.sql.ts';
import { toCliError } from './cli-error.ts';
import type { CommandContext } from './context.ts';
import type { Finding } from './doctor.ts';
import { describeDrift } from './drift.ts';
import { loadCliConfig, queuesOf, wantedTopology, withBroker, withDatabase } from './installation.ts';
import { countOpenDeadLetters, listLeases, listTaskTypes, readInstallation, readServer } from './installation.sql.ts';
import { checkServices } from './examine-services.ts';

/** Oldest Postgres that the statements are tested with; its number as the server gives it. */
const OLDEST_POSTGRES = 140_000;
/** Invitations in the outbox from which on it is worth a warning: more than a round of the sweeper leaves. */
const MANY_INVITATIONS = 10_000;

/** What the database knows that later checks need; `undefined` where it could not be read. */
interface Seen {
  readonly queues: readonly string[];
  /** Queues that a live worker consumes. */
  readonly served: ReadonlySet<string>;
}

/** Makes every check, in the order in which one stands on the other. */
export async function* examine(context: CommandContext): AsyncGenerator<Finding> {
  const loaded = examineConfig(context);
  yield* loaded.findings;
  yield nodeFinding(process.versions.node);
  if (loaded.config === undefined) return;
  const { config } = loaded;
  const database = await examineDatabase(context, config);
  yield* database.findings;
  yield* await examineBroker(context, config, database.seen);
  yield* await checkServices(context);
}

function examineConfig(context: CommandContext): { readonly findings: readonly Finding[]; readonly config?: Config } {
  let loaded: LoadedConfig;
  try {
    loaded = loadCliConfig(context);
  } catch (thrown) {
    const { problem } = toCliError(thrown);
    const { faults } = problem;
    const lines = Array.isArray(faults) ? faults.map(String) : [problem.title];
    const hint = 'Correct the setting; the reference is docs/reference/config.md.';
    return { findings: lines.map((message) => ({ check: 'configuration', status: 'fail', message, hint })) };
  }
  const given = [...loaded.sources.values()].filter((source) => source !== 'default').length;
  const message = `valid; prefix ${loaded.config.prefix}; ${given} settings given, see \`warren config print --changed\``;
  return { findings: [{ check: 'configuration', status: 'ok', message }], config: loaded.config };
}

/** Node 20.19 is the floor: `engines` of package.json. */
export function nodeFinding(version: string): Finding {
  const [major = 0, minor = 0] = version.split('.').map(Number);
  const isNew = major > 20 || (major === 20 && minor >= 19);
  return isNew
    ? { check: 'node', status: 'ok', message: version }
    : { check: 'node', status: 'fail', message: `${version} is too old`, hint: 'Install Node 20.19 or newer.' };
}

async function examineDatabase(
  context: CommandContext,
  config: Config,
): Promise<{ readonly findings: readonly Finding[]; readonly seen?: Seen }> {
  const findings: Finding[] = [];
  try {
    const seen = await withDatabase(context, config, async (database) => {
      findings.push(await serverFinding(database));
      const migrations = await migrationsFinding(database);
      findings.push(migrations);
      if (migrations.status === 'fail') return undefined;
      findings.push(await prefixFinding(database, config.prefix));
      const { finding, served } = await workersFinding(database, config);
      findings.push(finding);
      findings.push(...(await contentFindings(database)));
      return { queues: await queuesOf(database, config), served };
    });
    return seen === undefined ? { findings } : { findings, seen };
  } catch (thrown) {
    return { findings: [...findings, failure('postgres', thrown)] };
  }
}

async function serverFinding(database: Database): Promise<Finding> {
  const [server] = await run(database, readServer);
  const version = server?.version ?? 'unknown';
  if ((server?.number ?? 0) < OLDEST_POSTGRES) {
    return { check: 'postgres', status: 'fail', message: `${version} is too old`, hint: 'Use Postgres 14 or newer.' };
  }
  if (server?.fsync === 'off' || server?.synchronous_commit === 'off') {
    const setting = server.fsync === 'off' ? 'fsync' : 'synchronous_commit';
    const hint = `Set ${setting} = on: else a crash of Postgres loses tasks that were accepted.`;
    return { check: 'postgres', status: 'warn', message: `${version}, ${setting} is off`, hint };
  }
  return { check: 'postgres', status: 'ok', message: version };
}

async function migrationsFinding(database: Database): Promise<Finding> {
  try {
    await checkMigrations(database, MIGRATIONS_DIR);
    return { check: 'migrations', status: 'ok', message: 'up to date' };
  } catch (thrown) {
    const { problem } = toCliError(thrown);
    const { missing, unknown } = problem;
    const names = [missing, unknown].find((list) => Array.isArray(list));
    const what = missing === undefined ? 'applied, but unknown to this program' : 'missing';
    return names === undefined
      ? failure('migrations', thrown)
      : {
          check: 'migrations',
          status: 'fail',
          message: `${what}: ${names.join(', ')}`,
          hint: problem.hint ?? problem.title,
        };
  }
}

async function prefixFinding(database: Database, prefix: string): Promise<Finding> {
  const owner = (await run(database, readInstallation))[0]?.prefix;
  if (owner === prefix) return { check: 'prefix', status: 'ok', message: `the database belongs to ${prefix}` };
  if (owner === undefined) {
    const hint = 'Run `warren migrate`, or start a service: the first one decides.';
    return { check: 'prefix', status: 'warn', message: 'the database belongs to no prefix yet', hint };
  }
  const hint = `Set WARREN_PREFIX=${owner}, or use another database or schema.`;
  return {
    check: 'prefix',
    status: 'fail',
    message: `the database belongs to ${owner}, the configuration says ${prefix}`,
    hint,
  };
}

async function workersFinding(
  database: Database,
  config: Config,
): Promise<{ readonly finding: Finding; readonly served: ReadonlySet<string> }> {
  const leases = await run(database, listLeases);
  const alive = leases.filter(({ silent_ms }) => Number(silent_ms) < config.lease.lapseMs);
  const served = new Set(alive.flatMap(({ queues }) => queueNames(queues)));
  const lapsed = leases.length - alive.length;
  if (alive.length === 0) {
    const hint = 'Start one: nothing runs tasks now. A fleet scaled to zero is none either.';
    return { finding: { check: 'workers', status: 'warn', message: 'none alive', hint }, served };
  }
  const message = `${alive.length} alive, on ${[...served].join(', ')}`;
  if (lapsed === 0) return { finding: { check: 'workers', status: 'ok', message }, served };
  const hint = 'The reaper of a producer takes lapsed ones away; is a producer running?';
  return { finding: { check: 'workers', status: 'warn', message: `${message}; ${lapsed} lapsed`, hint }, served };
}

async function contentFindings(database: Database): Promise<readonly Finding[]> {
  const types = await run(database, listTaskTypes);
  const waiting = Number((await run(database, measureOutbox))[0]?.invitations ?? 0);
  const dead = Number((await run(database, countOpenDeadLetters))[0]?.open ?? 0);
  return [
    types.length > 0
      ? { check: 'task types', status: 'ok', message: `${types.length} announced` }
      : {
          check: 'task types',
          status: 'warn',
          message: 'none announced, so every submission is refused',
          hint: 'Start a worker, or run `warren types apply --tasks <module>`.',
        },
    waiting < MANY_INVITATIONS
      ? { check: 'outbox', status: 'ok', message: `${waiting} invitations wait for their confirm` }
      : {
          check: 'outbox',
          status: 'warn',
          message: `${waiting} invitations wait for their confirm`,
          hint: 'RabbitMQ is away, blocked or slow; is a producer running?',
        },
    dead === 0
      ? { check: 'dead letters', status: 'ok', message: 'none open' }
      : {
          check: 'dead letters',
          status: 'warn',
          message: `${dead} open`,
          hint: 'See `warren dead list --state open`.',
        },
  ];
}

async function examineBroker(
  context: CommandContext,
  config: Config,
  seen: Seen | undefined,
): Promise<readonly Finding[]> {
  try {
    return await withBroker(context, config, async (connection) => {
      const findings = [brokerFinding(connection)];
      const queues = seen?.queues ?? config.producer.declaredQueues;
      const deps = { connection, clock: context.io.clock };
      const drift = await findDrift(deps, wantedTopology(connection, config, queues));
      const missing = drift.filter(({ problem }) => problem === 'missing');
      if (missing.length > 0) {
        findings.push({
          check: 'topology',
          status: 'fail',
          message: `missing: ${missing.map(({ kind, name }) => `${kind} ${name}`).join(', ')}`,
          hint: 'Run `warren topology apply`; services also declare it at their start.',
        });
      }
      const differing = drift.filter(({ problem }) => problem === 'differs');
      findings.push(
        ...differing.map((found): Finding => ({
          check: 'topology',
          status: 'warn',
          message: describeDrift(found),
          hint: 'It works on; to change it, drain it, delete it, and run `warren topology apply`.',
        })),
      );
      if (drift.length === 0) findings.push({ check: 'topology', status: 'ok', message: 'as it should be' });
      if (seen !== undefined) findings.push(...(await queueFindings(context, config, { connection, seen })));
      return findings;
    });
  } catch (thrown) {
    return [failure('rabbitmq', thrown)];
  }
}

function brokerFinding(connection: AmqpConnection): Finding {
  const { brokerVersion = 'unknown', blockedBecause, capabilities } = connection;
  if (blockedBecause !== undefined) {
    const hint = 'Free memory or disk space on the broker; until then submissions gather in the outbox.';
    return {
      check: 'rabbitmq',
      status: 'fail',
      message: `${brokerVersion} takes no publishes: ${blockedBecause}`,
      hint,
    };
  }
  return {
    check: 'rabbitmq',
    status: 'ok',
    message: `${brokerVersion}, ${capabilities?.queueType ?? 'unknown'} queues`,
  };
}

/** The broker's consumer count proves no live consumer; leases do. */
async function queueFindings(
  { io }: CommandContext,
  config: Config,
  { connection, seen }: { readonly connection: AmqpConnection; readonly seen: Seen },
): Promise<readonly Finding[]> {
  const names = namesOf(config.prefix);
  const findings: Finding[] = [];
  for (const queue of seen.queues.filter((name) => !seen.served.has(name))) {
    const ready = (await queueCounts({ connection, clock: io.clock }, names.queue(queue)))?.ready ?? 0;
    const hint = `Start a worker with --queues ${queue}:10, or leave it where nothing is submitted to it.`;
    findings.push({
      check: 'queues',
      status: 'warn',
      message: `no worker consumes ${queue}; ${ready} invitations wait there`,
      hint,
    });
  }
  return findings.length > 0
    ? findings
    : [{ check: 'queues', status: 'ok', message: `each of ${seen.queues.length} has a worker` }];
}

/** Leases hold queues as a list of `{name, concurrency}` or as an object by name. */
function queueNames(json: string): readonly string[] {
  const value: unknown = JSON.parse(json);
  if (Array.isArray(value)) {
    return value.flatMap((item: unknown) => {
      if (typeof item === 'string') return [item];
      return typeof item === 'object' && item !== null && 'name' in item ? [String(item.name)] : [];
    });
  }
  return typeof value === 'object' && value !== null ? Object.keys(value) : [];
}

function failure(check: string, thrown: unknown): Finding {
  const { problem } = toCliError(thrown);
  const { reason, server } = problem;
  const where = typeof server === 'string' ? `${server}: ` : '';
  const message = `${where}${typeof reason === 'string' ? reason : problem.title}`;
  return {
    check,
    status: 'fail',
    message,
    ...(problem.hint === undefined ? { hint: problem.title } : { hint: problem.hint }),
  };
}
