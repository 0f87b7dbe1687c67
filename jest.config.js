/**
 * Five projects: unit (pure logic), integration (real broker and database), faults (real processes, kills); once, like both,
 * for what does not depend on which broker is tested; and release, for what is handed out: packages and the image, built anew.
 */
const base = {
  testEnvironment: 'node',
  transform: { '^.+\\.ts$': '@swc/jest' },
  extensionsToTreatAsEsm: ['.ts'],
  injectGlobals: false,
};

/** @type {import('jest').Config} */
export default {
  // A deadline costs nothing while it is not reached, and a busy machine reaches a tight one.
  testTimeout: 240_000,
  // Each of those that run at once has a fleet of its own.
  maxConcurrency: 2,
  workerIdleMemoryLimit: '512MB',
  testSequencer: '<rootDir>/test/support/slow-first.cjs',
  projects: [
    {
      ...base,
      displayName: 'unit',
      testMatch: ['<rootDir>/test/unit/**/*.test.ts', '<rootDir>/test/properties/**/*.test.ts'],
    },
    { ...base, displayName: 'integration', testMatch: ['<rootDir>/test/integration/**/*.test.ts'] },
    { ...base, displayName: 'once', testMatch: ['<rootDir>/test/once/**/*.test.ts'] },
    { ...base, displayName: 'release', testMatch: ['<rootDir>/test/release/**/*.test.ts'] },
    { ...base, displayName: 'faults', testMatch: ['<rootDir>/test/faults/**/*.test.ts'] },
  ],
};
