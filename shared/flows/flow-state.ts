/** The states of a flow. */

/** Every state, in the order in which a flow usually sees them. */
export const FLOW_STATES = ['pending', 'running', 'succeeded', 'failed', 'partial', 'cancelled'] as const;

/** A state of a flow. */
export type FlowState = (typeof FLOW_STATES)[number];
