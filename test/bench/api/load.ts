/**
 * The load generator, a process of its own: reads a plan from its input, prints what came of it. An open load sends at its rate
 * whether or not answers come, and counts latency from the instant at which a request was due (no coordinated omission); a closed
 * one keeps each connection busy.
 */
import { text } from 'node:stream/consumers';
import { toError } from '../../../shared/errors/to-error.ts';
import { systemClock } from '../../../shared/time/clock.ts';
import { percentile } from '../rounds.ts';
import { KeptConnection, renderRequest } from './keep-alive.ts';
import type { LoadPlan, LoadResult } from './load-plan.ts';

interface Tally {
  readonly statuses: Map<number, number>;
  readonly latenciesMs: number[];
}

async function main(): Promise<void> {
  const plan = JSON.parse(await text(process.stdin)) as LoadPlan;
  const url = new URL(plan.url);
  const requests = plan.requests.map((request) => renderRequest(url.host, request));
  const connections: KeptConnection[] = [];
  while (connections.length < plan.connections) connections.push(await KeptConnection.open(url));
  const tally: Tally = { statuses: new Map(), latenciesMs: [] };
  const before = process.cpuUsage();
  const load = plan.perSecond === undefined ? closedLoad : openLoad;
  const seconds = await load(plan, { connections, requests, tally });
  for (const connection of connections) connection.close();
  const { user, system } = process.cpuUsage(before);
  const { latenciesMs, statuses } = tally;
  const result: LoadResult = {
    answered: latenciesMs.length,
    perSecond: latenciesMs.length / seconds,
    statuses: Object.fromEntries(statuses),
    p50Ms: percentile(latenciesMs, 0.5),
    p95Ms: percentile(latenciesMs, 0.95),
    p99Ms: percentile(latenciesMs, 0.99),
    mostMs: latenciesMs.reduce((most, each) => Math.max(most, each), 0),
    cores: (user + system) / 1e6 / (seconds + plan.warmUpSeconds),
  };
  console.log(JSON.stringify(result));
}

interface Means {
  readonly connections: readonly KeptConnection[];
  readonly requests: readonly Buffer[];
  readonly tally: Tally;
}

/** Gives the seconds that were counted. */
async function closedLoad(plan: LoadPlan, { connections, requests, tally }: Means): Promise<number> {
  const { seconds, warmUpSeconds, answers = Number.POSITIVE_INFINITY } = plan;
  const countFromMs = systemClock.monotonicMs() + warmUpSeconds * 1_000;
  const untilMs = countFromMs + seconds * 1_000;
  let next = 0;
  let lastMs = countFromMs;
  await Promise.all(
    connections.map(async (connection) => {
      for (;;) {
        const startMs = systemClock.monotonicMs();
        if (startMs >= untilMs || next >= answers) return;
        const status = await connection.send(requests[next++ % requests.length] as Buffer);
        const endMs = systemClock.monotonicMs();
        count(tally.statuses, status);
        if (startMs < countFromMs) continue;
        tally.latenciesMs.push(endMs - startMs);
        lastMs = Math.max(lastMs, endMs);
      }
    }),
  );
  return (lastMs - countFromMs) / 1_000;
}

async function openLoad(plan: LoadPlan, { connections, requests, tally }: Means): Promise<number> {
  const { perSecond = 1, seconds, warmUpSeconds } = plan;
  const free = [...connections];
  const due: number[] = [];
  const total = Math.round((seconds + warmUpSeconds) * perSecond);
  const beganMs = systemClock.monotonicMs();
  const countFromMs = beganMs + warmUpSeconds * 1_000;
  let sent = 0;
  let answered = 0;
  let failure: Error | undefined;
  const send = (connection: KeptConnection): void => {
    const dueMs = due.shift() as number;
    connection.send(requests[sent++ % requests.length] as Buffer).then(
      (status) => {
        answered += 1;
        count(tally.statuses, status);
        if (dueMs >= countFromMs) tally.latenciesMs.push(systemClock.monotonicMs() - dueMs);
        if (due.length > 0) send(connection);
        else free.push(connection);
      },
      (thrown: unknown) => {
        failure ??= toError(thrown);
      },
    );
  };
  for (let planned = 0; planned < total || answered < total;) {
    if (failure !== undefined) throw failure;
    for (; planned < total; planned += 1) {
      const dueMs = beganMs + (planned * 1_000) / perSecond;
      if (dueMs > systemClock.monotonicMs()) break;
      due.push(dueMs);
      const connection = free.shift(); // the one that has been idle longest: the server closes what is idle for too long
      if (connection !== undefined) send(connection);
    }
    await systemClock.sleep(1);
  }
  return seconds;
}

function count(statuses: Map<number, number>, status: number): void {
  statuses.set(status, (statuses.get(status) ?? 0) + 1);
}

await main();
