/** Asks what triggers ask: RabbitMQ's management API, and ours. */
import { durationMs } from '../../shared/time/duration.ts';
import type { Reading } from './keda.ts';
import type { Trigger } from './scaled-object.ts';

/** Where the simulated cluster's names lead. */
export interface Places {
  /** Of the management API, with user and password. */
  readonly managementUrl: string;
  readonly vhost: string;
  /** Of the producer. */
  readonly producerUrl: string;
  /** First part of the names on the broker, in place of `warren`. */
  readonly prefix: string;
  /** Simulated seconds in one of the machine. */
  readonly factor: number;
}

const WITHIN_MS = 3_000;

/** One figure; `undefined` where it could not be had. */
export async function readTrigger(trigger: Trigger, places: Places): Promise<Reading> {
  try {
    return trigger.type === 'rabbitmq' ? await readQueue(trigger, places) : await readFigure(trigger, places);
  } catch {
    return undefined; // KEDA counts a failure, and so does the run
  }
}

async function readQueue(
  { metadata: { queueName } }: Extract<Trigger, { type: 'rabbitmq' }>,
  { managementUrl, vhost, prefix }: Places,
): Promise<number> {
  const url = new URL(managementUrl);
  const authorization = `Basic ${Buffer.from(`${decodeURIComponent(url.username)}:${decodeURIComponent(url.password)}`).toString('base64')}`;
  const queue = queueName.replace(/^warren\./, `${prefix}.`);
  const path = `/api/queues/${encodeURIComponent(vhost)}/${encodeURIComponent(queue)}`;
  const answer = await ask(new URL(path, `${url.protocol}//${url.host}`), { authorization });
  return numberOf(answer['messages'] ?? 0);
}

async function readFigure(
  { metadata }: Extract<Trigger, { type: 'metrics-api' }>,
  { producerUrl, factor }: Places,
): Promise<number> {
  const url = new URL(metadata.url);
  const slo = durationMs(url.searchParams.get('slo') ?? '');
  if (slo !== undefined) url.searchParams.set('slo', `${Math.round(slo / factor)}ms`);
  const answer = await ask(new URL(url.pathname + url.search, producerUrl), {});
  return numberOf(answer[metadata.valueLocation]);
}

async function ask(url: URL, headers: Readonly<Record<string, string>>): Promise<Record<string, unknown>> {
  const answer = await fetch(url, { headers, signal: AbortSignal.timeout(WITHIN_MS) });
  if (!answer.ok) throw new Error(`${url.pathname} answered ${answer.status}`);
  return (await answer.json()) as Record<string, unknown>;
}

function numberOf(value: unknown): number {
  if (typeof value !== 'number') throw new Error('not a number');
  return value;
}
