/** A backup that is restored under a fleet: what was open then is done again and says so, and the books balance. */
import { execFile } from 'node:child_process';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { expect } from '@jest/globals';
import { call } from '../../scripts/call.ts';
import { LIFTED_BY } from '../../services/producer/ledger-reconcile.ts';
import { eventually } from '../support/eventually.ts';
import { openFleet } from '../support/fleet.ts';
import { pgDump, testWith } from '../support/tools.ts';

const exec = promisify(execFile);
const TASKS = 60;

// oxlint-disable jest/no-standalone-expect -- because testWith declares the test
testWith(
  pgDump,
  'a backup made under load and restored later: each task of it succeeds, and one that ran twice says so',
  async (dump) => {
    const dir = await mkdtemp(join(tmpdir(), 'warren-backup-'));
    const backup = join(dir, 'backup');
    try {
      await using fleet = await openFleet({ queues: 'default:4' });
      const { url, database } = fleet.database;
      await fleet.submit(...Array.from({ length: TASKS }, () => ({ input: { ms: 100 } })));
      await eventually(async () => expect((await fleet.books()).succeeded).toBeGreaterThan(TASKS / 6));
      await exec(dump, ['--format', 'custom', '--file', backup, url]);
      await fleet.ended();
      const [lost = ''] = await fleet.submit({});
      await fleet.ended();

      await fleet.worker(0).terminate();
      await fleet.producer().terminate();
      await database.query({ text: 'drop schema warren cascade' });
      await exec('pg_restore', ['--dbname', url, backup]);
      const restored = await fleet.tasks();
      const open = restored.filter(({ state }) => state !== 'succeeded').map(({ id }) => id);
      expect(restored).toHaveLength(TASKS);
      expect(restored.map(({ id }) => id)).not.toContain(lost);
      expect(open.length).toBeGreaterThan(0);

      await fleet.start('producer').ready();
      // The lease that the backup shows lapses by itself.
      const body = await eventually(async () => {
        const answer = await call(fleet.producer(1).url, 'POST', '/v1/ledger/reconcile', {
          reason: 'a test of backups',
        });
        expect([answer.status, answer.body]).toEqual([200, expect.objectContaining({ lifted: open.length })]);
        return answer.body;
      });
      await fleet.start('worker').ready();
      expect(await fleet.ended()).toMatchObject({ accepted: TASKS, succeeded: TASKS, dead: 0 });

      const attempts = await fleet.attempts();
      for (const id of open) {
        const ran = fleet.entries(id).filter(({ event }) => event === 'ended');
        expect((await fleet.task(id)).attempt).toBeGreaterThan(LIFTED_BY);
        expect(ran.length).toBeGreaterThanOrEqual(2);
        const [said] = attempts.filter(({ task_id: task, error_type: type }) => task === id && type === 'Restored');
        expect(said?.error_message).toContain(String(body['operation']));
      }
      const once = restored.filter(({ id }) => !open.includes(id)).flatMap(({ id }) => fleet.entries(id));
      expect(once.filter(({ event }) => event === 'ended')).toHaveLength(TASKS - open.length);
    } finally {
      await rm(dir, { recursive: true, force: true });
    }
  },
  120_000,
);
