/**
 * What bare amqplib does on the same kind of queue: consume and ack, nothing else. The ceiling for any worker on it.
 * A process of its own, as the worker is: `ceiling.js AMQP_URL PREFIX COUNT` prints messages per second.
 */
import { connect } from 'amqplib';
import { topologyOf } from '../../shared/amqp/topology.ts';
import { capabilitiesOf } from '../../shared/amqp/capabilities.ts';
import { systemClock } from '../../shared/time/clock.ts';

const PREFETCH = 500;

const [, , url = '', prefix = '', counted = '0'] = process.argv;
const count = Number(counted);
const connection = await connect(url);
const version = String((connection.connection.serverProperties as Record<string, unknown>)['version']);
const { queueType } = capabilitiesOf(version);
const spec = topologyOf({ prefix, queues: ['ceiling'], queueType }).queues.find(({ name }) =>
  name.endsWith('.q.ceiling'),
);
if (spec === undefined) throw new Error('the topology has no such queue');

const publishing = await connection.createConfirmChannel();
await publishing.assertQueue(spec.name, { durable: true, arguments: spec.arguments });
const body = Buffer.from('{"taskId":"0193f0a0-0000-7000-8000-000000000000","type":"bench.noop","generation":1}');
for (let sent = 0; sent < count;) {
  for (const end = Math.min(count, sent + 2_000); sent < end; sent += 1) {
    publishing.sendToQueue(spec.name, body, { persistent: true, priority: 4, messageId: String(sent) });
  }
  await publishing.waitForConfirms();
}

const consuming = await connection.createChannel();
await consuming.prefetch(PREFETCH);
let taken = 0;
let startedMs = 0;
await new Promise<void>((resolve, reject) => {
  consuming
    .consume(spec.name, (message) => {
      if (message === null) return;
      if (taken === 0) startedMs = systemClock.monotonicMs();
      taken += 1;
      consuming.ack(message);
      if (taken === count) resolve();
    })
    .catch(reject);
});
const seconds = (systemClock.monotonicMs() - startedMs) / 1_000;
await publishing.deleteQueue(spec.name);
await connection.close();
console.log(JSON.stringify({ version, queueType, perSecond: count / seconds }));
