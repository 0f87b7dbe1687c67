import { expect, test } from '@jest/globals';
import { capabilitiesOf } from '../../../../shared/amqp/capabilities.ts';

test.each([
  ['3.10.8', 'classic', 'channel-closed'],
  ['3.13.7', 'classic', 'channel-closed'],
  ['4.0.9', 'classic', 'channel-closed'],
  ['4.2.1', 'classic', 'channel-closed'],
  ['4.3.0', 'quorum', 'consumer-cancelled'],
  ['4.3.6-rc.1', 'quorum', 'consumer-cancelled'],
  ['4.10.0', 'quorum', 'consumer-cancelled'],
  ['5.0.0', 'quorum', 'consumer-cancelled'],
  ['what', 'classic', 'channel-closed'],
])('version %s: new queues are %s, after the ack timeout the %s', (version, queueType, onAckTimeout) => {
  expect(capabilitiesOf(version)).toMatchObject({ version, queueType, onAckTimeout });
});
