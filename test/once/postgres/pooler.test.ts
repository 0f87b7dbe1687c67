/** A connection pooler between a service and Postgres is refused, by name, and so it is seen at the first start. */
import { spawn } from 'node:child_process';
import { chmod, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect } from '@jest/globals';
import { findFreePort } from '../../../deploy/local-stack/ports.ts';
import { aDatabase, openEmptyDatabase } from '../../support/database.ts';
import { eventually } from '../../support/eventually.ts';
import { pgBouncer, testWith } from '../../support/tools.ts';

const IGNORED = 'options,statement_timeout,lock_timeout,idle_in_transaction_session_timeout,extra_float_digits';

/** A PgBouncer before the server of `url`; gives the URL of the same database behind it. */
async function openPooler(
  program: string,
  url: string,
  settings: readonly string[],
): Promise<AsyncDisposable & { readonly url: string }> {
  const dir = await mkdtemp(join(tmpdir(), 'warren-pooler-'));
  const { hostname, port, username, password } = new URL(url);
  const users = join(dir, 'users.txt');
  const listenPort = await findFreePort([]);
  const [user, secret] = [username, password].map((part) => decodeURIComponent(part).replaceAll('"', '""'));
  await writeFile(users, `"${user ?? ''}" "${secret ?? ''}"\n`);
  await writeFile(
    join(dir, 'pgbouncer.ini'),
    [
      '[databases]',
      `* = host=${hostname} port=${port === '' ? '5432' : port}`,
      '[pgbouncer]',
      `listen_addr = 127.0.0.1\nlisten_port = ${listenPort}\nunix_socket_dir =\nauth_type = trust\nauth_file = ${users}`,
      ...settings,
    ].join('\n'),
  );
  // It steps down from root to another user, who has to read this.
  await chmod(dir, 0o755);
  const asUser = process.getuid?.() === 0 ? ['--user', 'nobody'] : [];
  const child = spawn(program, [...asUser, join(dir, 'pgbouncer.ini')], { stdio: 'ignore' });
  const pooled = new URL(url);
  pooled.hostname = '127.0.0.1';
  pooled.port = String(listenPort);
  return {
    url: pooled.href,
    async [Symbol.asyncDispose]() {
      const isOver = new Promise((resolve) => child.once('exit', resolve));
      if (child.exitCode === null && child.kill('SIGINT')) await isOver;
      await rm(dir, { recursive: true, force: true });
    },
  };
}

// oxlint-disable jest/no-standalone-expect -- because testWith declares the test
for (const [mode, settings] of [
  ['that knows no settings of a session', ['pool_mode = transaction']],
  ['that drops them, by transaction', ['pool_mode = transaction', `ignore_startup_parameters = ${IGNORED}`]],
  ['that drops them, by session', ['pool_mode = session', `ignore_startup_parameters = ${IGNORED}`]],
] as const) {
  testWith(pgBouncer, `a PgBouncer ${mode} is refused, and the reason says what to do`, async (program) => {
    await using behind = await openEmptyDatabase();
    await using pooler = await openPooler(program, behind.url, settings);
    const database = aDatabase(pooler.url, { max: 2 });
    try {
      await eventually(async () =>
        expect(await database.connectOrThrow().catch((thrown: unknown) => thrown)).toMatchObject({
          code: 'database-unavailable',
          facts: {
            reason: expect.stringMatching(/^08P01 .*Name Postgres itself: PgBouncer and its like are not supported/),
          },
        }),
      );
      expect(database.isAvailable).toBe(false);
    } finally {
      await database.stop(0);
    }
  });
}
