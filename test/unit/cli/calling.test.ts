/** What every command has in common: who calls, where to, and wrong use. */
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, expect, test } from '@jest/globals';
import { answering, jsonAnswer, problem, warren } from '../../support/cli-io.ts';

describe('who calls, and where', () => {
  const ok = jsonAnswer({ items: [] });

  test('the token comes from WARREN_TOKEN, or from a file, which is told by an option or by WARREN_TOKEN_FILE', async () => {
    const folder = await mkdtemp(join(tmpdir(), 'warren-cli-'));
    const file = join(folder, 'token');
    await writeFile(file, 'from-a-file-0123456789\n');
    const sentBy = async (args: readonly string[], env: Record<string, string>): Promise<string | null | undefined> => {
      const { fetch, seen } = answering(ok);
      await warren(['task', 'list', ...args], { fetch, env });
      return seen[0]?.headers.get('authorization');
    };
    expect(await sentBy([], {})).toBeNull();
    expect(await sentBy([], { WARREN_TOKEN: 'from-the-environment' })).toBe('Bearer from-the-environment');
    expect(await sentBy([], { WARREN_TOKEN_FILE: file })).toBe('Bearer from-a-file-0123456789');
    expect(await sentBy(['--token-file', file], { WARREN_TOKEN: 'x' })).toBe('Bearer from-a-file-0123456789');
    await rm(folder, { recursive: true });
  });

  test('a token that cannot be read is exit 78, and nothing is sent', async () => {
    const { fetch, seen } = answering(ok);
    const { exitCode, stderr } = await warren(['task', 'list', '--token-file', '/nowhere/token'], { fetch });
    expect({ exitCode, sent: seen.length }).toEqual({ exitCode: 78, sent: 0 });
    expect(stderr).toContain('ENOENT');
  });

  test.each([
    [401, 'token-missing'],
    [401, 'token-invalid'],
    [403, 'role-insufficient'],
  ])('%d %s is exit 77 and says what to do', async (status, type) => {
    const { fetch } = answering(problem(type, status));
    const { exitCode, stderr } = await warren(['task', 'list'], { fetch });
    expect(exitCode).toBe(77);
    expect(stderr.split('\n').length).toBeGreaterThan(2);
  });

  test.each(['ftp://127.0.0.1', 'nonsense', 'http://user:secret@127.0.0.1', 'http://127.0.0.1/?x=1'])(
    '%s is no address of a service: exit 78, and no password is shown',
    async (url) => {
      const { fetch, seen } = answering(ok);
      const { exitCode, stderr } = await warren(['task', 'list'], { fetch, env: { WARREN_URL: url } });
      expect({ exitCode, sent: seen.length }).toEqual({ exitCode: 78, sent: 0 });
      expect(stderr).not.toContain('secret');
    },
  );

  test.each([
    ['a web page', () => new Response('<html>', { status: 200 })],
    ['a redirect', () => new Response(null, { status: 302, headers: { location: 'http://192.0.2.1/' } })],
    ['a proxy without a server', () => new Response('Bad Gateway', { status: 502 })],
    ['JSON that is no problem', jsonAnswer('[]', 400)],
  ])('%s is no Warren service: exit 69', async (_what, answer) => {
    const { fetch, seen } = answering(answer);
    const { exitCode, stderr } = await warren(['task', 'list'], { fetch });
    expect({ exitCode, sent: seen.length }).toEqual({ exitCode: 69, sent: 1 });
    expect(stderr).toContain('no Warren service');
  });
});

describe('wrong use', () => {
  test.each([[[]], [['task']], [['nonsense']], [['task', 'sumbit']], [['task', 'get']], [['--nonsense']]])(
    '%j is exit 2',
    async (args) => {
      const { exitCode, stderr } = await warren(args);
      expect(exitCode).toBe(2);
      expect(stderr).toContain('error: ');
    },
  );

  test('a misspelt command is answered with the right one', async () => {
    expect((await warren(['task', 'sumbit'])).stderr).toContain('Did you mean submit?');
  });

  test('with --json it is a JSON document too', async () => {
    expect(JSON.parse((await warren(['task', 'get', '--json'])).stderr)).toMatchObject({ code: 'usage', exitCode: 2 });
  });
});
