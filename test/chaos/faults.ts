/** The faults: a table of what can be done to a fleet and its servers, each with who is hit and how long it lasts. */
import { call } from '../../scripts/call.ts';
import { toError } from '../../shared/errors/to-error.ts';
import { systemClock } from '../../shared/time/clock.ts';
import type { FaultyProxy } from '../support/faulty-proxy.ts';
import { LEASE_MS, QUEUE } from './chaos-fleet.ts';
import type { ChaosFleet } from './chaos-fleet.ts';
import type { ChaosServers } from './servers.ts';
import type { Supervised } from './supervised.ts';

/** What faults act on. */
export interface FaultSite {
  readonly fleet: ChaosFleet;
  readonly servers: ChaosServers;
  /** Empties the work queue, on the broker and behind Warren's back. */
  readonly purgeQueue: () => Promise<void>;
  readonly deleteQueue: () => Promise<void>;
  /** Ends every session of the fleet in Postgres. */
  readonly endSessions: () => Promise<void>;
}

/** What the seed decided for one fault. */
export interface Aim {
  /** 0 to 1: which of those that can be hit. */
  readonly choice: number;
  readonly holdMs: number;
}

/** One kind of fault. */
export interface Fault {
  readonly name: string;
  /** Faults of one lane never overlap; those of different lanes do. */
  readonly lane: 'services' | 'links' | 'servers' | 'operators';
  /** What it cannot do without. */
  readonly needs?: 'broker' | 'ctl' | 'database';
  /** Least and most milliseconds that it lasts. */
  readonly holdMs: readonly [number, number];
  /** Who is hit, for people. */
  readonly target: (site: FaultSite, aim: Aim) => string;
  /** Begins it, lets it last, mends it. */
  readonly strike: (site: FaultSite, aim: Aim) => Promise<void>;
}

const SERVICES = ['worker', 'producer', 'dead-letter-handler'] as const;

const oneOf = (places: readonly Supervised[], choice: number): Supervised => {
  const place = places[Math.floor(choice * places.length)];
  if (place === undefined) throw new Error('nobody to hit');
  return place;
};

const hold = async ({ holdMs }: Aim): Promise<void> => await systemClock.sleep(holdMs);

function toService(
  service: (typeof SERVICES)[number],
  what: string,
  holdMs: Fault['holdMs'],
  strike: (place: Supervised, aim: Aim) => Promise<void>,
): Fault {
  const placeOf = ({ fleet }: FaultSite, { choice }: Aim): Supervised => oneOf(fleet.of(service), choice);
  return {
    name: `${service} ${what}`,
    lane: 'services',
    holdMs,
    target: (site, aim) => placeOf(site, aim).name,
    strike: async (site, aim) => await strike(placeOf(site, aim), aim),
  };
}

async function freeze({ process }: Supervised, aim: Aim): Promise<void> {
  process.freeze();
  await hold(aim);
  process.thaw();
}

const SERVICE_FAULTS: readonly Fault[] = SERVICES.flatMap((service) => [
  toService(service, 'killed', [0, 0], async (place) => await place.kill()),
  toService(service, 'terminated', [0, 0], async (place) => await place.terminate()),
  toService(service, 'paused', [200, LEASE_MS * 0.6], freeze),
  toService(service, 'frozen past its lease', [LEASE_MS * 1.5, LEASE_MS * 2.5], freeze),
]);

/** The target of a fault that hits every process. */
export const ALL = 'all';

type Server = 'broker' | 'postgres';

/** On the links of one process, or of all. */
function toLinks(
  server: Server,
  what: string,
  holdMs: Fault['holdMs'],
  act: { readonly begin: (proxy: FaultyProxy) => void; readonly end?: (proxy: FaultyProxy) => void },
): Fault {
  const ALL_SHARE = 0.4;
  const hit = ({ fleet }: FaultSite, { choice }: Aim): readonly Supervised[] =>
    choice < ALL_SHARE ? fleet.places : [oneOf(fleet.places, (choice - ALL_SHARE) / (1 - ALL_SHARE))];
  return {
    name: `links to ${server} ${what}`,
    lane: 'links',
    holdMs,
    target: (site, aim) => (aim.choice < ALL_SHARE ? ALL : (hit(site, aim)[0]?.name ?? '')),
    strike: async (site, aim) => {
      const proxies = hit(site, aim).map((place) => place[server]);
      for (const proxy of proxies) act.begin(proxy);
      await hold(aim);
      for (const proxy of proxies) act.end?.(proxy);
    },
  };
}

const SLOW_BYTES_PER_SECOND = 20_000;

const LINK_FAULTS: readonly Fault[] = (['broker', 'postgres'] as const).flatMap((server) => [
  toLinks(server, 'reset', [0, 0], { begin: (proxy) => proxy.cut() }),
  toLinks(server, 'cut', [500, 5_000], {
    begin: (proxy) => {
      proxy.refuse();
      proxy.cut();
    },
    end: (proxy) => proxy.accept(),
  }),
  toLinks(server, 'stalled', [500, 6_000], {
    begin: (proxy) => proxy.pause(),
    end: (proxy) => proxy.resume(),
  }),
  toLinks(server, 'throttled', [1_000, 5_000], {
    begin: (proxy) => proxy.throttle(SLOW_BYTES_PER_SECOND),
    end: (proxy) => proxy.resume(),
  }),
  toLinks(server, 'deaf to answers', [500, 3_000], {
    begin: (proxy) => proxy.drop('to-client'),
    // What was thrown away is missing in the middle of a stream: such a link does not come back.
    end: (proxy) => {
      proxy.cut();
      proxy.resume();
    },
  }),
]);

function toServer(
  name: string,
  needs: NonNullable<Fault['needs']>,
  holdMs: Fault['holdMs'],
  strike: Fault['strike'],
): Fault {
  return { name, lane: 'servers', needs, holdMs, target: () => ALL, strike };
}

const ctl = async ({ servers }: FaultSite, ...args: readonly string[]): Promise<void> => {
  await servers.broker?.ctl?.(...args);
};

const SERVER_FAULTS: readonly Fault[] = [
  toServer('broker restarted', 'broker', [0, 1_000], async ({ servers: { broker } }, aim) => {
    await broker?.stop();
    await hold(aim);
    await broker?.start();
  }),
  toServer('broker killed', 'broker', [0, 1_000], async ({ servers: { broker } }, aim) => {
    await broker?.kill();
    await hold(aim);
    await broker?.start();
  }),
  toServer('broker paused', 'broker', [1_000, 7_000], async ({ servers: { broker } }, aim) => {
    const pid = broker?.pid;
    if (pid === undefined) throw new Error('the broker does not run');
    process.kill(pid, 'SIGSTOP');
    await hold(aim);
    process.kill(pid, 'SIGCONT');
  }),
  toServer('database restarted', 'database', [0, 2_000], async ({ servers: { database } }, aim) => {
    await database?.stop();
    await hold(aim);
    await database?.start();
  }),
  toServer('database killed', 'database', [0, 2_000], async ({ servers: { database } }, aim) => {
    await database?.kill();
    await hold(aim);
    await database?.start();
  }),
  {
    name: 'database sessions ended',
    lane: 'servers',
    holdMs: [0, 0],
    target: () => ALL,
    strike: async ({ endSessions }) => await endSessions(),
  },
  toServer('connections closed by the broker', 'ctl', [0, 0], async (site) => {
    await ctl(site, 'close_all_connections', 'chaos');
  }),
  toServer('memory alarm', 'ctl', [1_000, 5_000], async (site, aim) => {
    await ctl(site, 'set_vm_memory_high_watermark', '0');
    await hold(aim);
    await ctl(site, 'set_vm_memory_high_watermark', '0.4');
  }),
];

/** Faults that only a reconciler mends: invitations vanish that nobody else knows of. */
const QUEUE_FAULTS: readonly Fault[] = [
  {
    name: 'queue purged',
    lane: 'servers',
    holdMs: [0, 0],
    target: () => ALL,
    strike: async ({ purgeQueue }) => await purgeQueue(),
  },
  {
    name: 'queue deleted',
    lane: 'servers',
    holdMs: [0, 0],
    target: () => ALL,
    strike: async ({ deleteQueue }) => await deleteQueue(),
  },
];

/** Asks a producer until one does it: what an operator began must be ended, whatever burns. */
async function askProducer({ fleet }: FaultSite, path: string, body: object, choice: number): Promise<void> {
  const untilMs = systemClock.monotonicMs() + ASK_WITHIN_MS;
  for (let last = 'no producer is up'; ; await systemClock.sleep(250)) {
    try {
      const url = fleet.url('producer', choice);
      if (url !== undefined) {
        const { status } = await call(url, 'POST', path, body);
        if (status === 200) return;
        last = `answered ${status}`;
      }
    } catch (thrown) {
      last = toError(thrown).message; // killed, cut off, too late
    }
    if (systemClock.monotonicMs() > untilMs) throw new Error(`${path}: ${last}`);
  }
}

const ASK_WITHIN_MS = 120_000;

function toQueue(
  name: string,
  holdMs: Fault['holdMs'],
  { begin, end, body = {} }: { readonly begin: string; readonly end: string; readonly body?: object },
): Fault {
  const path = (verb: string): string => `/v1/queues/${QUEUE}/${verb}`;
  return {
    name,
    lane: 'operators',
    holdMs,
    target: () => ALL,
    strike: async (site, aim) => {
      await askProducer(site, path(begin), { reason: 'chaos', ...body }, aim.choice);
      await hold(aim);
      await askProducer(site, path(end), { reason: 'chaos' }, 1 - aim.choice);
    },
  };
}

/** What operators do while all burns: tasks are held back, wait for turns, and are let go again. */
const OPERATOR_FAULTS: readonly Fault[] = [
  toQueue('queue paused by an operator', [500, 4_000], { begin: 'pause', end: 'resume' }),
  toQueue('queue drained by an operator', [500, 3_000], { begin: 'drain', end: 'resume' }),
  toQueue('queue made fair for a while', [3_000, 10_000], {
    begin: 'fair',
    end: 'unfair',
    body: { key: 'input.tenant', weights: { b: 3 }, depth: 20 },
  }),
];

/** All faults. */
export const FAULTS: readonly Fault[] = [
  ...SERVICE_FAULTS,
  ...LINK_FAULTS,
  ...SERVER_FAULTS,
  ...QUEUE_FAULTS,
  ...OPERATOR_FAULTS,
];

/** Those that can be done to these servers. */
export function possibleFaults(faults: readonly Fault[], { broker, database }: ChaosServers): readonly Fault[] {
  return faults.filter(({ needs }) => {
    if (needs === 'broker') return broker !== undefined;
    if (needs === 'ctl') return broker?.ctl !== undefined;
    if (needs === 'database') return database !== undefined;
    return true;
  });
}
