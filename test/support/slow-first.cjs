/** The order of test files: those that take longest first, so that none of them is left alone at the end. */
/* oxlint-disable typescript/no-unsafe-call, typescript/no-unsafe-member-access, typescript/no-unsafe-argument, typescript/no-unsafe-return, typescript/no-unsafe-assignment -- plain JavaScript without types: jest loads it before it can load TypeScript */
const { default: TestSequencer } = require('@jest/test-sequencer');

/** Half a minute and more, the longest first. Jest goes by the size of a file where it has not run before. */
const SLOW = [
  'once/docs-run',
  'once/broker-restarts',
  'once/local-stack',
  'once/files',
  'once/start',
  'once/replay-waves',
  'once/chaos-checker',
  'once/retention-concurrent',
  'once/handlers-out-of-hand',
  'faults/outages',
  'faults/exactly-once',
  'faults/terminated-in-outage',
  'faults/handler-kills-worker',
  'faults/connections-cut',
  'integration/callbacks',
  'integration/queue-modes',
  'integration/cancel-running',
  'integration/fair-queue',
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
