/** The audit is found by its indexes, however long it has grown, under the settings of a service. */
import { afterAll, beforeAll, expect, test } from '@jest/globals';
import { auditText } from '../../services/dead-letter-handler/audit.sql.ts';
import type { AuditCondition } from '../../services/dead-letter-handler/audit.sql.ts';
import { findAudit } from '../../services/dead-letter-handler/audit.ts';
import { openDatabase } from '../support/database.ts';
import type { TestDatabase } from '../support/database.ts';
import { SERVICE_PLANS } from '../support/task-api.ts';

const LINES = 20_000;

let db: TestDatabase;
beforeAll(async () => {
  db = await openDatabase({ settings: SERVICE_PLANS });
  await db.database.query({
    text: `insert into audit (id, at, actor, role, action, target)
           select gen_random_uuid(), now() - n * interval '1 s', 'a' || n % 500, 'operator', 'act.n' || n % 500, 't' || n
             from generate_series(1, ${LINES}) n`,
  });
  await db.database.query({ text: 'analyze audit' });
});
afterAll(async () => await db[Symbol.asyncDispose]());

test.each<readonly [readonly AuditCondition[], string]>([
  [[], 'audit_at'],
  [['after', 'before', 'past'], 'audit_at'],
  [['target'], 'audit_target'],
  [['actor', 'past'], 'audit_actor'],
  [['action', 'after'], 'audit_action'],
])('with %j it walks %s', async (given, index) => {
  const connection = await db.database.checkOut();
  try {
    // The plan for any parameters, which a session makes also of statements without a name.
    await connection.query({ text: 'set plan_cache_mode = force_generic_plan' });
    await connection.query({ text: `prepare planned as ${auditText((name) => given.includes(name))}` });
    const { rows } = await connection.query({
      text: 'explain execute planned (null, null, null, null, null, null, null, 50)',
    });
    const plan = (rows as { 'QUERY PLAN': string }[]).map((row) => row['QUERY PLAN']).join('\n');
    expect(plan).toContain(`using ${index} on audit`);
    expect(plan).not.toMatch(/Seq Scan/);
  } finally {
    connection.release(true);
  }
});

test('every set of filters finds what one filter after the other finds', async () => {
  const all = await findAudit(db.database, { limit: LINES });
  const [newest] = all;
  const at = (index: number): Date => new Date(all[index]?.line.at ?? '');
  const filters = { actor: 'a7', action: 'act.n7', after: at(15_000), before: at(1_000), target: undefined };
  const found = await findAudit(db.database, { ...filters, past: newest?.key, limit: LINES });
  const expected = all.filter(
    ({ line }) => line.actor === 'a7' && new Date(line.at) >= filters.after && new Date(line.at) < filters.before,
  );
  expect(expected.length).toBeGreaterThan(20);
  expect(found).toEqual(expected);
});
