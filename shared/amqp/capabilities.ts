/** What a broker can do, by its version, so that no other file compares versions. */

/** How a queue is kept by the broker. */
export type QueueType = 'quorum' | 'classic';

/** What one broker does differently from another. Each field has a row in the broker tests. */
export interface Capabilities {
  /** As the broker told it at the handshake, `4.3.6`. */
  readonly version: string;
  /** The type that `auto` chooses for a new queue: quorum from 4.3, where it has strict priorities of its own. */
  readonly queueType: QueueType;
  /** Priority of a message without one, on a queue of that type: 4 on quorum, 0 on classic. */
  readonly missingPriority: 0 | 4;
  /**
   * What happens to a delivery left unanswered for the ack timeout (30 minutes): from 4.3 the consumer is cancelled,
   * before it the whole channel is closed and all its deliveries return.
   */
  readonly onAckTimeout: 'consumer-cancelled' | 'channel-closed';
  /** True where deliveries that come back are handed out before all others, whatever their priority. */
  readonly returnedComeFirst: boolean;
  /** True where the broker removes a message by itself after 20 deliveries, unless `x-delivery-limit` is -1. */
  readonly hasDeliveryLimit: boolean;
}

/** Reads a broker's version. Something that is not a version counts as old: classic queues work everywhere. */
export function capabilitiesOf(version: string): Capabilities {
  const isNew = isAtLeast(version, 4, 3);
  return {
    version,
    queueType: isNew ? 'quorum' : 'classic',
    missingPriority: isNew ? 4 : 0,
    onAckTimeout: isNew ? 'consumer-cancelled' : 'channel-closed',
    returnedComeFirst: isNew,
    hasDeliveryLimit: isNew,
  };
}

function isAtLeast(version: string, wantedMajor: number, wantedMinor: number): boolean {
  const match = /^(\d+)\.(\d+)/.exec(version);
  if (match === null) return false;
  const major = Number(match[1]);
  return major > wantedMajor || (major === wantedMajor && Number(match[2]) >= wantedMinor);
}
