/** How a failure group can stand. Reference pages and API schemas are made from here. */

/** States of failure groups, with who causes each and when. */
export const GROUP_STATES = {
  open: 'Nobody has said anything about it, or it came back after it was resolved.',
  acknowledged: 'Somebody is on it: it is no news any more.',
  resolved: 'Its cause is mended. A letter that dies of it later opens it again.',
  ignored: 'Known, and not worth a word: it never opens by itself.',
} as const;

/** One of `GROUP_STATES`. */
export type GroupState = keyof typeof GROUP_STATES;
