/** Whether every worker that would run a replay's tasks has the version that the replay waits for. */
import { satisfies, valid, validRange } from 'semver';
import type { Queryable } from '../../shared/postgres/statement.ts';
import { run } from '../../shared/postgres/statement.ts';
import { readVersions } from './replay-runner.sql.ts';

/** True for what `waitForVersion` may say: a range of semver. Source: github.com/npm/node-semver#ranges. */
export function isVersionRange(text: string): boolean {
  return text.trim() !== '' && validRange(text) !== null;
}

/** True where an announced version is in the range. A pre-release is what it precedes; what is no version is in no range. */
export function isInRange(version: string, range: string): boolean {
  return (
    valid(version, { loose: true }) !== null && satisfies(version, range, { loose: true, includePrerelease: true })
  );
}

/**
 * Who is in the way, in words; `undefined` where nobody is. Types that no live worker takes are judged by their last
 * announcement: a fleet that is scaled to zero would else be waited for until somebody sends it work.
 */
export async function whoIsBehind(
  db: Queryable,
  range: string,
  { types, leaseMs }: { readonly types: readonly string[]; readonly leaseMs: number },
): Promise<string | undefined> {
  const rows = await run(db, readVersions, types, leaseMs);
  const behind = rows.filter(({ code_version: version }) => !isInRange(version, range));
  if (behind.length === 0) return undefined;
  const said = behind
    .toSorted((a, b) => b.workers - a.workers || (a.code_version < b.code_version ? -1 : 1))
    .slice(0, 10)
    .map(({ code_version: version, workers, host, is_live: isLive }) =>
      isLive
        ? `${workers} worker${workers === 1 ? '' : 's'} with ${version} (${host})`
        : `no live worker takes ${host}, which was announced with ${version}`,
    );
  return `waits for ${range}: ${said.join(', ')}`.slice(0, 1_000);
}
