/** What `warren doctor` asks the database: server, migrations, prefix, workers, contents. */
import type { Config } from '../shared/config/schema.ts';
import { checkMigrations } from '../shared/postgres/migrate.ts';
import type { Database } from '../shared/postgres/pool.ts';
import { run } from '../shared/postgres/statement.ts';
import { MIGRATIONS_DIR } from '../shared/tasks/backbone.ts';
import { measureOutbox } from '../shared/tasks/outbox.sql.ts';
import { toCliError } from './cli-error.ts';
import type { CommandContext } from './context.ts';
import { failedFinding } from './doctor.ts';
import type { Finding } from './doctor.ts';
import { examineServer } from './examine-server.ts';
import { queuesOf, withDatabase } from './installation.ts';
import { countOpenDeadLetters, listLeases, listTaskTypes, readInstallation, readServer } from './installation.sql.ts';

/** Oldest Postgres that the statements are written for; its number as the server gives it. */
const OLDEST_POSTGRES = 140_000;
/** Invitations in the outbox from which on it is worth a warning: more than a round of the sweeper leaves. */
const MANY_INVITATIONS = 10_000;

/** What the database knows that the checks of the broker need. */
export interface Seen {
  readonly queues: readonly string[];
  /** Queues that a live worker consumes. */
  readonly served: ReadonlySet<string>;
}

/** Findings, and what was seen; `seen` is absent where the database could not be read. */
export async function examineDatabase(
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
      const { finding, served, workers } = await workersFinding(database, config);
      findings.push(...(await examineServer(database, config, { clock: context.io.clock, workers })), finding);
      findings.push(...(await contentFindings(database)));
      return { queues: await queuesOf(database, config), served };
    });
    return seen === undefined ? { findings } : { findings, seen };
  } catch (thrown) {
    return { findings: [...findings, failedFinding('postgres', thrown)] };
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
      ? failedFinding('migrations', thrown)
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
): Promise<{ readonly finding: Finding; readonly served: ReadonlySet<string>; readonly workers: number }> {
  const leases = await run(database, listLeases);
  const alive = leases.filter(({ silent_ms }) => Number(silent_ms) < config.lease.lapseMs);
  const served = new Set(alive.flatMap(({ queues }) => queueNames(queues)));
  const workers = alive.length;
  const lapsed = leases.length - workers;
  if (alive.length === 0) {
    const hint = 'Start one: nothing runs tasks now. A fleet scaled to zero is none either.';
    return { finding: { check: 'workers', status: 'warn', message: 'none alive', hint }, served, workers };
  }
  const message = `${alive.length} alive, on ${[...served].join(', ')}`;
  if (lapsed === 0) return { finding: { check: 'workers', status: 'ok', message }, served, workers };
  const hint = 'The reaper of a producer takes lapsed ones away; is a producer running?';
  return {
    finding: { check: 'workers', status: 'warn', message: `${message}; ${lapsed} lapsed`, hint },
    served,
    workers,
  };
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
