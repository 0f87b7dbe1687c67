/** How a worker is told, without waiting for its next renewal, that something it runs is to be cancelled. */

/**
 * The channel of Postgres that one worker listens on: each has its own, so that cancels wake those alone that they concern. It
 * says no more than "look": what is to be cancelled stands in `cancel_requests`, and is found there by the next renewal too.
 * `notifyWorkers` in `beside.sql.ts` makes the same name.
 */
export const cancelChannelOf = (workerId: string): string => `warren_cancel_${workerId.replaceAll('-', '')}`;
