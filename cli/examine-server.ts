/** What `warren doctor` asks the Postgres server itself: its clock, room for our pools, standbys, our rights, and long task types. */
import type { Config } from '../shared/config/schema.ts';
import type { Database } from '../shared/postgres/pool.ts';
import { run } from '../shared/postgres/statement.ts';
import type { Clock } from '../shared/time/clock.ts';
import type { Finding } from './doctor.ts';
import {
  findLongTypes,
  findMissingRights,
  readConnections,
  readReplication,
  readServerClock,
} from './examine-server.sql.ts';

/** Milliseconds by which clocks may differ before people who compare logs are misled. Warren itself goes by Postgres's alone. */
const CLOCK_DIFFERENCE_MS = 2_000;
/** A worker holds one connection beside its pool, for its lease. */
const LEASE_CONNECTIONS = 1;
const SHOWN_NAMES = 5;

/** Findings. `workers`: how many are alive. */
export async function examineServer(
  database: Database,
  config: Config,
  { clock, workers }: { readonly clock: Clock; readonly workers: number },
): Promise<readonly Finding[]> {
  return [
    await clockFinding(database, clock),
    await rightsFinding(database),
    await connectionsFinding(database, config.postgres.poolMax, workers),
    await replicationFinding(database),
    await longTypesFinding(database, config.amqp.ackTimeoutMs),
  ];
}

async function clockFinding(database: Database, clock: Clock): Promise<Finding> {
  const before = clock.now().getTime();
  const [row] = await run(database, readServerClock);
  const here = (before + clock.now().getTime()) / 2;
  const aheadMs = (row?.now.getTime() ?? here) - here;
  const seconds = (Math.abs(aheadMs) / 1_000).toFixed(1);
  if (Math.abs(aheadMs) <= CLOCK_DIFFERENCE_MS) {
    return { check: 'clock', status: 'ok', message: `${seconds} s from that of Postgres` };
  }
  return {
    check: 'clock',
    status: 'warn',
    message: `this machine's is ${seconds} s ${aheadMs > 0 ? 'behind' : 'ahead of'} that of Postgres`,
    hint: 'Tasks go by the clock of Postgres alone, logs by that of their machine: let NTP set both.',
  };
}

async function rightsFinding(database: Database): Promise<Finding> {
  const [row] = await run(database, findMissingRights);
  const missing = [...(row?.tables ?? []), ...(row?.functions ?? [])];
  if (missing.length === 0) return { check: 'rights', status: 'ok', message: `${row?.user ?? ''} has those it needs` };
  return {
    check: 'rights',
    status: 'fail',
    message: `${row?.user ?? ''} may not use ${listNames(missing)}`,
    hint: 'Grant select, insert, update and delete on all tables, and execute on all functions of the schema.',
  };
}

async function connectionsFinding(database: Database, poolMax: number, workers: number): Promise<Finding> {
  const [row] = await run(database, readConnections);
  if (row === undefined) return { check: 'connections', status: 'ok', message: 'unknown' };
  const processes = [row.producer, row.dead_letter_handler].map((open) => Math.ceil(open / poolMax));
  const [producers = 0, handlers = 0] = processes;
  const wanted = (workers + producers + handlers) * poolMax + workers * LEASE_CONNECTIONS;
  const message = `${row.open} of ${row.allowed} are open; the pools of ${workers} workers, ${producers} producers and ${handlers} dead-letter-handlers may want ${wanted}`;
  return wanted <= row.allowed
    ? { check: 'connections', status: 'ok', message }
    : {
        check: 'connections',
        status: 'warn',
        message,
        hint: 'Raise max_connections of Postgres, or lower postgres.poolMax: a worker of 10 slots gets on with 4.',
      };
}

async function replicationFinding(database: Database): Promise<Finding> {
  const [row] = await run(database, readReplication);
  const standbys = row?.standbys ?? 0;
  const isSynchronous = (row?.synchronous ?? '') !== '';
  if (standbys === 0 || isSynchronous) {
    const message = isSynchronous ? `commits wait for ${row?.synchronous ?? ''}` : 'no standby';
    return { check: 'replication', status: 'ok', message };
  }
  return {
    check: 'replication',
    status: 'warn',
    message: `${standbys} standbys, and no commit waits for one`,
    hint: 'A failover then loses the last commits. Set synchronous_standby_names, or run `warren ledger reconcile` after one.',
  };
}

async function longTypesFinding(database: Database, ackTimeoutMs: number): Promise<Finding> {
  const types = await run(database, findLongTypes, ackTimeoutMs);
  const minutes = Math.round(ackTimeoutMs / 60_000);
  const message =
    types.length === 0
      ? `none runs longer than the ${minutes} min that RabbitMQ waits for an ack`
      : `acked at the start, since they may run longer than the ${minutes} min that RabbitMQ waits for an ack: ${listNames(types.map(({ name }) => name))}`;
  return { check: 'long tasks', status: 'ok', message };
}

function listNames(names: readonly string[]): string {
  const more = names.length - SHOWN_NAMES;
  return more > 0 ? `${names.slice(0, SHOWN_NAMES).join(', ')} and ${more} more` : names.join(', ');
}
