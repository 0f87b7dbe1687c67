/**
 * Case P1: whatever comes in, ids, keys, texts of errors, names of types and queues that nobody knows, paths that there are not, the
 * series of every service stay as many as they were, and nothing of it stands in a label.
 */
import { randomUUID } from 'node:crypto';
import { afterAll, beforeAll, expect, test } from '@jest/globals';
import { call } from '../../scripts/call.ts';
import { JSON_CONTENT_TYPE } from '../../shared/amqp/message.ts';
import { openBroker } from '../support/broker.ts';
import type { TestBroker } from '../support/broker.ts';
import { eventually } from '../support/eventually.ts';
import { openFleet } from '../support/fleet.ts';
import type { Fleet } from '../support/fleet.ts';
import { IS_LONG_RUN } from '../support/long-run.ts';

/** Stands in everything that is made up here. */
const MARK = 'zqx';
const TASKS = IS_LONG_RUN ? 100_000 : 2_000;
const BATCH = 500;
/** At everything that is no task, one after the other. */
const MOST_ATTEMPTS = 500;
const SERVICES = ['producer', 'worker', 'dead-letter-handler'] as const;

let fleet: Fleet;
let broker: TestBroker;
let made = 0;
/** Messages that are no tasks: each becomes a letter. */
let refused = 0;
beforeAll(async () => {
  fleet = await openFleet({ deadLetterHandlers: 1, tasks: ['unique-errors'], queues: 'default:50' });
  broker = await openBroker();
});
afterAll(async () => {
  await broker[Symbol.asyncDispose]();
  await fleet[Symbol.asyncDispose]();
});

const word = (): string => {
  made += 1;
  return `${MARK}-${made}-${randomUUID()}`;
};

/** So many tasks, each unlike all others, of which every tenth dies; and a twentieth as many attempts at everything else. */
async function flood(tasks: number): Promise<void> {
  for (let from = 0; from < tasks; from += BATCH) {
    await fleet.submit(
      ...Array.from({ length: Math.min(BATCH, tasks - from) }, (_, index) => ({
        type: 'fault.unique',
        input: { word: word(), fails: index % 10 === 0 },
        businessKey: word(),
        tags: [word()],
      })),
    );
  }
  const { url } = fleet.producer();
  const { names } = fleet;
  const attempts = Math.min(Math.ceil(tasks / 20), MOST_ATTEMPTS);
  for (let n = 0; n < attempts; n += 1) {
    const hostile = `${word()}"}\nwarren_fake{a="b"} 1`;
    await call(url, 'POST', '/v1/tasks', { type: hostile, input: {} });
    await call(url, 'POST', '/v1/tasks', { type: 'fault.unique', queue: word(), input: {} });
    await call(url, 'GET', `/v1/tasks/${randomUUID()}`);
    await call(url, 'GET', `/${word()}`);
    await call(url, 'POST', '/v1/queues/' + word() + '/pause', { reason: word() });
    const properties = {
      messageId: word(),
      appId: word(),
      contentType: JSON_CONTENT_TYPE,
      headers: { [word()]: word() },
    };
    broker.raw.publish(names.tasks, word(), Buffer.from(`{"${word()}":1}`), properties);
    broker.raw.publish(names.tasks, hostile.slice(0, 200), Buffer.from('{}'), properties);
    broker.raw.publish(names.dlx, word(), Buffer.from(word()), {
      headers: { 'x-death': [{ reason: word(), queue: word(), exchange: word(), count: 1 }] },
    });
  }
  await broker.raw.waitForConfirms();
  refused += 3 * attempts;
}

/** What a service shows, as series without their values, and the size of it all. */
async function seriesOf(service: (typeof SERVICES)[number]): Promise<{ series: Set<string>; bytes: number }> {
  const [process] = fleet.all(service);
  const text = await (await fetch(`${process?.url}/metrics`)).text();
  const lines = text.split('\n').filter((line) => line !== '' && !line.startsWith('#'));
  return { series: new Set(lines.map((line) => line.slice(0, line.lastIndexOf(' ')))), bytes: text.length };
}

const seriesOfAll = async (): Promise<readonly { series: Set<string>; bytes: number }[]> =>
  await Promise.all(SERVICES.map(async (service) => await seriesOf(service)));

/** Dead letters of what was refused and what was foreign come a moment after their message. */
async function settled(): Promise<void> {
  await fleet.ended(IS_LONG_RUN ? 900_000 : 60_000);
  await eventually(async () => {
    const letters = await fleet.deadLetters();
    expect(letters.filter(({ kind }) => kind !== 'task')).toHaveLength(refused);
  });
}

test('case P1: series and size of /metrics stay flat over tasks, errors, names and keys that are all different', async () => {
  const count = async (tasks: number): Promise<void> => {
    await flood(tasks);
    await settled();
  };
  await count(200);
  // What is read now and then has been read once, and the scrape itself is counted.
  await eventually(async () => {
    const { series } = await seriesOf('producer');
    for (const name of [
      'queue_ready_messages',
      'queue_oldest_seconds',
      'workers_alive',
      'flows_open',
      'task_partitions',
    ]) {
      expect([...series].join('\n')).toContain(`warren_${name}`);
    }
  });
  await seriesOfAll();
  const before = await seriesOfAll();
  await count(TASKS);
  const after = await seriesOfAll();
  for (const [index, service] of SERVICES.entries()) {
    const { series, bytes } = after[index] as (typeof after)[number];
    const known = before[index] as (typeof before)[number];
    expect(series.size).toBeGreaterThan(100);
    expect({ service, marked: [...series].filter((each) => each.includes(MARK) || each.includes('fake')) }).toEqual({
      service,
      marked: [],
    });
    // Answers that had not been given before, out of sets that are closed: a claim that was lost, a status.
    // Which kinds of collection of garbage there have been is Node's business.
    const fresh = [...series].filter((each) => !known.series.has(each) && !each.startsWith('nodejs_gc_'));
    expect({ service, fresh: fresh.length > 10 ? fresh : [] }).toEqual({ service, fresh: [] });
    expect(bytes / known.bytes).toBeLessThan(1.1);
  }
});

test('and no secret of a task, of a connection or of a token stands in them', async () => {
  for (const service of SERVICES) {
    const { series } = await seriesOf(service);
    const text = [...series].join('\n');
    expect(text).not.toMatch(/:\/\/|guest|password|bearer/i);
  }
});
