/** The order of test files: those that take longest first, so that none of them is left alone at the end. */
/* oxlint-disable typescript/no-unsafe-call, typescript/no-unsafe-member-access, typescript/no-unsafe-argument, typescript/no-unsafe-return, typescript/no-unsafe-assignment -- plain JavaScript without types: jest loads it before it can load TypeScript */
const { default: TestSequencer } = require('@jest/test-sequencer');

/** Half a minute and more, the longest first. Jest goes by the size of a file where it has not run before. */
const SLOW = [
  'once/docs-run',
  'once/chaos-checker',
  'once/broker-restarts',
  'once/secrets-in-outputs',
  'once/schedules',
  'once/replay-waves',
  'once/flows-nested',
  'once/flows',
  'once/plans-of-all',
  'once/retention-concurrent',
  'once/local-stack',
  'once/handlers-out-of-hand',
  'once/files',
  'once/start',
  'faults/exactly-once',
  'faults/outages',
  'faults/flows-killed',
  'faults/terminated-in-outage',
  'faults/worker-terminated',
  'faults/connections-cut',
  'faults/handler-kills-worker',
  'integration/scaling',
  'integration/traces-away',
  'integration/callbacks',
  'integration/queue-modes',
  'integration/cancel-running',
  'integration/fair-queue',
  'integration/client',
  'unit/examples/samples',
];

const placeOf = ({ path }) => {
  const place = SLOW.findIndex((file) => path.endsWith(`/test/${file}.test.ts`));
  return place === -1 ? SLOW.length : place;
};

module.exports = class SlowFirst extends TestSequencer {
  async sort(tests) {
    return [...(await super.sort(tests))].sort((a, b) => placeOf(a) - placeOf(b));
  }
};
