/** The user that private servers run as. Postgres refuses to run as root, and a broker has no need of it. */
import { readFile } from 'node:fs/promises';
import { StackFailure } from './failure.ts';

/** An account of the machine. */
export interface ServerUser {
  readonly name: string;
  readonly uid: number;
  readonly gid: number;
}

/** In this order: `postgres` comes with an installed Postgres, `nobody` is everywhere. */
const CANDIDATES = ['postgres', 'nobody'];

/** The account to step down to; `undefined` when we are an ordinary user ourselves. */
export async function findServerUser(): Promise<ServerUser | undefined> {
  if (process.getuid?.() !== 0) return undefined;
  const users = parsePasswd(await readFile('/etc/passwd', 'utf8'));
  const user = CANDIDATES.map((name) => users.find((each) => each.name === name)).find((each) => each !== undefined);
  if (user === undefined)
    throw new StackFailure('run as an ordinary user: here is root, and no user `nobody` for Postgres');
  return user;
}

/** The accounts in the text of `/etc/passwd`, without root. */
export function parsePasswd(text: string): ServerUser[] {
  return text
    .split('\n')
    .map((line) => line.split(':'))
    .map(([name = '', , uid, gid]) => ({ name, uid: Number(uid), gid: Number(gid) }))
    .filter((user) => user.name !== '' && Number.isInteger(user.uid) && Number.isInteger(user.gid) && user.uid !== 0);
}
