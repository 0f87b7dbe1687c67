/** What jest's JSON says, in the numbers and words of our own last line. */
import { z } from 'zod';

const report = z.object({
  testResults: z.array(
    z.object({
      name: z.string(),
      status: z.string(),
      message: z.string(),
      assertionResults: z.array(z.object({ fullName: z.string(), status: z.string() })),
    }),
  ),
});

/** The outcome of one or more steps. */
export interface Tally {
  readonly passed: number;
  /** Names of what failed. */
  readonly failed: readonly string[];
  /** Names of what was skipped, with the reason where there is one. */
  readonly skipped: readonly string[];
  /** For people: what to read about the failures. */
  readonly details: readonly string[];
}

/** Nothing happened yet. */
export const EMPTY_TALLY: Tally = { passed: 0, failed: [], skipped: [], details: [] };

/** Both together. */
export function addTallies(one: Tally, other: Tally): Tally {
  return {
    passed: one.passed + other.passed,
    failed: [...one.failed, ...other.failed],
    skipped: [...one.skipped, ...other.skipped],
    details: [...one.details, ...other.details],
  };
}

/** Reads the file of jest's `--json --outputFile`. A file of tests that did not even load is one failure. Throws on other text. */
export function parseJestReport(text: string, root: string): Tally {
  let tally = EMPTY_TALLY;
  for (const file of report.parse(JSON.parse(text)).testResults) {
    const of = (...statuses: string[]): string[] =>
      file.assertionResults.filter(({ status }) => statuses.includes(status)).map(({ fullName }) => fullName);
    const path = file.name.startsWith(root) ? file.name.slice(root.length + 1) : file.name;
    const failed = of('failed');
    if (file.status === 'failed' && failed.length === 0) failed.push('could not be run');
    tally = addTallies(tally, {
      passed: of('passed').length,
      failed: failed.map((name) => `${path}: ${name}`),
      skipped: of('pending', 'skipped', 'todo', 'disabled').map((name) => `${path}: ${name}`),
      details: failed.length === 0 ? [] : [`${path}\n${file.message}`],
    });
  }
  return tally;
}

/** The line that ends every run. */
export function renderTotals({ passed, failed, skipped }: Tally): string {
  return `${passed} passed, ${failed.length} failed, ${skipped.length} skipped`;
}
